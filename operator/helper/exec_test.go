package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func shell(script string) execRequest {
	return execRequest{Command: []string{"/bin/sh", "-c", script}, TimeoutMs: 20_000, MaxOutputBytes: 64 << 20}
}

func execute(t *testing.T, request execRequest, stdin string) answer {
	t.Helper()
	client := talkTo(t, runExec)
	client.send(frameHeader, request)
	client.sendBytes(frameData, []byte(stdin))
	client.sendBytes(frameEnd, nil)
	return client.finish()
}

func TestTheRecordCarriesCodeStreamsAndTheirProof(t *testing.T) {
	got := execute(t, shell("cat; echo oops >&2; exit 7"), "hello")
	if got.record.ExitCode != 7 || got.record.Signal != 0 || got.record.TimedOut {
		t.Fatalf("%+v", got.record)
	}
	if got.stdout.String() != "hello" || got.stderr.String() != "oops\n" {
		t.Fatalf("%q %q", got.stdout.String(), got.stderr.String())
	}
	sum := sha256.Sum256([]byte("hello"))
	if got.record.Stdout != (streamProof{Bytes: 5, SHA256: hex.EncodeToString(sum[:])}) {
		t.Fatalf("%+v", got.record.Stdout)
	}
}

func TestADeathBySignalIs128PlusItsNumber(t *testing.T) {
	got := execute(t, shell("kill -SEGV $$"), "")
	if got.record.ExitCode != 139 || got.record.Signal != 11 {
		t.Fatalf("%+v", got.record)
	}
}

func TestATimeoutKillsTheWholeSessionAndKeepsWhatWasWritten(t *testing.T) {
	// An interactive shell gives its background job a process group of its own: only the session finds it.
	pidFile := filepath.Join(t.TempDir(), "pids")
	request := shell("set -m; sleep 1000 & echo $! >" + pidFile + "; set +m; sleep 1000 & echo $! >>" + pidFile + "; echo begun; wait")
	request.TimeoutMs = 300
	got := execute(t, request, "")
	if !got.record.TimedOut || got.record.ExitCode != 124 || got.record.Signal != 9 || got.stdout.String() != "begun\n" {
		t.Fatalf("%+v %q", got.record, got.stdout.String())
	}
	for _, pid := range readPids(t, pidFile) {
		if isAlive(pid) {
			t.Errorf("process %d survived", pid)
		}
	}
}

func TestABackgroundChildDoesNotHoldTheRecordBackAndLivesOn(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pids")
	got := execute(t, shell("sleep 1000 & echo $! >"+pidFile+"; echo done"), "")
	if got.record.ExitCode != 0 || got.stdout.String() != "done\n" {
		t.Fatalf("%+v %q", got.record, got.stdout.String())
	}
	for _, pid := range readPids(t, pidFile) {
		if !isAlive(pid) {
			t.Errorf("the background child %d was killed", pid)
		}
		killSession(sessionOf(t, pid))
	}
}

func TestEveryByteWrittenBeforeTheExitArrivesDespiteANoisyBackgroundChild(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pids")
	script := "head -c 3000000 /dev/zero; (while :; do echo noise; sleep 0.01; done) & echo $! >" + pidFile
	got := execute(t, shell(script), "")
	if zeros := bytes.Count(got.stdout.Bytes(), []byte{0}); zeros != 3_000_000 {
		t.Fatalf("%d of 3000000 bytes", zeros)
	}
	if int64(got.stdout.Len()) != got.record.Stdout.Bytes {
		t.Fatalf("%d sent, record says %d", got.stdout.Len(), got.record.Stdout.Bytes)
	}
	for _, pid := range readPids(t, pidFile) {
		killSession(sessionOf(t, pid))
	}
}

func TestTooMuchOutputEndsTheCommandAndIsSaid(t *testing.T) {
	request := shell("yes")
	request.MaxOutputBytes = 100_000
	got := execute(t, request, "")
	if !got.record.OutputTooLarge || got.record.Signal != 9 || got.stdout.Len() > 100_000 {
		t.Fatalf("%+v, %d bytes", got.record, got.stdout.Len())
	}
}

func TestAClientThatLeavesTakesItsCommandWithIt(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pids")
	client := talkTo(t, runExec)
	client.send(frameHeader, shell("echo $$ >"+pidFile+"; echo ready; sleep 1000"))
	if next, err := readFrame(client.answer); err != nil || next.kind != frameStdout {
		t.Fatalf("%v %v", next, err)
	}
	client.leave()
	if code := <-client.exit; code != 3 {
		t.Fatalf("exit code %d", code)
	}
	for _, pid := range readPids(t, pidFile) {
		if isAlive(pid) {
			t.Errorf("process %d survived", pid)
		}
	}
}

func TestACommandThatIgnoresItsStdinDoesNotBlock(t *testing.T) {
	got := execute(t, shell("exec 0<&-; echo fine"), strings.Repeat("x", 1<<20))
	if got.record.ExitCode != 0 || got.stdout.String() != "fine\n" {
		t.Fatalf("%+v", got.record)
	}
}

func TestACommandThatCannotStartIsAFailureAndNotAnExitCode(t *testing.T) {
	cases := map[string]execRequest{
		"empty":        {TimeoutMs: 1, MaxOutputBytes: 1},
		"absent":       {Command: []string{"no-such-program"}, TimeoutMs: 1, MaxOutputBytes: 1},
		"absent path":  {Command: []string{"/no/such"}, TimeoutMs: 1, MaxOutputBytes: 1},
		"a directory":  {Command: []string{"/tmp"}, TimeoutMs: 1, MaxOutputBytes: 1},
		"directory":    {Command: []string{"true"}, WorkingDir: "/no/such", TimeoutMs: 1, MaxOutputBytes: 1},
		"unknown user": {Command: []string{"true"}, User: "nobody-here", TimeoutMs: 1, MaxOutputBytes: 1},
	}
	for name, request := range cases {
		got := execute(t, request, "")
		if got.failure == nil || got.failure.Code != "CommandNotStarted" || got.failure.Message == "" {
			t.Errorf("%s: %+v", name, got.failure)
		}
	}
}

func TestAUserWhoMayNotEnterTheWorkingDirectoryIsToldSo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	// Not below t.TempDir(), which other users may not enter at all.
	closed, err := os.MkdirTemp("/tmp", "agentworlds-helper-closed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(closed) })
	request := shell("pwd")
	request.User, request.WorkingDir = "65534", closed
	asked := execute(t, request, "")
	want := "user \"65534\" may not enter the working directory " + strconv.Quote(closed)
	if asked.failure == nil || asked.failure.Code != "CommandNotStarted" || !strings.HasPrefix(asked.failure.Message, want) {
		t.Errorf("%+v", asked.failure)
	}
	t.Chdir(closed)
	request.WorkingDir = ""
	images := execute(t, request, "")
	want = "user \"65534\" may not enter the image's working directory " + strconv.Quote(closed)
	if images.failure == nil || !strings.HasPrefix(images.failure.Message, want) {
		t.Errorf("%+v", images.failure)
	}
	// A group that may enter: then it is the program that cannot be started, and it is named.
	if err := os.Chown(closed, 0, 4242); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o710); err != nil {
		t.Fatal(err)
	}
	request.User = "65534:4242"
	if entered := execute(t, request, ""); entered.stdout.String() != closed+"\n" {
		t.Errorf("%+v %q", entered.failure, entered.stdout.String())
	}
	request.Command = []string{"/etc/passwd"}
	program := execute(t, request, "")
	if program.failure == nil || program.failure.Message != "\"/etc/passwd\" cannot be started: permission denied" {
		t.Errorf("%+v", program.failure)
	}
}

func TestTheCommandIsALikelierVictimOfTheOomKillerThanItsSupervisor(t *testing.T) {
	before, _ := os.ReadFile(oomScoreFile)
	got := execute(t, shell("cat /proc/self/oom_score_adj"), "")
	if got.stdout.String() != "500\n" {
		t.Fatalf("%q", got.stdout.String())
	}
	if after, _ := os.ReadFile(oomScoreFile); !bytes.Equal(before, after) {
		t.Fatalf("the supervisor stays at %q", after)
	}
}

func TestTheEnvironmentIsTheImagesThenTheRequests(t *testing.T) {
	env := commandEnv([]string{"HOME=/root", "A=1", "B=2"}, account{uid: 1000, home: "/home/dev"}, "/root",
		map[string]string{"B": "request"})
	want := []string{"A=1", "B=request", "HOME=/home/dev", "PATH=" + defaultPath}
	if strings.Join(env, " ") != strings.Join(want, " ") {
		t.Fatalf("%v", env)
	}
	if kept := lookup(commandEnv([]string{"HOME=/opt"}, account{uid: 1000, home: "/home/dev"}, "/root", nil), "HOME"); kept != "/opt" {
		t.Fatalf("an explicit HOME became %q", kept)
	}
}

func readPids(t *testing.T, path string) []int {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, line := range strings.Fields(string(content)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		t.Fatal("no process was recorded")
	}
	return pids
}

// isAlive allows a killed process the moment its parent needs to collect it.
func isAlive(pid int) bool {
	for range 100 {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return false
		}
		if state, _, ok := parseStat(stat); !ok || state == 'Z' || state == 'X' {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

func sessionOf(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, session, ok := parseStat(stat)
	if !ok {
		t.Fatalf("unreadable %q", stat)
	}
	return session
}
