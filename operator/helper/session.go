package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// sessionFile keeps what every command of the session needs. /dev is a tmpfs of the container: no commit and no capture
// sees it.
var sessionFile = "/dev/.agentworlds/session.json"

// session is what the operator tells once, after the start.
type session struct {
	// User is the image's USER; "" is root.
	User string `json:"user"`
}

// runSession stores the session's facts; saying them again replaces them. Its answer also proves that the helper works.
func runSession(talk *conversation) error {
	var told session
	if err := talk.header(&told); err != nil {
		return err
	}
	if err := storeSession(told); err != nil {
		return err
	}
	if err := talk.writer.writeJSON(frameRecord, map[string]int{"protocol": protocolVersion}); err != nil {
		return errors.Join(errClientLost, err)
	}
	talk.awaitAck()
	return nil
}

func storeSession(told session) error {
	content, err := json.Marshal(told)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(sessionFile), 0o700); err != nil {
		return err
	}
	temporary := sessionFile + ".new"
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, sessionFile)
}

// readSession fails without a session: running as root because nobody said otherwise would be wrong.
func readSession() (session, error) {
	var told session
	content, err := os.ReadFile(sessionFile)
	if errors.Is(err, fs.ErrNotExist) {
		return told, fail("CommandNotStarted", "the session is not set up yet")
	}
	if err != nil {
		return told, err
	}
	return told, json.Unmarshal(content, &told)
}
