// Command agentworlds-helper is the small static program that Agent Worlds mounts into every session's container.
//
// It is PID 1 of the container (`init`), is told whose session this is (`session`), supervises single commands (`exec`),
// moves single files (`put`, `get`) and has what was written brought to the disk (`sync`).
// Commands, environment, stdin and paths arrive in frames on its stdin, never in its argv (invariant 8), and every
// answer ends in a frame that proves it is complete.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// Path of the directory this program is mounted at. Nothing is ever written below it from a session.
const mountPoint = "/.agentworlds"

// Version of the frame protocol. A change that an older operator cannot read raises it.
const protocolVersion = 1

func main() {
	// The kernel ties a parent-death signal to the thread that forked, so main keeps its thread.
	runtime.LockOSThread()
	hideFromWorkload()
	// Notify, not Ignore: an ignored signal would be inherited by the command, a handled one is not.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: agentworlds-helper init|session|exec|put|get|sync|version")
		return 2
	}
	switch args[0] {
	case "init":
		return runInit()
	case "session":
		return serve(os.Stdin, os.Stdout, os.Stderr, runSession)
	case "exec":
		return serve(os.Stdin, os.Stdout, os.Stderr, runExec)
	case "put":
		return serve(os.Stdin, os.Stdout, os.Stderr, runPut)
	case "get":
		return serve(os.Stdin, os.Stdout, os.Stderr, runGet)
	case "sync":
		return serve(os.Stdin, os.Stdout, os.Stderr, runSync)
	case "version":
		fmt.Printf("agentworlds-helper protocol %d\n", protocolVersion)
		return 0
	default:
		fmt.Fprintf(os.Stderr, "agentworlds-helper: unknown command %q\n", args[0])
		return 2
	}
}

// hideFromWorkload makes this process untraceable and its environment unreadable for processes of the same user. The
// flag does not survive execve, so commands are ordinary processes.
func hideFromWorkload() {
	const prSetDumpable = 4
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	if errno != 0 {
		fmt.Fprintf(os.Stderr, "agentworlds-helper: cannot leave the dumpable state: %v\n", errno)
	}
}
