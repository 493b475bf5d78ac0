package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	// After the command has exited, a background child may hold its output open. Silence of this length ends the wait.
	idleGrace = 100 * time.Millisecond
	// A background child that never stops writing cannot hold the record back longer than this.
	drainLimit = time.Second
)

// streamProof lets the client check that it got every byte.
type streamProof struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// outputBudget is what stdout and stderr may bring together.
type outputBudget struct {
	left     atomic.Int64
	exceeded chan struct{}
	reported atomic.Bool
}

func newOutputBudget(bytes int64) *outputBudget {
	budget := &outputBudget{exceeded: make(chan struct{})}
	budget.left.Store(bytes)
	return budget
}

func (b *outputBudget) take(bytes int) bool {
	if b.left.Add(int64(-bytes)) >= 0 {
		return true
	}
	if b.reported.CompareAndSwap(false, true) {
		close(b.exceeded)
	}
	return false
}

// pump copies one output stream of the command into frames.
type pump struct {
	kind   byte
	source *os.File
	writer *frameWriter
	budget *outputBudget
	sum    hash.Hash
	bytes  int64
	// exited is closed when the command itself has ended.
	exited chan struct{}
	// open is true after the pump ended while somebody still held the stream.
	open bool
	err  error
}

func newPump(kind byte, source *os.File, writer *frameWriter, budget *outputBudget, exited chan struct{}) *pump {
	return &pump{kind: kind, source: source, writer: writer, budget: budget, sum: sha256.New(), exited: exited}
}

// run returns at the end of the stream, or some time after the command's exit (see idleGrace): by then everything the
// command itself wrote has been read, because a pipe keeps order and what it held at the exit has been read since.
func (p *pump) run(ended chan<- struct{}) {
	defer func() { ended <- struct{}{} }()
	woken, stopWaking := p.wakeAtExit()
	defer stopWaking()
	buffer := make([]byte, framePrefix+32<<10)
	var pending int
	var drainEnds time.Time
	for {
		if p.hasExited() {
			// Or the waker's deadline would replace the one set below.
			<-woken
			if drainEnds.IsZero() {
				drainEnds = time.Now().Add(drainLimit)
				pending = bytesWaiting(p.source)
			}
			if time.Now().After(drainEnds) && pending <= 0 {
				p.open = true
				return
			}
			if p.err = p.source.SetReadDeadline(time.Now().Add(idleGrace)); p.err != nil {
				return
			}
		}
		count, err := p.source.Read(buffer[framePrefix:])
		if count > 0 {
			pending -= count
			if p.budget.take(count) {
				p.sum.Write(buffer[framePrefix : framePrefix+count])
				p.bytes += int64(count)
				if p.err = p.writer.writePrefixed(p.kind, buffer[:framePrefix+count]); p.err != nil {
					return
				}
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			// The first one is the wake-up at the exit; the next read gets its own deadline.
			if !drainEnds.IsZero() {
				p.open = true
				return
			}
		default:
			return
		}
	}
}

// wakeAtExit interrupts a read that waits on a stream which only a background child holds.
func (p *pump) wakeAtExit() (woken <-chan struct{}, stop func()) {
	stopped := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-p.exited:
			// A closed pipe needs no waking.
			_ = p.source.SetReadDeadline(time.Now())
		case <-stopped:
		}
	}()
	return done, func() { close(stopped) }
}

func (p *pump) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *pump) proof() streamProof {
	return streamProof{Bytes: p.bytes, SHA256: hex.EncodeToString(p.sum.Sum(nil))}
}

// discardRest keeps a background child alive that still writes: a closed pipe would kill it with SIGPIPE.
func (p *pump) discardRest() {
	if p.source.SetReadDeadline(time.Time{}) != nil {
		return
	}
	buffer := make([]byte, 32<<10)
	for {
		if _, err := p.source.Read(buffer); err != nil {
			return
		}
	}
}

// bytesWaiting is how much a pipe holds unread.
func bytesWaiting(pipe *os.File) int {
	const fionread = 0x541B
	var waiting int32
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	err = raw.Control(func(descriptor uintptr) {
		syscall.Syscall(syscall.SYS_IOCTL, descriptor, fionread, uintptr(unsafe.Pointer(&waiting)))
	})
	if err != nil {
		return 0
	}
	return int(waiting)
}
