package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A frame is one type byte, a big-endian uint32 length and that many bytes.
const (
	frameHeader  = 'H' // to the helper: the request, JSON
	frameData    = 'D' // both ways: bytes of stdin or of a file
	frameEnd     = 'E' // both ways: end of those bytes; for files JSON {length, sha256}
	frameAck     = 'A' // to the helper: the answer has arrived
	frameStdout  = 'O' // from the helper
	frameStderr  = 'S' // from the helper
	frameInfo    = 'I' // from the helper: facts about a file, JSON
	frameRecord  = 'X' // from the helper: the final record, JSON
	frameFailure = 'F' // from the helper: why there is no record, JSON {code, message}
)

// Size of the type and the length in front of every payload.
const framePrefix = 5

// Most bytes of one frame. A header carries a whole command line and environment, so it is generous.
const maxFrameBytes = 4 << 20

type frame struct {
	kind    byte
	payload []byte
}

// readFrame returns io.EOF only at a frame boundary; an end within a frame is io.ErrUnexpectedEOF.
func readFrame(in io.Reader) (frame, error) {
	var prefix [framePrefix]byte
	if _, err := io.ReadFull(in, prefix[:]); err != nil {
		return frame{}, err
	}
	length := binary.BigEndian.Uint32(prefix[1:])
	if length > maxFrameBytes {
		return frame{}, fmt.Errorf("frame of %d bytes is above the limit of %d", length, maxFrameBytes)
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(in, payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return frame{kind: prefix[0], payload: payload}, nil
}

// frameWriter writes whole frames; several goroutines may use it.
type frameWriter struct {
	mutex sync.Mutex
	out   io.Writer
}

func (w *frameWriter) write(kind byte, payload []byte) error {
	buffer := make([]byte, framePrefix+len(payload))
	copy(buffer[framePrefix:], payload)
	return w.writePrefixed(kind, buffer)
}

// writePrefixed sends a buffer whose first framePrefix bytes are free, so that bulk data is not copied.
func (w *frameWriter) writePrefixed(kind byte, buffer []byte) error {
	buffer[0] = kind
	binary.BigEndian.PutUint32(buffer[1:], uint32(len(buffer)-framePrefix))
	w.mutex.Lock()
	defer w.mutex.Unlock()
	_, err := w.out.Write(buffer)
	return err
}

func (w *frameWriter) writeJSON(kind byte, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return w.write(kind, payload)
}
