package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// command is a request made ready to start.
type command struct {
	program   string
	arguments []string
	env       []string
	dir       string
	// Whether the request named dir; otherwise it is the image's.
	dirAsked bool
	who      account
	// As it was asked for, a name or a number; empty is root.
	user string
}

// prepareCommand decides everything that can be decided before a process exists.
func prepareCommand(request execRequest) (command, error) {
	if len(request.Command) == 0 || request.Command[0] == "" {
		return command{}, fail("CommandNotStarted", "the command is empty")
	}
	told, err := readSession()
	if err != nil {
		return command{}, err
	}
	passwd := readPasswd("/etc/passwd")
	spec := request.User
	if spec == "" {
		spec = told.User
	}
	who, err := resolveUser(spec, passwd, readGroups("/etc/group"))
	if err != nil {
		return command{}, err
	}
	env := commandEnv(os.Environ(), who, rootHome(passwd), request.Env)
	dir, err := workingDir(request.WorkingDir)
	if err != nil {
		return command{}, err
	}
	program, err := findProgram(request.Command[0], lookup(env, "PATH"), dir)
	if err != nil {
		return command{}, err
	}
	return command{
		program: program, arguments: request.Command, env: env,
		dir: dir, dirAsked: request.WorkingDir != "", who: who, user: spec,
	}, nil
}

// commandEnv is the image's environment, then the request's. The engine started us as root, so a HOME that is
// root's is the runtime's default and not a wish: it becomes the user's own.
func commandEnv(inherited []string, who account, rootHome string, requested map[string]string) []string {
	values := map[string]string{}
	for _, entry := range inherited {
		if key, value, found := strings.Cut(entry, "="); found {
			values[key] = value
		}
	}
	home, given := values["HOME"]
	if !given || home == "" || (who.uid != 0 && home == rootHome) {
		values["HOME"] = who.home
	}
	if values["PATH"] == "" {
		values["PATH"] = defaultPath
	}
	maps.Copy(values, requested)
	env := make([]string, 0, len(values))
	for key, value := range values {
		env = append(env, key+"="+value)
	}
	slices.Sort(env)
	return env
}

func rootHome(passwd []passwdEntry) string {
	if root, found := findPasswd(passwd, "0"); found {
		return root.home
	}
	return "/"
}

func lookup(env []string, key string) string {
	for _, entry := range env {
		if name, value, _ := strings.Cut(entry, "="); name == key {
			return value
		}
	}
	return ""
}

// workingDir is the requested directory, or the one the engine started us in: the image's.
func workingDir(requested string) (string, error) {
	if requested == "" {
		here, err := os.Getwd()
		if err != nil {
			return "/", nil
		}
		return here, nil
	}
	if !filepath.IsAbs(requested) {
		return "", fail("CommandNotStarted", "the working directory %q is not absolute", requested)
	}
	info, err := os.Stat(requested)
	if err != nil {
		return "", fail("CommandNotStarted", "the working directory %q cannot be used: %v", requested, reason(err))
	}
	if !info.IsDir() {
		return "", fail("CommandNotStarted", "the working directory %q is not a directory", requested)
	}
	return requested, nil
}

// findProgram searches the command's own PATH, not ours, and relative to the command's directory.
func findProgram(name, path, dir string) (string, error) {
	absolute := func(candidate string) string {
		if filepath.IsAbs(candidate) {
			return candidate
		}
		return filepath.Join(dir, candidate)
	}
	if strings.Contains(name, "/") {
		return absolute(name), nil
	}
	for _, entry := range strings.Split(path, ":") {
		candidate := absolute(filepath.Join(entry, name))
		info, err := os.Stat(candidate)
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", fail("CommandNotStarted", "%q is not in PATH (%s)", name, path)
}

// start makes the process: a session of its own, the user's identity, and a higher chance to be chosen by the OOM
// killer than PID 1 or this supervisor (measured: without it a fork storm takes the container with it).
func (c command) start(stdin, stdout, stderr *os.File) (*os.Process, error) {
	restore := raiseOomScore()
	defer restore()
	process, err := os.StartProcess(c.program, c.arguments, &os.ProcAttr{
		Dir:   c.dir,
		Env:   c.env,
		Files: []*os.File{stdin, stdout, stderr},
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Pdeathsig:  syscall.SIGKILL,
			Credential: c.credential(),
		},
	})
	if err != nil {
		return nil, c.notStarted(err)
	}
	return process, nil
}

// notStarted names what the kernel refused: fork, chdir and exec share one error, which carries the program's path.
func (c command) notStarted(err error) error {
	if !errors.Is(err, syscall.EACCES) || mayEnter(c.dir, c.credential()) {
		return fail("CommandNotStarted", "%q cannot be started: %v", c.arguments[0], reason(err))
	}
	whose := "the image's working directory"
	if c.dirAsked {
		whose = "the working directory"
	}
	return fail("CommandNotStarted",
		"user %q may not enter %s %q: name another workingDir, one that this user may enter, as / is", c.userName(), whose, c.dir)
}

func (c command) userName() string {
	if c.user == "" {
		return "root"
	}
	return c.user
}

// mayEnter asks the kernel, whose answer knows access lists too: a thread of its own takes the user's identity and dies with it.
func mayEnter(dir string, who *syscall.Credential) bool {
	answer := make(chan error, 1)
	go func() {
		// Never unlocked, so that no other goroutine gets a thread with somebody's identity.
		runtime.LockOSThread()
		if who != nil {
			if err := becomeHere(*who); err != nil {
				answer <- nil
				return
			}
		}
		var info syscall.Stat_t
		answer <- syscall.Stat(dir+"/.", &info)
	}()
	return <-answer != syscall.EACCES
}

// becomeHere gives files to the user's eyes in the calling thread only (setfsuid(2) also drops root's right to pass anywhere).
func becomeHere(who syscall.Credential) error {
	groups := unsafe.Pointer(nil)
	if len(who.Groups) > 0 {
		groups = unsafe.Pointer(&who.Groups[0])
	}
	if _, _, err := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(who.Groups)), uintptr(groups), 0); err != 0 {
		return err
	}
	// Neither of them reports a failure; what they return is the identity before.
	syscall.RawSyscall(syscall.SYS_SETFSGID, uintptr(who.Gid), 0, 0)
	syscall.RawSyscall(syscall.SYS_SETFSUID, uintptr(who.Uid), 0, 0)
	return nil
}

// credential is nil when we already are that user and may not change groups.
func (c command) credential() *syscall.Credential {
	if os.Geteuid() != 0 && uint32(os.Geteuid()) == c.who.uid {
		return nil
	}
	return &syscall.Credential{Uid: c.who.uid, Gid: c.who.gid, Groups: c.who.groups}
}

const oomScoreFile = "/proc/self/oom_score_adj"

// raiseOomScore lets the next child inherit 500; lowering it again to where it was needs no privilege.
func raiseOomScore() (restore func()) {
	before, err := os.ReadFile(oomScoreFile)
	if err != nil {
		return func() {}
	}
	if os.WriteFile(oomScoreFile, []byte("500"), 0) != nil {
		return func() {}
	}
	return func() {
		if err := os.WriteFile(oomScoreFile, before, 0); err != nil {
			// The supervisor then is as likely a victim as its command: worse, not wrong.
			os.Stderr.WriteString("agentworlds-helper: oom_score_adj stays raised: " + err.Error() + "\n")
		}
	}
}
