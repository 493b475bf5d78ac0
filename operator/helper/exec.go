package main

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// execRequest is the header of `exec`.
type execRequest struct {
	Command    []string          `json:"command"`
	Env        map[string]string `json:"env"`
	WorkingDir string            `json:"workingDir"`
	User       string            `json:"user"`
	TimeoutMs  int64             `json:"timeoutMs"`
	// Most bytes of stdout and stderr together.
	MaxOutputBytes int64 `json:"maxOutputBytes"`
}

// execRecord is the proof of how a command ended.
type execRecord struct {
	ExitCode       int         `json:"exitCode"`
	Signal         int         `json:"signal"`
	TimedOut       bool        `json:"timedOut"`
	OutputTooLarge bool        `json:"outputTooLarge"`
	DurationMs     int64       `json:"durationMs"`
	Stdout         streamProof `json:"stdout"`
	Stderr         streamProof `json:"stderr"`
}

// The exit code of a command that was ended by its timeout, as coreutils' timeout reports it.
const exitTimedOut = 124

// runExec starts the command, relays its streams and ends with its record. If the client goes away before that, nobody
// can use the result: the command is killed.
func runExec(talk *conversation) error {
	var request execRequest
	if err := talk.header(&request); err != nil {
		return err
	}
	if request.TimeoutMs <= 0 || request.MaxOutputBytes <= 0 {
		return fail("BadRequest", "timeoutMs and maxOutputBytes must be positive")
	}
	prepared, err := prepareCommand(request)
	if err != nil {
		return err
	}
	run, err := startRun(talk, prepared, request.MaxOutputBytes)
	if err != nil {
		return err
	}
	record, err := run.supervise(time.Duration(request.TimeoutMs) * time.Millisecond)
	if err != nil {
		return err
	}
	if err := talk.writer.writeJSON(frameRecord, record); err != nil {
		return errors.Join(errClientLost, err)
	}
	run.client.awaitAck()
	return run.outliveBackground(talk)
}

// supervisedRun is one started command.
type supervisedRun struct {
	process        *os.Process
	started        time.Time
	client         *client
	budget         *outputBudget
	stdout, stderr *pump
	exited         chan struct{}
	pumpsEnded     chan struct{}
}

func startRun(talk *conversation, prepared command, maxOutput int64) (*supervisedRun, error) {
	pipes, err := openPipes()
	if err != nil {
		return nil, err
	}
	started := time.Now()
	process, err := prepared.start(pipes.stdinRead, pipes.stdoutWrite, pipes.stderrWrite)
	pipes.closeChildEnds()
	if err != nil {
		pipes.closeOurEnds()
		return nil, err
	}
	exited := make(chan struct{})
	budget := newOutputBudget(maxOutput)
	run := &supervisedRun{
		process:    process,
		started:    started,
		client:     newClient(),
		budget:     budget,
		stdout:     newPump(frameStdout, pipes.stdoutRead, talk.writer, budget, exited),
		stderr:     newPump(frameStderr, pipes.stderrRead, talk.writer, budget, exited),
		exited:     exited,
		pumpsEnded: make(chan struct{}, 2),
	}
	go run.client.listen(talk.frames)
	go run.client.feed(pipes.stdinWrite)
	go run.stdout.run(run.pumpsEnded)
	go run.stderr.run(run.pumpsEnded)
	return run, nil
}

func (r *supervisedRun) supervise(timeout time.Duration) (execRecord, error) {
	finished := make(chan *os.ProcessState, 1)
	failed := make(chan error, 1)
	go func() {
		state, err := r.process.Wait()
		if err != nil {
			failed <- err
			return
		}
		finished <- state
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	overflow, lost, expiry := r.budget.exceeded, r.client.lost, timer.C
	var record execRecord
	var state *os.ProcessState
	for state == nil {
		select {
		case state = <-finished:
		case err := <-failed:
			return record, err
		case <-expiry:
			expiry = nil
			record.TimedOut = true
			killSession(r.process.Pid)
		case <-overflow:
			overflow = nil
			killSession(r.process.Pid)
		case <-lost:
			killSession(r.process.Pid)
			return record, errClientLost
		}
	}
	record.DurationMs = time.Since(r.started).Milliseconds()
	close(r.exited)
	for range 2 {
		select {
		case <-r.pumpsEnded:
		case <-r.client.lost:
			killSession(r.process.Pid)
			return record, errClientLost
		}
	}
	if err := errors.Join(r.stdout.err, r.stderr.err); err != nil {
		killSession(r.process.Pid)
		return record, errors.Join(errClientLost, err)
	}
	record.OutputTooLarge = r.budget.reported.Load()
	if record.OutputTooLarge {
		killSession(r.process.Pid)
	}
	record.Stdout, record.Stderr = r.stdout.proof(), r.stderr.proof()
	record.ExitCode, record.Signal = exitOf(state, record.TimedOut)
	return record, nil
}

func exitOf(state *os.ProcessState, timedOut bool) (code, signal int) {
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		signal = int(status.Signal())
		code = 128 + signal
	} else {
		code = state.ExitCode()
	}
	if timedOut {
		code = exitTimedOut
	}
	return code, signal
}

// outliveBackground stays, without its own streams, while a background child still holds the command's output.
func (r *supervisedRun) outliveBackground(talk *conversation) error {
	if !r.stdout.open && !r.stderr.open {
		return nil
	}
	if err := talk.hangUp(); err != nil {
		return errors.Join(errClientLost, err)
	}
	ended := make(chan struct{}, 2)
	for _, stream := range []*pump{r.stdout, r.stderr} {
		go func() {
			stream.discardRest()
			ended <- struct{}{}
		}()
	}
	<-ended
	<-ended
	return nil
}

type commandPipes struct {
	stdinRead, stdinWrite, stdoutRead, stdoutWrite, stderrRead, stderrWrite *os.File
}

func openPipes() (commandPipes, error) {
	var p commandPipes
	var errs [3]error
	p.stdinRead, p.stdinWrite, errs[0] = os.Pipe()
	p.stdoutRead, p.stdoutWrite, errs[1] = os.Pipe()
	p.stderrRead, p.stderrWrite, errs[2] = os.Pipe()
	return p, errors.Join(errs[:]...)
}

func (p commandPipes) closeChildEnds() {
	p.stdinRead.Close()
	p.stdoutWrite.Close()
	p.stderrWrite.Close()
}

func (p commandPipes) closeOurEnds() {
	p.stdinWrite.Close()
	p.stdoutRead.Close()
	p.stderrRead.Close()
}
