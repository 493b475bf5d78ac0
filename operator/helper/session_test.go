package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWhatTheSessionSaysHoldsForEveryLaterCommand(t *testing.T) {
	useSession(t, filepath.Join(t.TempDir(), "private/session.json"))
	client := talkTo(t, runSession)
	client.send(frameHeader, session{User: "4242:4343"})
	if got := client.finish(); got.failure != nil {
		t.Fatal(got.failure)
	}
	if got := execute(t, shell("id -u; id -g"), ""); got.stdout.String() != "4242\n4343\n" {
		t.Fatalf("%q", got.stdout.String())
	}
	if info, err := os.Stat(sessionFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
}

func TestWithoutASessionNothingRunsAsRootByAccident(t *testing.T) {
	useSession(t, filepath.Join(t.TempDir(), "absent.json"))
	if got := execute(t, shell("true"), ""); got.failure == nil || got.failure.Code != "CommandNotStarted" {
		t.Fatalf("%+v", got.failure)
	}
}

func useSession(t *testing.T, path string) {
	t.Helper()
	before := sessionFile
	sessionFile = path
	t.Cleanup(func() { sessionFile = before })
}
