package main

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestAFrameArrivesAsItWasSent(t *testing.T) {
	var wire bytes.Buffer
	writer := &frameWriter{out: &wire}
	for _, payload := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte{0, 255}, 100_000)} {
		if err := writer.write(frameData, payload); err != nil {
			t.Fatal(err)
		}
		got, err := readFrame(&wire)
		if err != nil || got.kind != frameData || !bytes.Equal(got.payload, payload) {
			t.Fatalf("got %q of %d bytes, %v", got.kind, len(got.payload), err)
		}
	}
}

func TestAnEndWithinAFrameIsNotAnEnd(t *testing.T) {
	var wire bytes.Buffer
	if err := (&frameWriter{out: &wire}).write(frameData, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	whole := wire.Bytes()
	for cut := 1; cut < len(whole); cut++ {
		if _, err := readFrame(bytes.NewReader(whole[:cut])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	if _, err := readFrame(bytes.NewReader(nil)); !errors.Is(err, io.EOF) {
		t.Fatalf("at the boundary: %v", err)
	}
}

func TestALengthAboveTheLimitIsRefusedWithoutAllocatingIt(t *testing.T) {
	if _, err := readFrame(bytes.NewReader([]byte{frameData, 255, 255, 255, 255})); err == nil {
		t.Fatal("accepted")
	}
}
