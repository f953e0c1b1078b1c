// Package sandbox is a box around a session's processes, made of the kernel's
// namespaces: what is not put into it is not there.
//
// Inside, the system's programs and settings can be read and not changed. The work
// directory can be changed. /tmp, /dev/shm and the home directory are new, empty, in
// memory, and go with the box. There is no network but a loopback of its own, no other
// process than the box's own, no terminal, key or queue of others, and no way to gain
// rights. Nothing else of the machine exists there: no other home, no /var, no /run, no
// conch home. A filter refuses the few calls that no namespace covers: unix
// sockets and set-uid files above all. Where the kernel has Landlock, rules that say the
// same bind every process as well, should a mount ever show more than it should.
//
// A Box is held by one process of ours, the first in its pid namespace, which does
// nothing but wait for its keeper's end. Its death, by whatever hand, is the death of
// all in the box. Processes are put into a box by [Box.ForkExec]; they are children of
// the caller like any others, so their ends, usage and stops are told to it by the
// kernel. Only what they orphan goes to the box's first process.
//
// The same is done for root and for others: a box has a user namespace with one user,
// who is the caller and has no capability.
//
// There is one way. Where the kernel does not allow it, Start says what is missing.
package sandbox

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/conchsh/conch"
)

// Word is what follows `conch keeper` for the process that holds a box.
const Word = "--sandbox"

// Config says what a box shows. All paths are absolute and without symbolic links.
type Config struct {
	Work string // can be changed
	Home string // is replaced by an empty one; may be empty
	// Run is the keeper's own directory with FIFOs and command files. The box sees
	// it, and can change what is in its directory Out only.
	Run string
	// Hidden are conch's own directories. Nothing of them but Run is there.
	Hidden []string
	Exe    string   // conch itself, for what the shell is to call; may be empty
	Read   []string // files and directories that can be read besides
	// Network leaves the machine's network in reach.
	Network bool
	// Name shows in the list of processes.
	Name string
}

// Out is the one directory in Run that a box can write to. What is in it may be
// anything: its reader must follow no link.
const Out = "w"

// system is what a box can read and never write. What is a link on this machine is one
// inside.
func system() []string {
	return []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/nix", "/gnu", "/snap", "/opt"}
}

// Check refuses a work directory in which a sandbox would protect nothing.
func (c Config) Check() error {
	refuse := func(format string, args ...any) *conch.Error {
		return conch.Errorf(conch.InvalidRequest, format, args...).
			Hint("--cwd DIR names the directory that the sandbox may change: one project, not a place that holds others")
	}
	for _, p := range append([]string{c.Work}, c.Read...) {
		if !filepath.IsAbs(p) || p != filepath.Clean(p) {
			return refuse("%q is no absolute path", p)
		}
		for _, h := range c.Hidden {
			if within(p, h) || within(h, p) {
				return refuse("%s cannot be in a sandbox: conch's own files are there", p)
			}
		}
		for _, d := range []string{"/proc", "/dev", "/sys"} {
			if p != "/dev" && within(p, d) && !strings.HasPrefix(p, "/dev/shm/") {
				return refuse("%s cannot be in a sandbox", p)
			}
		}
	}
	if slices.Contains(c.Read, c.Home) {
		return refuse("%s cannot be allowed: a sandbox has an empty home directory", c.Home).
			Hint("--sandbox-allow PATH shows what is in it: name the files and directories that are needed")
	}
	if c.Home != "" && within(c.Home, c.Work) {
		return refuse("%s cannot be a sandbox's work directory: your home directory is in it", c.Work)
	}
	// A directory that holds one of the box's own would have to be two things.
	for _, d := range append(system(), "/tmp", "/var/tmp", "/dev/shm", "/run", "/var") {
		if within(d, c.Work) {
			return refuse("%s cannot be a sandbox's work directory: it is the system's", c.Work)
		}
	}
	for _, d := range system() {
		if d != "/opt" && within(c.Work, d) {
			return refuse("%s cannot be a sandbox's work directory: it is in %s, which a sandbox must not change", c.Work, d)
		}
	}
	return nil
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// A place is something that is mounted into a box where it is outside.
type place struct {
	path string
	from string // "": path itself, of the machine
	read bool   // only
}

// places are in the order in which they are mounted: what is in another comes after it.
func (c Config) places() []place {
	list := []place{{path: c.Work}}
	for _, p := range c.Read {
		if p != c.Work { // which can be read already
			list = append(list, place{path: p, read: true})
		}
	}
	if c.Home != "" && c.Home != "/" {
		list = append(list, place{path: c.Home, from: scratch + "/home"})
	}
	slices.SortStableFunc(list, func(a, b place) int { return depth(a.path) - depth(b.path) })
	return list
}

func depth(path string) int { return strings.Count(path, "/") }

// scratch is where the memory of a box is mounted while it is being made.
const scratch = "/.scratch"
