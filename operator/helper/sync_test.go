package main

import "testing"

func TestASyncAnswersOnlyWhenTheFilesystemHasTakenWhatWasWritten(t *testing.T) {
	client := talkTo(t, runSync)
	client.send(frameHeader, struct{}{})
	if got := client.finish(); got.failure != nil {
		t.Fatalf("%+v", got.failure)
	}
}

func TestASyncOfNothingIsAFailure(t *testing.T) {
	if err := syncFilesystem("/does/not/exist"); err == nil {
		t.Fatal("no error")
	}
}
