package sandbox

import (
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	base := Config{Home: "/home/u", Hidden: []string{"/home/u/.local/state/conch", "/dev/shm/conch-1-x"}}
	for work, why := range map[string]string{
		"/home/u/src":                     "",
		"/opt/app":                        "",
		"/srv/x":                          "",
		"/tmp/x":                          "",
		"/dev/shm/x":                      "",
		"":                                "absolute",
		"x":                               "absolute",
		"/a/../etc":                       "absolute",
		"/":                               "conch's own",
		"/home":                           "conch's own",
		"/home/u":                         "conch's own",
		"/home/u/.local":                  "conch's own",
		"/home/u/.local/state/conch":      "conch's own",
		"/home/u/.local/state/conch/keys": "conch's own",
		"/dev/shm/conch-1-x/y":            "conch's own",
		"/etc":                            "the system's",
		"/etc/x":                          "must not change",
		"/usr/local/src":                  "must not change",
		"/opt":                            "the system's",
		"/tmp":                            "the system's",
		"/var":                            "the system's",
		"/proc/1":                         "cannot be",
		"/sys/x":                          "cannot be",
		"/dev/pts":                        "cannot be",
	} {
		c := base
		c.Work = work
		err := c.Check()
		if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
			t.Errorf("%q: %v, want %q", work, err, why)
		}
	}
	base.Work, base.Hidden = "/home", []string{"/x"}
	if err := base.Check(); err == nil || !strings.Contains(err.Error(), "your home") {
		t.Errorf("above the home: %v", err)
	}
}

// What is in another place is mounted after it.
func TestPlaces(t *testing.T) {
	c := Config{Work: "/home/u/a/b", Home: "/home/u", Read: []string{"/home/u/a", "/home"}}
	var got []string
	for _, p := range c.places() {
		got = append(got, p.path)
	}
	if want := []string{"/home", "/home/u", "/home/u/a", "/home/u/a/b"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
