package main

import (
	"fmt"
	"testing"
)

func TestAUserIsResolvedAsAnEngineWould(t *testing.T) {
	passwd := []passwdEntry{{name: "root", home: "/root"}, {name: "dev", uid: 1000, gid: 1001, home: "/home/dev"}}
	groups := []groupEntry{{"root", 0, nil}, {"dev", 1001, nil}, {"wheel", 10, []string{"dev", "ops"}}}
	cases := []struct{ spec, want string }{
		{"", "0:0 [] /root"},
		{"dev", "1000:1001 [10] /home/dev"},
		{"1000", "1000:1001 [10] /home/dev"},
		{"dev:wheel", "1000:10 [] /home/dev"},
		{"1000:5", "1000:5 [] /home/dev"},
		{"4242", "4242:0 [] /"},
		{"4242:4343", "4242:4343 [] /"},
	}
	for _, c := range cases {
		got, err := resolveUser(c.spec, passwd, groups)
		if text := fmt.Sprintf("%d:%d %v %s", got.uid, got.gid, got.groups, got.home); err != nil || text != c.want {
			t.Errorf("%q: %s %v, want %s", c.spec, text, err, c.want)
		}
	}
	for _, unknown := range []string{"nobody", "dev:nogroup", "-1"} {
		if _, err := resolveUser(unknown, passwd, groups); err == nil {
			t.Errorf("%q was accepted", unknown)
		}
	}
}

func TestAProcessNameCannotForgeItsSession(t *testing.T) {
	state, session, ok := parseStat([]byte("42 (a) Z 1 1 7 (b)) S 1 42 43 0 -1"))
	if !ok || state != 'S' || session != 43 {
		t.Fatalf("%c %d %v", state, session, ok)
	}
}
