package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

type getRequest struct {
	// Path is base64 in JSON: a name is bytes, not text.
	Path []byte `json:"path"`
}

type fileInfo struct {
	Size    int64  `json:"size"`
	Mode    uint32 `json:"mode"`
	MtimeNs int64  `json:"mtimeNs"`
}

// fileProof ends a file's bytes in both directions.
type fileProof struct {
	Length int64  `json:"length"`
	SHA256 string `json:"sha256"`
}

// runGet sends a regular file: its facts, exactly as many bytes as they say, and the proof. A file that shrinks while
// it is read is a failure, never a short answer.
func runGet(talk *conversation) error {
	var request getRequest
	if err := talk.header(&request); err != nil {
		return err
	}
	path, err := checkPath(request.Path)
	if err != nil {
		return err
	}
	file, info, err := openRegular(path)
	if err != nil {
		return fileFailure(path, err)
	}
	defer file.Close()
	facts := fileInfo{Size: info.Size(), Mode: uint32(info.Mode().Perm()), MtimeNs: info.ModTime().UnixNano()}
	if err := talk.writer.writeJSON(frameInfo, facts); err != nil {
		return errors.Join(errClientLost, err)
	}
	proof, err := sendContent(talk.writer, file, info.Size())
	if err != nil {
		return fileFailure(path, err)
	}
	if err := talk.writer.writeJSON(frameEnd, proof); err != nil {
		return errors.Join(errClientLost, err)
	}
	talk.awaitAck()
	return nil
}

func openRegular(path string) (*os.File, os.FileInfo, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, nil, err
	}
	if err := checkTree(resolved); err != nil {
		return nil, nil, err
	}
	// O_NONBLOCK: opening a FIFO must not wait for its writer.
	file, err := os.OpenFile(resolved, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fail("NotAFile", "%q is a %s, not a regular file", path, kindOf(info.Mode()))
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

func kindOf(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode&os.ModeNamedPipe != 0:
		return "named pipe"
	case mode&os.ModeSocket != 0:
		return "socket"
	case mode&os.ModeDevice != 0:
		return "device"
	default:
		return "special file"
	}
}

func sendContent(writer *frameWriter, file io.Reader, size int64) (fileProof, error) {
	sum := sha256.New()
	buffer := make([]byte, framePrefix+64<<10)
	for left := size; left > 0; {
		want := min(left, int64(len(buffer)-framePrefix))
		chunk := buffer[:framePrefix+want]
		if _, err := io.ReadFull(file, chunk[framePrefix:]); err != nil {
			return fileProof{}, fail("FileRefused", "the file changed its length while it was read")
		}
		sum.Write(chunk[framePrefix:])
		if err := writer.writePrefixed(frameData, chunk); err != nil {
			return fileProof{}, errors.Join(errClientLost, err)
		}
		left -= want
	}
	return fileProof{Length: size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}
