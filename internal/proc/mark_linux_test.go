package proc

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMarkHoldsItsParts(t *testing.T) {
	for _, c := range [][2]uint32{{0, 0}, {1, 2}, {0xffffffff, maxCommand}, {0xdeadbeef, 0x1234567}} {
		m := MakeMark(c[0], c[1])
		if !m.Valid() || m.Session() != c[0] || m.Command() != c[1] {
			t.Errorf("%x: %v %x %x", c, m, m.Session(), m.Command())
		}
		if uint64(m) >= 1<<63 || uint64(m) < 1e18 {
			t.Errorf("%x: limit %d could take effect or overflow", c, uint64(m))
		}
	}
	if MakeMark(1, maxCommand+2) != MakeMark(1, 1) {
		t.Error("a command past 28 bits reaches into the session")
	}
	for _, v := range []Mark{0, 1000, unix.RLIM_INFINITY, 1 << 63} {
		if v.Valid() {
			t.Errorf("%x is taken for a mark", uint64(v))
		}
	}
}

func TestMarkIsKept(t *testing.T) {
	for i, c := range []struct{ name, script string }{
		{"exec", `exec sh -c 'echo $$; exec sleep 100'`},
		{"subshell", `(echo $BASHPID; sleep 100)`},
		{"env -i", `env -i /bin/sh -c 'echo $$; exec /bin/sleep 100'`},
		{"setsid", `setsid -f sh -c 'echo $$; exec sleep 100'`},
		{"nohup", `nohup setsid -f sh -c 'echo $$; exec sleep 100' </dev/null`},
		{"double fork", `( ( sh -c 'echo $$; exec sleep 100' & ) & )`},
		{"python daemon", `python3 -c '
import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.write(1, b"%d\n" % os.getpid())
os.execve("/bin/sleep", ["sleep", "100"], {})'`},
		{"perl", `perl -e '$|=1; exit if fork; print "$$\n"; %ENV=(); sleep 100'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := MakeMark(0xc0ac4000+uint32(os.Getpid()), uint32(i))
			p := start(t, m, "bash", "-c", c.script)
			id := p.pid(t)
			if got, ok := MarkOf(id.PID); !ok || got != m {
				t.Errorf("mark %v, want %v", got, m)
			}
			if got, ok := markFromLimits(id.PID); !ok || got != m {
				t.Errorf("mark by /proc %v, want %v", got, m)
			}
			find := func() []ID { return Scan(func(got Mark) bool { return got == m }) }
			if !slices.Contains(find(), id) {
				t.Errorf("%v is not in %v", id, find())
			}
			if r := End(t.Context(), find, ladder); !r.Verified || r.Processes == 0 {
				t.Errorf("%+v", r)
			}
			if id.Alive() {
				t.Error("alive after the end")
			}
		})
	}
}

func TestMarkIsChanged(t *testing.T) {
	p := bash(t, `echo ready; while read -r line; do eval "$line"; done`)
	p.line(t)
	if m, ok := MarkOf(p.PID); ok {
		t.Errorf("unmarked: %v", m)
	}
	if m, ok := markFromLimits(p.PID); ok {
		t.Errorf("unmarked: %v", m)
	}
	for _, m := range []Mark{MakeMark(5, 5), MakeMark(5, 4), MakeMark(9, 6), MakeMark(1, 1)} {
		if err := SetMark(p.PID, m); err != nil {
			t.Fatal(err)
		}
		if got, ok := MarkOf(p.PID); !ok || got != m {
			t.Errorf("%v, want %v", got, m)
		}
	}
	if err := SetMark(p.PID, 0); err != nil {
		t.Fatal(err)
	}
	if m, ok := MarkOf(p.PID); ok {
		t.Errorf("unmarked: %v", m)
	}
	if err := SetMark(p.PID, 77); err == nil {
		t.Error("a number without the tag was set")
	}
}

func TestMarkUnderAHardLimit(t *testing.T) {
	p := bash(t, `echo ready; read -r _; sleep 100 & echo $!; wait`)
	p.line(t)
	if err := unix.Prlimit(p.PID, unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: 1e6, Max: 1e6}, nil); err != nil {
		t.Fatal(err)
	}
	m := MakeMark(3, 4)
	if err := SetMark(p.PID, m); err != nil {
		t.Fatal(err)
	}
	p.in.WriteString("go\n")
	kid := p.pid(t)
	if got, ok := MarkOf(kid.PID); !ok || got != m {
		t.Errorf("%v, want %v", got, m)
	}
	if got, ok := markFromLimits(kid.PID); !ok || got != m {
		t.Errorf("%v, want %v", got, m)
	}
	if err := unix.Prlimit(p.PID, rlimitLocks, &unix.Rlimit{Cur: 1e6, Max: 1e6}, nil); err != nil {
		t.Fatal(err)
	}
	if err := SetMark(p.PID, m); err == nil {
		t.Error("a mark was set above both hard limits")
	}
	if err := SetMark(1<<22+1, m); err == nil {
		t.Error("no process was marked")
	}
}
