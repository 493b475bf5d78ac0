package main

import (
	"io"
	"os"
	"sync"
	"time"
)

// How much stdin is held for a command that does not read it. While the queue is full, the loss of the client goes
// unnoticed until the command reads, ends or times out.
const stdinQueueBytes = 16 << 20

// client is the other end during an exec: it sends stdin, then the acknowledgement, and may vanish at any time.
type client struct {
	mutex sync.Mutex
	moved *sync.Cond
	queue [][]byte
	held  int
	ended bool
	lost  chan struct{}
	acked chan struct{}
}

func newClient() *client {
	c := &client{lost: make(chan struct{}), acked: make(chan struct{})}
	c.moved = sync.NewCond(&c.mutex)
	return c
}

// listen reads frames until the acknowledgement or the end of the connection.
func (c *client) listen(frames io.Reader) {
	for {
		next, err := readFrame(frames)
		switch {
		case err != nil:
			c.push(nil)
			close(c.lost)
			return
		case next.kind == frameData && len(next.payload) > 0:
			c.push(next.payload)
		case next.kind == frameEnd:
			c.push(nil)
		case next.kind == frameAck:
			c.push(nil)
			close(c.acked)
			return
		}
	}
}

// push queues bytes of stdin; nil is its end.
func (c *client) push(bytes []byte) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for bytes != nil && !c.ended && c.held >= stdinQueueBytes {
		c.moved.Wait()
	}
	if bytes == nil {
		c.ended = true
	} else if !c.ended {
		c.queue = append(c.queue, bytes)
		c.held += len(bytes)
	}
	c.moved.Broadcast()
}

// feed writes the queue into the command's stdin. A command that closed its stdin loses the rest, as in a shell.
func (c *client) feed(stdin *os.File) {
	defer stdin.Close()
	for {
		c.mutex.Lock()
		for len(c.queue) == 0 && !c.ended {
			c.moved.Wait()
		}
		if len(c.queue) == 0 {
			c.mutex.Unlock()
			return
		}
		next := c.queue[0]
		c.queue = c.queue[1:]
		c.held -= len(next)
		c.moved.Broadcast()
		c.mutex.Unlock()
		if _, err := stdin.Write(next); err != nil {
			c.refuseRest()
			return
		}
	}
}

func (c *client) refuseRest() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.ended = true
	c.queue = nil
	c.held = 0
	c.moved.Broadcast()
}

func (c *client) awaitAck() {
	select {
	case <-c.acked:
	case <-c.lost:
	case <-time.After(ackTimeout):
	}
}
