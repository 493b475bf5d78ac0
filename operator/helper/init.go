package main

import (
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// runInit is PID 1: it outlives whatever happens inside and leaves no zombie. It ends only by a KILL from outside the
// container's PID namespace; every other signal has a handler that does nothing, because the kernel delivers to PID 1
// only what it handles, and SIGKILL from inside is dropped.
func runInit() int {
	debug.SetGCPercent(10)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	reap()
	for range signals {
		// Whatever woke us, look for the dead: SIGCHLD is not queued, several deaths may have sent one.
		reap()
	}
	return 0
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
