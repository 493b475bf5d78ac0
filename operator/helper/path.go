package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Longest path Linux takes, in bytes.
const maxPathBytes = 4095

// Trees that are not the session's: our own, and the kernel's, whose files have no stable size and include secrets.
var refusedTrees = []string{mountPoint, "/proc", "/sys", "/dev"}

// checkPath returns the lexically clean form of a client's path. It does not resolve links: checkTree is asked again
// after they are.
func checkPath(path []byte) (string, error) {
	switch {
	case len(path) == 0 || path[0] != '/':
		return "", fail("FileRefused", "the path must be absolute")
	case bytes.IndexByte(path, 0) >= 0:
		return "", fail("FileRefused", "the path holds a NUL byte")
	case len(path) > maxPathBytes:
		return "", fail("FileRefused", "the path is longer than %d bytes", maxPathBytes)
	case path[len(path)-1] == '/':
		return "", fail("NotAFile", "%q names a directory", path)
	}
	name := string(path)
	if base := name[strings.LastIndexByte(name, '/')+1:]; base == "." || base == ".." {
		return "", fail("NotAFile", "%q names a directory", path)
	}
	return name, checkTree(filepath.Clean(name))
}

func checkTree(path string) error {
	for _, tree := range refusedTrees {
		if path == tree || strings.HasPrefix(path, tree+"/") {
			return fail("FileRefused", "files below %s are not part of the session", tree)
		}
	}
	return nil
}

// reason is an error without the path our callers name already.
func reason(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	var linkError *os.LinkError
	if errors.As(err, &linkError) {
		return linkError.Err
	}
	return err
}

// fileFailure gives an error of the filesystem the code a client knows.
func fileFailure(path string, err error) error {
	var known *failure
	switch {
	case errors.As(err, &known), errors.Is(err, errClientLost):
		return err
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return fail("NotAFile", "%q: %v", path, reason(err))
	case errors.Is(err, fs.ErrNotExist):
		return fail("FileNotFound", "%q does not exist", path)
	default:
		return fail("FileRefused", "%q: %v", path, reason(err))
	}
}
