package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// How long the helper keeps its end open for the client's acknowledgement. Exiting earlier could cut the tail of the
// stream: engines close an exec's output when its process ends, whether or not everything was read.
const ackTimeout = 30 * time.Second

// failure is an outcome the client knows by its code.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (f *failure) Error() string { return f.Code + ": " + f.Message }

func fail(code, format string, arguments ...any) error {
	return &failure{Code: code, Message: fmt.Sprintf(format, arguments...)}
}

// errClientLost says that nobody is left to answer.
var errClientLost = errors.New("the client went away")

// conversation is one request and its answer over stdin and stdout.
type conversation struct {
	frames *bufio.Reader
	writer *frameWriter
	// What hangs up when it is closed.
	streams []io.Closer
}

// header reads the request into value.
func (c *conversation) header(value any) error {
	first, err := readFrame(c.frames)
	if err != nil {
		return errors.Join(errClientLost, err)
	}
	if first.kind != frameHeader {
		return fail("BadRequest", "expected the request's header, got a frame of type %q", first.kind)
	}
	if err := json.Unmarshal(first.payload, value); err != nil {
		return fail("BadRequest", "the request's header is not valid: %v", err)
	}
	return nil
}

// serve runs one sub-command over frames. The exit code only serves people: clients read the frames.
func serve(in, out, diagnostics *os.File, command func(*conversation) error) int {
	talk := &conversation{
		frames:  bufio.NewReaderSize(in, 64<<10),
		writer:  &frameWriter{out: out},
		streams: []io.Closer{in, out, diagnostics},
	}
	err := command(talk)
	if err == nil {
		return 0
	}
	var known *failure
	if !errors.As(err, &known) {
		if errors.Is(err, errClientLost) {
			return 3
		}
		known = &failure{Code: "Internal", Message: err.Error()}
	}
	if err := talk.writer.writeJSON(frameFailure, known); err != nil {
		fmt.Fprintf(diagnostics, "agentworlds-helper: cannot report %v: %v\n", known, err)
		return 3
	}
	talk.awaitAck()
	return 1
}

// awaitAck waits until the client has the answer, is gone, or had long enough.
func (c *conversation) awaitAck() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			next, err := readFrame(c.frames)
			if err != nil || next.kind == frameAck {
				return
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(ackTimeout):
	}
}

// hangUp closes every stream to the client, after which nobody waits for this process.
func (c *conversation) hangUp() error {
	var errs []error
	for _, stream := range c.streams {
		errs = append(errs, stream.Close())
	}
	return errors.Join(errs...)
}
