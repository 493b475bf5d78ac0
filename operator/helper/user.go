package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// account is who a command runs as.
type account struct {
	uid, gid uint32
	groups   []uint32
	home     string
}

type passwdEntry struct {
	name     string
	uid, gid uint32
	home     string
}

type groupEntry struct {
	name    string
	gid     uint32
	members []string
}

// resolveUser reads `name`, `uid`, `name:group` or `uid:gid` as an engine would: supplementary groups come from
// /etc/group unless a group is given; a number without an entry is legal, a name without one is not.
func resolveUser(spec string, passwd []passwdEntry, groups []groupEntry) (account, error) {
	if spec == "" {
		spec = "0"
	}
	user, group, groupGiven := strings.Cut(spec, ":")
	who := account{home: "/"}
	name := ""
	if entry, found := findPasswd(passwd, user); found {
		who.uid, who.gid, who.home, name = entry.uid, entry.gid, entry.home, entry.name
	} else if number, ok := parseID(user); ok {
		who.uid = number
	} else {
		return account{}, fail("CommandNotStarted", "the image has no user %q", user)
	}
	if groupGiven && group != "" {
		gid, ok := findGroup(groups, group)
		if !ok {
			return account{}, fail("CommandNotStarted", "the image has no group %q", group)
		}
		who.gid = gid
		return who, nil
	}
	for _, entry := range groups {
		for _, member := range entry.members {
			if name != "" && member == name {
				who.groups = append(who.groups, entry.gid)
			}
		}
	}
	return who, nil
}

func findPasswd(entries []passwdEntry, user string) (passwdEntry, bool) {
	for _, entry := range entries {
		if entry.name == user {
			return entry, true
		}
	}
	if number, ok := parseID(user); ok {
		for _, entry := range entries {
			if entry.uid == number {
				return entry, true
			}
		}
	}
	return passwdEntry{}, false
}

func findGroup(entries []groupEntry, group string) (uint32, bool) {
	for _, entry := range entries {
		if entry.name == group {
			return entry.gid, true
		}
	}
	return parseID(group)
}

func parseID(text string) (uint32, bool) {
	number, err := strconv.ParseUint(text, 10, 31)
	return uint32(number), err == nil
}

// readPasswd skips lines it cannot read, as the C library does; a missing file has no entries.
func readPasswd(path string) []passwdEntry {
	var entries []passwdEntry
	for _, fields := range readColons(path, 6) {
		uid, uidOK := parseID(fields[2])
		gid, gidOK := parseID(fields[3])
		if uidOK && gidOK {
			entries = append(entries, passwdEntry{name: fields[0], uid: uid, gid: gid, home: fields[5]})
		}
	}
	return entries
}

func readGroups(path string) []groupEntry {
	var entries []groupEntry
	for _, fields := range readColons(path, 3) {
		if gid, ok := parseID(fields[2]); ok {
			entry := groupEntry{name: fields[0], gid: gid}
			if len(fields) > 3 {
				entry.members = strings.Split(fields[3], ",")
			}
			entries = append(entries, entry)
		}
	}
	return entries
}

func readColons(path string, atLeast int) [][]string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	var lines [][]string
	scanner := bufio.NewScanner(file)
	scanner.Buffer(make([]byte, 4096), 1<<20)
	for scanner.Scan() {
		fields := strings.Split(strings.TrimSpace(scanner.Text()), ":")
		if len(fields) >= atLeast {
			lines = append(lines, fields)
		}
	}
	return lines
}
