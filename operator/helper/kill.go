package main

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// killSession ends a command's process group and whatever else still belongs to its session. A process may fork while
// we look, so it looks until nobody is left; a process that made a session of its own is on purpose left alone.
func killSession(leader int) {
	const attempts = 200
	for range attempts {
		// ESRCH means that the group is empty already; the scan below decides.
		_ = syscall.Kill(-leader, syscall.SIGKILL)
		alive := sessionMembers(leader)
		if len(alive) == 0 {
			return
		}
		for _, pid := range alive {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// sessionMembers lists the living processes of a session; zombies are not alive.
func sessionMembers(session int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var members []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		state, sid, ok := parseStat(stat)
		if ok && sid == session && state != 'Z' && state != 'X' {
			members = append(members, pid)
		}
	}
	return members
}

// parseStat reads state and session from /proc/<pid>/stat. The command's name may hold spaces and parentheses, so the
// fields are counted from the last one.
func parseStat(stat []byte) (state byte, session int, ok bool) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 4 {
		return 0, 0, false
	}
	session, err := strconv.Atoi(string(fields[3]))
	return fields[0][0], session, err == nil
}
