package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"
)

type putRequest struct {
	// Path is base64 in JSON: a name is bytes, not text.
	Path []byte `json:"path"`
	// Permission bits; absent: those of the replaced file, else 0644.
	Mode *uint32 `json:"mode"`
	// Owner of a new file; absent: the session's user. A replaced file keeps its owner unless they are given.
	UID *uint32 `json:"uid"`
	GID *uint32 `json:"gid"`
}

const (
	defaultFileMode = 0o644
	parentMode      = 0o755
	permissionBits  = 0o7777
)

// runPut replaces or creates a file in one step: a reader sees the old bytes or the new ones, and a client that goes
// away in the middle leaves the old ones.
func runPut(talk *conversation) error {
	var request putRequest
	if err := talk.header(&request); err != nil {
		return err
	}
	path, err := checkPath(request.Path)
	if err != nil {
		return err
	}
	target, err := planWrite(path, request)
	if err != nil {
		return fileFailure(path, err)
	}
	proof, err := target.replace(talk)
	if err != nil {
		return fileFailure(path, err)
	}
	if err := talk.writer.writeJSON(frameRecord, proof); err != nil {
		return errors.Join(errClientLost, err)
	}
	talk.awaitAck()
	return nil
}

// writeTarget is where the bytes go and what the file will look like.
type writeTarget struct {
	path     string
	mode     uint32
	uid, gid int
}

func planWrite(path string, request putRequest) (writeTarget, error) {
	told, err := readSession()
	if err != nil {
		return writeTarget{}, err
	}
	owner, err := resolveUser(told.User, readPasswd("/etc/passwd"), readGroups("/etc/group"))
	if err != nil {
		return writeTarget{}, err
	}
	plan := writeTarget{path: path, mode: defaultFileMode, uid: int(owner.uid), gid: int(owner.gid)}
	if err := makeParents(filepath.Dir(path), plan.uid, plan.gid); err != nil {
		return writeTarget{}, err
	}
	// A link is followed, so that it stays one; the directory it leads to must exist.
	resolved, err := filepath.EvalSymlinks(path)
	switch {
	case err == nil:
		plan.path = resolved
		var status syscall.Stat_t
		if err := syscall.Stat(resolved, &status); err != nil {
			return writeTarget{}, err
		}
		if status.Mode&syscall.S_IFMT != syscall.S_IFREG {
			return writeTarget{}, fail("NotAFile", "%q exists and is not a regular file", path)
		}
		plan.mode, plan.uid, plan.gid = status.Mode&permissionBits, int(status.Uid), int(status.Gid)
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return writeTarget{}, fail("FileRefused", "%q is a link that leads nowhere", path)
		}
		parent, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return writeTarget{}, err
		}
		plan.path = filepath.Join(parent, filepath.Base(path))
	default:
		return writeTarget{}, err
	}
	if request.Mode != nil {
		plan.mode = *request.Mode & permissionBits
	}
	if request.UID != nil {
		plan.uid = int(*request.UID)
	}
	if request.GID != nil {
		plan.gid = int(*request.GID)
	}
	return plan, checkTree(plan.path)
}

// makeParents creates what is missing and gives it to the session's user; what exists stays as it is.
func makeParents(directory string, uid, gid int) error {
	info, err := os.Stat(directory)
	if err == nil {
		if !info.IsDir() {
			return fail("NotAFile", "%q is not a directory", directory)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeParents(filepath.Dir(directory), uid, gid); err != nil {
		return err
	}
	if err := os.Mkdir(directory, parentMode); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return own(directory, uid, gid)
}

// own changes the owner where that is needed, so that a helper without privilege can write its own files.
func own(path string, uid, gid int) error {
	var status syscall.Stat_t
	if err := syscall.Lstat(path, &status); err != nil {
		return err
	}
	if belongsTo(status, uid, gid) {
		return nil
	}
	return os.Lchown(path, uid, gid)
}

func belongsTo(status syscall.Stat_t, uid, gid int) bool {
	return int(status.Uid) == uid && int(status.Gid) == gid
}

func (t writeTarget) replace(talk *conversation) (proof fileProof, err error) {
	directory := filepath.Dir(t.path)
	fresh, err := openFresh(directory)
	if err != nil {
		return fileProof{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreAbsent(os.Remove(fresh.name)))
		}
	}()
	proof, err = receiveContent(talk, fresh.file)
	if err == nil {
		// The owner first: changing it clears the setuid bits.
		err = fresh.own(t.uid, t.gid)
	}
	if err == nil {
		err = syscall.Fchmod(int(fresh.file.Fd()), t.mode)
	}
	if err == nil {
		err = fresh.file.Sync()
	}
	if err == nil {
		err = fresh.giveName()
	}
	if closeErr := fresh.file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fileProof{}, err
	}
	if err = os.Rename(fresh.name, t.path); err != nil {
		return fileProof{}, err
	}
	return proof, syncDirectory(directory)
}

// freshFile is written beside what it will replace. It has no name until it is whole, so that a version taken in the
// middle of a long write does not hold half a file, which nobody would ever remove.
type freshFile struct {
	file  *os.File
	name  string
	named bool
}

// openTemporary is Linux's O_TMPFILE, which Go's syscall package leaves out.
const openTemporary = 0o20000000 | syscall.O_DIRECTORY

func openFresh(directory string) (freshFile, error) {
	name := filepath.Join(directory, ".agentworlds-put-"+rand.Text())
	file, err := os.OpenFile(directory, os.O_WRONLY|openTemporary, 0o600)
	if err == nil {
		return freshFile{file: file, name: name}, nil
	}
	// Before Linux 6.1 overlayfs has no files without a name, and some other filesystems have none today.
	file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return freshFile{file: file, name: name, named: true}, err
}

func (f freshFile) own(uid, gid int) error {
	var status syscall.Stat_t
	if err := syscall.Fstat(int(f.file.Fd()), &status); err != nil || belongsTo(status, uid, gid) {
		return err
	}
	return f.file.Chown(uid, gid)
}

func (f freshFile) giveName() error {
	if f.named {
		return nil
	}
	return link(fmt.Sprintf("/proc/self/fd/%d", f.file.Fd()), f.name)
}

// link is linkat(2) that follows the link it is given: how a file without a name gets one.
func link(from, to string) error {
	source, err := syscall.BytePtrFromString(from)
	if err != nil {
		return err
	}
	target, err := syscall.BytePtrFromString(to)
	if err != nil {
		return err
	}
	const atFdCwd, atSymlinkFollow = -100, 0x400
	at := atFdCwd
	_, _, errno := syscall.Syscall6(syscall.SYS_LINKAT, uintptr(at), uintptr(unsafe.Pointer(source)),
		uintptr(at), uintptr(unsafe.Pointer(target)), atSymlinkFollow, 0)
	if errno != 0 {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: errno}
	}
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	defer directory.Close()
	return directory.Sync()
}

// receiveContent writes the client's bytes and checks them against the client's own count and digest.
func receiveContent(talk *conversation, file *os.File) (fileProof, error) {
	sum := sha256.New()
	var length int64
	for {
		next, err := readFrame(talk.frames)
		if err != nil {
			return fileProof{}, errors.Join(errClientLost, err)
		}
		switch next.kind {
		case frameData:
			if _, err := file.Write(next.payload); err != nil {
				return fileProof{}, err
			}
			sum.Write(next.payload)
			length += int64(len(next.payload))
		case frameEnd:
			var promised fileProof
			if err := json.Unmarshal(next.payload, &promised); err != nil {
				return fileProof{}, fail("BadRequest", "the end of the content is not valid: %v", err)
			}
			got := fileProof{Length: length, SHA256: hex.EncodeToString(sum.Sum(nil))}
			if got != promised {
				return fileProof{}, fail("FileRefused", "the content arrived damaged: %d of %d bytes", length, promised.Length)
			}
			return got, nil
		default:
			return fileProof{}, fail("BadRequest", "unexpected frame of type %q in the content", next.kind)
		}
	}
}
