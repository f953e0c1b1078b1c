package backup

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/tape"
)

// makeHome makes a home with a session that is open and one that is closed.
func makeHome(t *testing.T) string {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	put := func(name, text string) {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("config.toml", "queue_limit = 5\n")
	put("relay/relay.json", "{}")
	put("relay/identity.pem", "secret too")
	put("keys/me", "secret")
	put("daemon.log", "not in it")
	put("run/d.sock", "")
	for id, closed := range map[string]string{"aaaaaaaa": "null", "bbbbbbbb": `"2026-01-01T00:00:00Z"`} {
		put("sessions/"+id+"/spec.json", `{"id":"`+id+`","agent":"me","label":"`+id[:1]+`","closed_at":`+closed+`}`)
		put("sessions/"+id+"/checkpoint", `{"state":1}`)
		put("sessions/"+id+"/lock", "")
		put("sessions/"+id+"/cgroup", "/sys/fs/cgroup/conch-x")
		tp, err := tape.Open(filepath.Join(home, "sessions", id, "tape"), tape.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tp.Append(tape.Frame{Kind: tape.Stdout, Command: 1, Data: []byte("output of " + id)}); err != nil {
			t.Fatal(err)
		}
		tp.Close()
	}
	return home
}

// files is a home as a map.
func files(t *testing.T, home string) map[string]string {
	t.Helper()
	out := map[string]string{}
	filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		if !d.IsDir() {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			rel, _ := filepath.Rel(home, path)
			out[rel] = string(b)
		}
		return nil
	})
	return out
}

func TestRoundTrip(t *testing.T) {
	home := makeHome(t)
	for _, name := range []string{"b.tar", "b.tar.gz"} {
		path := filepath.Join(t.TempDir(), name)
		o := Options{Home: home, Version: "test", Sources: []Source{{"conch.db", func(w io.Writer) error { _, err := io.WriteString(w, "database"); return err }}}}
		s, err := Write(path, o, false)
		if err != nil || s.Open != 1 || s.Closed != 1 {
			t.Fatalf("%+v %v", s, err)
		}
		if fi, _ := os.Stat(path); fi.Mode().Perm() != 0o600 {
			t.Errorf("mode %v", fi.Mode())
		}
		if _, err := Write(path, o, false); !errors.Is(err, conch.InvalidRequest) {
			t.Errorf("an existing file was replaced: %v", err)
		}
		to := filepath.Join(t.TempDir(), "new")
		r, err := Restore(path, to, false)
		if err != nil || r.Open != 1 || r.Closed != 1 || r.Bytes != s.Bytes || r.Aside != "" {
			t.Fatalf("%+v %v", r, err)
		}
		want := files(t, home)
		for _, gone := range []string{"daemon.log", "run/d.sock", "sessions/aaaaaaaa/lock", "sessions/bbbbbbbb/lock", "sessions/aaaaaaaa/cgroup", "sessions/bbbbbbbb/cgroup"} {
			delete(want, gone)
		}
		want["conch.db"] = "database"
		got := files(t, to)
		if _, ok := got[RestoredFile]; !ok { // the daemon is to know
			t.Errorf("no %s", RestoredFile)
		}
		delete(got, RestoredFile)
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s: %q, want %q", name, got[name], text)
			}
		}
		if len(got) != len(want) {
			t.Errorf("restored %d files, want %d", len(got), len(want))
		}
		// Not into something; aside with force.
		if _, err := Restore(path, to, false); !errors.Is(err, conch.InvalidRequest) {
			t.Errorf("restored over something: %v", err)
		}
		r, err = Restore(path, to, true)
		if err != nil || r.Aside == "" {
			t.Errorf("%+v %v", r, err)
		}
		if b, _ := os.ReadFile(filepath.Join(r.Aside, "keys", "me")); string(b) != "secret" {
			t.Errorf("aside: %q", b)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(to), ".*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// An archive that is damaged anywhere is refused, and nothing is changed.
func TestDamage(t *testing.T) {
	home := makeHome(t)
	path := filepath.Join(t.TempDir(), "b.tar")
	if _, err := Write(path, Options{Home: home}, false); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	to := filepath.Join(dir, "home")
	bad := filepath.Join(dir, "bad.tar")
	try := func(what string, b []byte) {
		t.Helper()
		os.WriteFile(bad, b, 0o600)
		_, err := Restore(bad, to, false)
		if err == nil {
			// What stands between the files, or in the padding, is nobody's.
			want, got := files(t, home), files(t, to)
			for name, text := range got {
				if want[name] != text {
					t.Errorf("%s: restored with a wrong %s", what, name)
				}
			}
			os.RemoveAll(to)
			return
		}
		if conch.AsError(err).HintText == "" {
			t.Errorf("%s: no hint: %v", what, err)
		}
		if _, err := os.Stat(to); err == nil {
			t.Errorf("%s: something was restored", what)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
			t.Errorf("%s: left %v", what, left)
		}
	}
	refused := 0
	for off := 0; off < len(good); off += 97 {
		b := bytes.Clone(good)
		b[off] ^= 0x20
		try("changed", b)
		if _, err := os.Stat(to); err != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Error("nothing was ever refused")
	}
	for _, n := range []int{0, 1, 511, 512, 2000, len(good) / 2, bytes.LastIndexByte(good, '}')} {
		os.WriteFile(bad, good[:n], 0o600)
		if _, err := Restore(bad, to, false); err == nil {
			t.Errorf("cut at %d: restored", n)
			os.RemoveAll(to)
		}
	}
}

// archive makes one by hand.
func archive(t *testing.T, format int, entries ...*tar.Header) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	put := func(name string, v any) {
		b, _ := json.Marshal(v)
		w.WriteHeader(&tar.Header{Name: name, Size: int64(len(b)), Mode: 0o600})
		w.Write(b)
	}
	put(headerName, Header{Format: format, Version: "9", At: time.Now()})
	for _, h := range entries {
		w.WriteHeader(h)
	}
	put(manifestName, Manifest{})
	w.Close()
	return path
}

func TestForgery(t *testing.T) {
	for _, name := range []string{"../evil", "/etc/evil", "sessions/../../evil", "sessions/aaaaaaaa/../x", "keys/../../x", "keys/..", "lock", "sessions/aaaaaaaa/keeper.json", "run/x", "sessions/aaaaaaa./spec.json", "sessions/aaaa/aaa/spec.json", "keys/a b", "keys/a/b/c", "sessions/aaaaaaaa/tape/x.tape", "sessions/aaaaaaaa/tape/0000x001.tape"} {
		if allowed(name) {
			t.Errorf("%s is allowed", name)
		}
		to := filepath.Join(t.TempDir(), "h")
		if _, err := Restore(archive(t, 1, &tar.Header{Name: name, Typeflag: tar.TypeReg}), to, false); err == nil {
			t.Errorf("%s was restored", name)
		}
	}
	for _, h := range []*tar.Header{
		{Name: "config.toml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "config.toml", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		{Name: "keys", Typeflag: tar.TypeDir},
	} {
		if _, err := Restore(archive(t, 1, h), filepath.Join(t.TempDir(), "h"), false); !errors.Is(err, conch.Damaged) {
			t.Errorf("%s of type %c: %v", h.Name, h.Typeflag, err)
		}
	}
	if _, err := Restore(archive(t, Format+1), filepath.Join(t.TempDir(), "h"), false); !errors.Is(err, conch.VersionMismatch) {
		t.Error(err)
	}
}
