package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
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
	if int(status.Uid) == uid && int(status.Gid) == gid {
		return nil
	}
	return os.Lchown(path, uid, gid)
}

func (t writeTarget) replace(talk *conversation) (proof fileProof, err error) {
	directory := filepath.Dir(t.path)
	temporary := filepath.Join(directory, ".agentworlds-put-"+rand.Text())
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fileProof{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreAbsent(os.Remove(temporary)))
		}
	}()
	proof, err = receiveContent(talk, file)
	if err == nil {
		// The owner first: changing it clears the setuid bits.
		err = own(temporary, t.uid, t.gid)
	}
	if err == nil {
		err = syscall.Fchmod(int(file.Fd()), t.mode)
	}
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fileProof{}, err
	}
	if err = os.Rename(temporary, t.path); err != nil {
		return fileProof{}, err
	}
	return proof, syncDirectory(directory)
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
