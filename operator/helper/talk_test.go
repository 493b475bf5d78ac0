package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestMain keeps the session's facts out of the machine's /dev.
func TestMain(m *testing.M) {
	directory, err := os.MkdirTemp("", "agentworlds-helper-test-")
	if err != nil {
		panic(err)
	}
	sessionFile = filepath.Join(directory, "session.json")
	if err := storeSession(session{}); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(directory); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// testClient talks to a sub-command that runs in this process.
type testClient struct {
	t      *testing.T
	writer *frameWriter
	toward *os.File
	answer *os.File
	exit   chan int
}

func talkTo(t *testing.T, command func(*conversation) error) *testClient {
	t.Helper()
	requestRead, requestWrite := openPipe(t)
	answerRead, answerWrite := openPipe(t)
	client := &testClient{
		t: t, writer: &frameWriter{out: requestWrite}, toward: requestWrite, answer: answerRead, exit: make(chan int, 1),
	}
	go func() {
		_, diagnostics := openPipe(t)
		code := serve(requestRead, answerWrite, diagnostics, command)
		// The helper may have hung up itself.
		answerWrite.Close()
		client.exit <- code
	}()
	t.Cleanup(client.leave)
	return client
}

func openPipe(t *testing.T) (*os.File, *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return read, write
}

func (c *testClient) send(kind byte, value any) {
	c.t.Helper()
	if err := c.writer.writeJSON(kind, value); err != nil {
		c.t.Fatal(err)
	}
}

func (c *testClient) sendBytes(kind byte, payload []byte) {
	c.t.Helper()
	if err := c.writer.write(kind, payload); err != nil {
		c.t.Fatal(err)
	}
}

// leave closes the connection, as a client that dies does.
func (c *testClient) leave() { c.toward.Close() }

type answer struct {
	stdout, stderr, data bytes.Buffer
	info                 fileInfo
	record               execRecord
	proof                fileProof
	failure              *failure
}

// finish reads everything up to the final frame and acknowledges it.
func (c *testClient) finish() answer {
	c.t.Helper()
	var got answer
	parse := func(payload []byte, into any) {
		if err := json.Unmarshal(payload, into); err != nil {
			c.t.Fatalf("%v in %q", err, payload)
		}
	}
	for {
		next, err := readFrame(c.answer)
		if err != nil {
			c.t.Fatalf("no final frame: %v", err)
		}
		switch next.kind {
		case frameStdout:
			got.stdout.Write(next.payload)
			continue
		case frameStderr:
			got.stderr.Write(next.payload)
			continue
		case frameData:
			got.data.Write(next.payload)
			continue
		case frameInfo:
			parse(next.payload, &got.info)
			continue
		case frameRecord:
			parse(next.payload, &got.record)
			parse(next.payload, &got.proof)
		case frameEnd:
			parse(next.payload, &got.proof)
		case frameFailure:
			got.failure = &failure{}
			parse(next.payload, got.failure)
		default:
			c.t.Fatalf("unknown frame %q", next.kind)
		}
		c.sendBytes(frameAck, nil)
		if _, err := io.Copy(io.Discard, c.answer); err != nil {
			c.t.Fatal(err)
		}
		return got
	}
}
