package main

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// Number of syncfs(2) where package syscall does not know it.
var syncfsNumber = map[string]uintptr{"amd64": 306, "arm64": 267}

// runSync writes out what the session has written to its filesystem. A disk that cannot take it is a failure: what would
// be captured after that may not be what was written.
func runSync(talk *conversation) error {
	var request struct{}
	if err := talk.header(&request); err != nil {
		return err
	}
	if err := syncFilesystem("/"); err != nil {
		return fail("SyncFailed", "the filesystem cannot be written out: %v", reason(err))
	}
	if err := talk.writer.writeJSON(frameRecord, map[string]bool{"synced": true}); err != nil {
		return errors.Join(errClientLost, err)
	}
	talk.awaitAck()
	return nil
}

func syncFilesystem(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	defer directory.Close()
	_, _, errno := syscall.Syscall(syncfsNumber[runtime.GOARCH], directory.Fd(), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
