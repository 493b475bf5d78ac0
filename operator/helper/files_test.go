package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func put(t *testing.T, request putRequest, content []byte) answer {
	t.Helper()
	client := talkTo(t, runPut)
	client.send(frameHeader, request)
	client.sendBytes(frameData, content)
	sum := sha256.Sum256(content)
	client.send(frameEnd, fileProof{Length: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
	return client.finish()
}

func get(t *testing.T, path string) answer {
	t.Helper()
	client := talkTo(t, runGet)
	client.send(frameHeader, getRequest{Path: []byte(path)})
	return client.finish()
}

func TestAFileReadsBackAsItWasPutUnderAnyName(t *testing.T) {
	directory := t.TempDir()
	for _, name := range []string{"plain", "with space", "new\nline", "\xff\xfe", "-rf", "ü%00", strings.Repeat("n", 255)} {
		path := filepath.Join(directory, "a/b", name)
		content := append([]byte{0, 1, 255}, name...)
		if got := put(t, putRequest{Path: []byte(path)}, content); got.failure != nil {
			t.Fatalf("%q: %v", name, got.failure)
		}
		got := get(t, path)
		if got.failure != nil || !bytes.Equal(got.data.Bytes(), content) || got.info.Size != int64(len(content)) || got.info.Mode != 0o644 {
			t.Fatalf("%q: %+v", name, got.info)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(directory, "a/b/.agentworlds*")); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
}

func TestAReplacedFileKeepsModeAndOwnerUnlessTheyAreGiven(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 4321, 1234); err != nil {
		t.Skip("changing owners needs root")
	}
	if err := os.Chmod(path, 0o750|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	put(t, putRequest{Path: []byte(path)}, []byte("new"))
	var status syscall.Stat_t
	if err := syscall.Stat(path, &status); err != nil {
		t.Fatal(err)
	}
	if status.Mode&permissionBits != 0o4750 || status.Uid != 4321 || status.Gid != 1234 {
		t.Fatalf("%o %d:%d", status.Mode, status.Uid, status.Gid)
	}
	mode := uint32(0o640)
	put(t, putRequest{Path: []byte(path), Mode: &mode}, []byte("newer"))
	if err := syscall.Stat(path, &status); err != nil || status.Mode&permissionBits != 0o640 {
		t.Fatalf("%o %v", status.Mode, err)
	}
}

func TestALinkIsWrittenThrough(t *testing.T) {
	directory := t.TempDir()
	target, link := filepath.Join(directory, "target"), filepath.Join(directory, "link")
	if err := os.WriteFile(target, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	put(t, putRequest{Path: []byte(link)}, []byte("new"))
	if content, _ := os.ReadFile(target); string(content) != "new" {
		t.Fatalf("%q", content)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Fatal("the link was replaced")
	}
}

func TestAClientThatLeavesMidwayLeavesTheOldBytes(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "file")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	client := talkTo(t, runPut)
	client.send(frameHeader, putRequest{Path: []byte(path)})
	client.sendBytes(frameData, []byte("half"))
	client.leave()
	if code := <-client.exit; code != 3 {
		t.Fatalf("exit code %d", code)
	}
	entries, err := os.ReadDir(directory)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v %v", entries, err)
	}
	if content, _ := os.ReadFile(path); string(content) != "old" {
		t.Fatalf("%q", content)
	}
}

func TestAFileThatIsNotWholeYetHasNoName(t *testing.T) {
	directory := t.TempDir()
	if probe, err := os.OpenFile(directory, os.O_WRONLY|openTemporary, 0o600); err != nil {
		t.Skipf("this filesystem has no files without a name: %v", err)
	} else {
		probe.Close()
	}
	path := filepath.Join(directory, "file")
	client := talkTo(t, runPut)
	client.send(frameHeader, putRequest{Path: []byte(path)})
	// More than a pipe holds: sent means that the helper is reading it.
	content := bytes.Repeat([]byte("x"), 300_000)
	client.sendBytes(frameData, content)
	if entries, err := os.ReadDir(directory); err != nil || len(entries) > 0 {
		t.Fatalf("%v %v", entries, err)
	}
	sum := sha256.Sum256(content)
	client.send(frameEnd, fileProof{Length: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
	if got := client.finish(); got.failure != nil {
		t.Fatal(got.failure)
	}
	if got := get(t, path); !bytes.Equal(got.data.Bytes(), content) {
		t.Fatalf("%d bytes", got.data.Len())
	}
}

func TestDamagedContentIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	client := talkTo(t, runPut)
	client.send(frameHeader, putRequest{Path: []byte(path)})
	client.sendBytes(frameData, []byte("content"))
	client.send(frameEnd, fileProof{Length: 7, SHA256: strings.Repeat("0", 64)})
	if got := client.finish(); got.failure == nil || got.failure.Code != "FileRefused" {
		t.Fatalf("%+v", got.failure)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Fatal("the file exists")
	}
}

func TestPathsThatAreNotTheSessionsOrNotFilesAreRefusedByCode(t *testing.T) {
	directory := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(directory, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/status", filepath.Join(directory, "sneaky")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(directory, "dangling")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ path, put, get string }{
		{"relative", "FileRefused", "FileRefused"},
		{"", "FileRefused", "FileRefused"},
		{"/a\x00b", "FileRefused", "FileRefused"},
		{"/proc/sys/kernel/hostname", "FileRefused", "FileRefused"},
		{"/tmp/../proc/1/environ", "FileRefused", "FileRefused"},
		{mountPoint + "/agentworlds-helper", "FileRefused", "FileRefused"},
		{"/dev/null", "FileRefused", "FileRefused"},
		{directory, "NotAFile", "NotAFile"},
		{directory + "/", "NotAFile", "NotAFile"},
		{directory + "/.", "NotAFile", "NotAFile"},
		{directory + "/fifo", "NotAFile", "NotAFile"},
		{directory + "/file/below", "NotAFile", "NotAFile"},
		{directory + "/sneaky", "FileRefused", "FileRefused"},
		{directory + "/dangling", "FileRefused", "FileNotFound"},
	}
	for _, c := range cases {
		if got := put(t, putRequest{Path: []byte(c.path)}, []byte("x")); got.failure == nil || got.failure.Code != c.put {
			t.Errorf("put %q: %+v, want %s", c.path, got.failure, c.put)
		}
		if got := get(t, c.path); got.failure == nil || got.failure.Code != c.get {
			t.Errorf("get %q: %+v, want %s", c.path, got.failure, c.get)
		}
	}
	if got := get(t, directory+"/absent"); got.failure == nil || got.failure.Code != "FileNotFound" {
		t.Errorf("absent: %+v", got.failure)
	}
}
