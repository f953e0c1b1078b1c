package agent

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
)

// TestMain makes the test binary a process that makes an agent, or assigns one,
// and may be killed on the way.
func TestMain(m *testing.M) {
	home := os.Getenv("AGENT_TEST_HOME")
	if home == "" {
		os.Exit(m.Run())
	}
	s, err := Open(home)
	if err == nil && os.Getenv("AGENT_TEST_ASSIGN") != "" {
		err = s.Assign("bob", conch.Assignment{Scope: conch.ScopeGlobal})
	} else if err == nil {
		_, err = s.New("bob", nil, nil)
	}
	if err != nil {
		fmt.Println(conch.AsError(err).Kind)
		os.Exit(1)
	}
	fmt.Println("made")
	os.Exit(0)
}

func child(t testing.TB, home string, env ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), "AGENT_TEST_HOME="+home), env...)
	return cmd
}

func open(t testing.TB, home string) *Store {
	t.Helper()
	s, err := Open(home)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func made(t testing.TB, s *Store, name, passphrase string) Info {
	t.Helper()
	info, err := s.New(name, []byte(passphrase), nil)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func want(t testing.TB, err error, kind conch.Kind, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%v, want %s", err, kind)
		return
	}
	text := err.Error() + " " + conch.AsError(err).HintText
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

// Addresses are those that the peers' code makes of the same seeds.
func TestAddress(t *testing.T) {
	var file struct {
		Identities []struct {
			Seed    string `json:"seed_hex"`
			Public  string `json:"ed25519_pub_hex"`
			Address string `json:"crypto_id_base58"`
		}
	}
	b, err := os.ReadFile("testdata/identities.json")
	if err == nil {
		err = json.Unmarshal(b, &file)
	}
	if err != nil || len(file.Identities) == 0 {
		t.Fatal(err, "no identities")
	}
	for _, id := range file.Identities {
		seed, _ := hex.DecodeString(id.Seed)
		k := keyFromSeed(seed)
		if k.Address() != id.Address || hex.EncodeToString(k.Public()) != id.Public {
			t.Errorf("seed %s: %s, want %s", id.Seed, k.Address(), id.Address)
		}
		public, err := ParseAddress(id.Address)
		if err != nil || !bytes.Equal(public, k.Public()) {
			t.Errorf("%s: %x, %v", id.Address, public, err)
		}
		if !ed25519.Verify(public, []byte("x"), k.Sign([]byte("x"))) {
			t.Error("a signature is not the address's")
		}
	}
	// Leading zero bytes are counted.
	zero := make(ed25519.PublicKey, 32)
	if a := Address(zero); a != strings.Repeat("1", 32) {
		t.Errorf("zero is %s", a)
	}
	for _, bad := range []string{"", "0", "l", strings.Repeat("1", 31), strings.Repeat("1", 33), strings.Repeat("z", 44), strings.Repeat("z", 1<<20), "a b", file.Identities[0].Address + "1", "é"} {
		if _, err := ParseAddress(bad); !errors.Is(err, conch.InvalidAgent) {
			t.Errorf("%.50q: %v", bad, err)
		}
	}
}

func FuzzBase58(f *testing.F) {
	f.Add([]byte{0, 0, 1, 255}, "11z")
	f.Fuzz(func(t *testing.T, b []byte, s string) {
		if len(b) <= 40 {
			if back, ok := decode58(encode58(b)); !ok || !bytes.Equal(back, b) {
				t.Errorf("%x became %x", b, back)
			}
		}
		if b, ok := decode58(s); ok && encode58(b) != s {
			t.Errorf("%q is %x is %q", s, b, encode58(b))
		}
	})
}

func TestNewAndOpenAgain(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	if s.Known("bob") || len(s.List()) != 0 {
		t.Error("an empty home has agents")
	}
	bob := made(t, s, "bob", "")
	amy := made(t, s, "amy", "open sesame")
	if bob.Protected || !amy.Protected || bob.Address == amy.Address {
		t.Errorf("%+v %+v", bob, amy)
	}
	for _, s := range []*Store{s, open(t, home)} {
		if names := s.Names(); len(names) != 2 || names[0] != "amy" || names[1] != "bob" {
			t.Errorf("names %v", names)
		}
		got, err := s.Get("amy")
		if err != nil || got.Address != amy.Address || !got.Protected || !got.CreatedAt.Equal(amy.CreatedAt) {
			t.Errorf("%+v, %v", got, err)
		}
		if name, ok := s.ByAddress(bob.Address); !ok || name != "bob" {
			t.Errorf("by address: %s", name)
		}
		if _, ok := s.ByAddress(""); ok {
			t.Error("an empty address is somebody's")
		}
		k, err := s.Key("bob")
		if err != nil || k.Address() != bob.Address {
			t.Errorf("%v, %v", k, err)
		}
		_, err = s.New("bob", nil, nil)
		want(t, err, conch.AgentExists, "bob")
		_, err = s.Get("carl")
		want(t, err, conch.AgentNotFound, "amy, bob", "conch agent new carl")
	}
	if fi, err := os.Stat(filepath.Join(home, "keys")); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("keys: %v, %v", fi.Mode(), err)
	}
	list, _ := filepath.Glob(filepath.Join(home, "keys", "*"))
	for _, path := range list {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, fi.Mode(), err)
		}
	}
	if len(list) != 2 {
		t.Errorf("%v", list)
	}
}

func TestNames(t *testing.T) {
	s := open(t, t.TempDir())
	for _, name := range []string{"", "-a", "A", "a_b", "a/b", "..", "a\n", strings.Repeat("a", 33), "é"} {
		_, err := s.New(name, nil, nil)
		want(t, err, conch.InvalidAgent)
		_, err = s.Get(name)
		want(t, err, conch.InvalidAgent)
	}
	_, err := s.New("main", nil, nil)
	want(t, err, conch.LabelTaken, "default session")
	_, err = s.New("build", nil, func(name string) error {
		if !s.Taken(name) {
			t.Error("the name is free for labels while it is asked for")
		}
		return conch.Errorf(conch.LabelTaken, "a session has it")
	})
	want(t, err, conch.LabelTaken, "a session has it")
	if s.Known("build") || s.Taken("build") {
		t.Error("a refused agent has its name")
	}
	if !s.Taken("me") || s.Taken("build:1") {
		t.Error("me is always an agent's, build:1 never")
	}
	made(t, s, "x"+strings.Repeat("-", 31), "")
}

func TestPassphrase(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	amy := made(t, s, "amy", "pässwörd")
	_, err := s.Key("amy")
	want(t, err, conch.AgentLocked, "amy")
	want(t, s.Unlock("amy", []byte("password")), conch.WrongPassphrase)
	want(t, s.Unlock("amy", nil), conch.AgentLocked)
	want(t, s.Unlock("eve", nil), conch.AgentNotFound)
	_, err = s.Export("amy", []byte("other"))
	want(t, err, conch.AgentLocked)
	if err := s.Unlock("amy", []byte("pässwörd")); err != nil {
		t.Fatal(err)
	}
	k, err := s.Key("amy")
	if err != nil || k.Address() != amy.Address {
		t.Fatalf("%v, %v", k, err)
	}
	seed := k.private.Seed()
	data, err := os.ReadFile(s.path("amy"))
	if err != nil || bytes.Contains(data, seed) || strings.Contains(string(data), base64.StdEncoding.EncodeToString(seed)) || strings.Contains(string(data), hex.EncodeToString(seed)) {
		t.Errorf("the sealed file holds the seed (%v)", err)
	}
	s.Lock("amy")
	_, err = s.Key("amy")
	want(t, err, conch.AgentLocked)
	_, err = s.New("long", bytes.Repeat([]byte("x"), maxPassphrase+1), nil)
	want(t, err, conch.TooLarge, "1024")
	if s.Known("long") {
		t.Error("a refused agent is there")
	}
	made(t, s, "bob", "")
	if err := s.Unlock("bob", nil); err != nil {
		t.Errorf("a key without a passphrase needs none: %v", err)
	}
}

// Whatever prints a key prints no secret.
func TestNoSecretShows(t *testing.T) {
	k, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	seed := k.private.Seed()
	text, _ := json.Marshal(map[string]any{"k": k})
	for _, shown := range []string{
		fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s %q %x %d", k, k, k, k, k, k, k), string(text), fmt.Sprintf("%+v", []*Key{k}),
	} {
		for _, secret := range []string{hex.EncodeToString(seed), base64.StdEncoding.EncodeToString(seed), fmt.Sprint(seed)[1:20]} {
			if strings.Contains(shown, secret) {
				t.Errorf("%s shows the seed", shown)
			}
		}
		if !strings.Contains(shown, k.Address()) && !strings.Contains(shown, "[") {
			t.Errorf("%s", shown)
		}
	}
	a, err := k.Derive("a", 32)
	b, err2 := k.Derive("b", 32)
	if err != nil || err2 != nil || bytes.Equal(a, b) || bytes.Equal(a, seed) {
		t.Error("derived keys are not apart")
	}
}

func TestExportImport(t *testing.T) {
	here, there := open(t, t.TempDir()), open(t, t.TempDir())
	bob, amy := made(t, here, "bob", ""), made(t, here, "amy", "sesame")
	export := func(name, passphrase string) []byte {
		t.Helper()
		data, err := here.Export(name, []byte(passphrase))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	got, err := there.Import(export("bob", ""), "", nil)
	if err != nil || got.Name != "bob" || got.Address != bob.Address || !got.CreatedAt.Equal(bob.CreatedAt) {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = there.Import(export("bob", ""), "", nil)
	want(t, err, conch.AgentExists, "bob exists")
	_, err = there.Import(export("bob", ""), "rob", nil)
	want(t, err, conch.AgentExists, "as agent bob")
	// Sealed stays sealed, under another name too.
	if got, err = there.Import(export("amy", ""), "anna", nil); err != nil || !got.Protected || got.Address != amy.Address {
		t.Errorf("%+v, %v", got, err)
	}
	if err := there.Unlock("anna", []byte("sesame")); err != nil {
		t.Error(err)
	}
	// A copy can be sealed that the original is not.
	third := open(t, t.TempDir())
	if got, err = third.Import(export("bob", "for the road"), "", nil); err != nil || !got.Protected {
		t.Errorf("%+v, %v", got, err)
	}
	if err := third.Unlock("bob", []byte("for the road")); err != nil {
		t.Error(err)
	}
	if k, err := third.Key("bob"); err != nil || k.Address() != bob.Address {
		t.Errorf("%v, %v", k, err)
	}
	_, err = there.Import(export("bob", ""), "no name", nil)
	want(t, err, conch.InvalidAgent)
	_, err = third.Import(export("amy", ""), "main", nil)
	want(t, err, conch.LabelTaken)
	_, err = third.Import(export("amy", ""), "", func(string) error { return conch.Errorf(conch.LabelTaken, "x") })
	want(t, err, conch.LabelTaken)
}

func TestForeignFiles(t *testing.T) {
	s := open(t, t.TempDir())
	made(t, s, "bob", "")
	made(t, s, "amy", "x")
	plain, _ := s.Export("bob", nil)
	locked, _ := s.Export("amy", nil)
	secret := regexpSeed(t, plain)
	for what, data := range map[string]string{
		"empty":          "",
		"not JSON":       "-----BEGIN OPENSSH PRIVATE KEY-----\n",
		"another object": `{"name":"bob"}`,
		"null":           "null",
		"cut":            string(plain[:len(plain)/2]),
		"more":           string(plain) + "{}",
		"huge":           strings.Repeat(" ", maxKeyFile) + string(plain),
		"no key":         strings.Replace(string(plain), `"seed"`, `"Name"`, 1),
		"unknown field":  strings.Replace(string(plain), `"seed"`, `"sed"`, 1),
		"bad name":       strings.Replace(string(plain), `"bob"`, `"../bob"`, 1),
		"bad address":    strings.Replace(string(plain), `"address": "`, `"address": "0`, 1),
		"another seed":   strings.Replace(string(plain), secret, base64.StdEncoding.EncodeToString(make([]byte, 32)), 1),
		"short seed":     strings.Replace(string(plain), secret, "AAAA", 1),
		"newer":          strings.Replace(string(plain), `"version": 1`, `"version": 2`, 1),
		"memory":         strings.Replace(string(locked), `"memory_kib": 65536`, `"memory_kib": 4000000000`, 1),
		"time":           strings.Replace(string(locked), `"time": 3`, `"time": 4000000`, 1),
		"threads":        strings.Replace(string(locked), `"threads": 1`, `"threads": 0`, 1),
		"kdf":            strings.Replace(string(locked), `argon2id`, `md5`, 1),
		"nonce":          strings.Replace(string(locked), `"nonce": "`, `"nonce": "AAAA`, 1),
		"both":           strings.Replace(string(locked), `"sealed"`, `"seed": "`+secret+`", "sealed"`, 1),
	} {
		to := open(t, t.TempDir())
		_, err := to.Import([]byte(data), "", nil)
		if !errors.Is(err, conch.InvalidKey) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if e := conch.AsError(err); strings.Contains(e.Message+e.HintText, secret) || e.HintText == "" {
			t.Errorf("%s: %s (%s)", what, e.Message, e.HintText)
		}
		if len(to.Names()) != 0 {
			t.Errorf("%s: %v was made", what, to.Names())
		}
	}
	// What a passphrase protects cannot be given another address.
	forged := strings.Replace(string(locked), mustAddress(t, s, "amy"), mustAddress(t, s, "bob"), 1)
	to := open(t, t.TempDir())
	if _, err := to.Import([]byte(forged), "", nil); err != nil {
		t.Fatal(err) // nobody can tell without the passphrase
	}
	want(t, to.Unlock("amy", []byte("x")), conch.WrongPassphrase)
}

func regexpSeed(t *testing.T, file []byte) string {
	t.Helper()
	var f keyFile
	if err := json.Unmarshal(file, &f); err != nil || len(f.Seed) != 32 {
		t.Fatal(err, len(f.Seed))
	}
	return base64.StdEncoding.EncodeToString(f.Seed)
}

func mustAddress(t *testing.T, s *Store, name string) string {
	t.Helper()
	info, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Address
}

func FuzzKeyFile(f *testing.F) {
	k, _ := newKey()
	file, _ := k.file(testTime, nil)
	file.Name = "bob"
	data, _ := file.encode()
	f.Add(data)
	f.Add([]byte(`{"format":"conch agent key","version":1,"name":"a","address":"1","sealed":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parseKeyFile(data)
		if err != nil {
			if !errors.Is(err, conch.InvalidKey) {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := file.encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseKeyFile(again); err != nil || back.Address != file.Address {
			t.Errorf("%v", err)
		}
	})
}

// A key that others could have read, that is damaged, or that is no plain file
// is not used. Its name stays taken, and the other agents work.
func TestUnusableKeys(t *testing.T) {
	for what, spoil := range map[string]func(path string) error{
		"readable":  func(p string) error { return os.Chmod(p, 0o640) },
		"directory": func(p string) error { return os.Chmod(filepath.Dir(p), 0o755) },
		"cut":       func(p string) error { return os.Truncate(p, 40) },
		"empty":     func(p string) error { return os.Truncate(p, 0) },
		"renamed":   func(p string) error { return os.Rename(p, filepath.Join(filepath.Dir(p), "rob.key")) },
		"link":      func(p string) error { return errors.Join(os.Rename(p, p+".x"), os.Symlink(p+".x", p)) },
		"fifo":      func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) },
		"dir":       func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
	} {
		t.Run(what, func(t *testing.T) {
			home := t.TempDir()
			s := open(t, home)
			made(t, s, "bob", "")
			if err := spoil(s.path("bob")); err != nil {
				t.Fatal(err)
			}
			name := "bob"
			if what == "renamed" {
				name = "rob"
			}
			s = open(t, home)
			if !s.Known(name) || s.List()[0].Err == nil || s.List()[0].Address != "" {
				t.Errorf("%+v", s.List())
			}
			_, err := s.Key(name)
			want(t, err, conch.InvalidKey)
			_, err = s.Export(name, nil)
			want(t, err, conch.InvalidKey)
			_, err = s.New(name, nil, nil)
			want(t, err, conch.AgentExists)
			_, err = s.New("amy", nil, nil)
			if what == "directory" {
				want(t, err, conch.InvalidKey, "chmod 700")
			} else if err != nil {
				t.Errorf("another agent: %v", err)
			}
		})
	}
}

// A file that was put there while the daemon runs is found.
func TestLateFile(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	made(t, open(t, home), "late", "")
	if !s.Known("late") || len(s.Names()) != 1 {
		t.Error("not found")
	}
}

// Of any number of processes and threads that make one agent, one does.
func TestRacingProcesses(t *testing.T) {
	home := t.TempDir()
	const n = 50
	results := make(chan string, 2*n)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			out, _ := child(t, home).Output()
			results <- strings.TrimSpace(string(out))
		})
	}
	s := open(t, home)
	for range n {
		wg.Go(func() {
			if _, err := s.New("bob", nil, nil); err != nil {
				results <- string(conch.AsError(err).Kind)
			} else {
				results <- "made"
			}
		})
	}
	wg.Wait()
	close(results)
	count := map[string]int{}
	for r := range results {
		count[r]++
	}
	if count["made"] != 1 || count["agent_exists"] != 2*n-1 {
		t.Errorf("%v", count)
	}
	if ents, _ := os.ReadDir(filepath.Join(home, "keys")); len(ents) != 1 {
		t.Errorf("left: %v", ents)
	}
	if _, err := open(t, home).Key("bob"); err != nil {
		t.Error(err)
	}
}

// Killed at any step, a process leaves an agent or none, never half of one, and
// the next owner removes what else it left.
func TestKilledWriting(t *testing.T) {
	for point, made := range map[string]bool{"agent.written": false, "agent.named": true} {
		t.Run(point, func(t *testing.T) {
			home := t.TempDir()
			killed(t, child(t, home, fault.Variable+"="+point))
			s := open(t, home)
			if err := s.Sweep(); err != nil {
				t.Error(err)
			}
			if s.Known("bob") != made {
				t.Errorf("known: %v", !made)
			}
			if ents, _ := os.ReadDir(filepath.Join(home, "keys")); (len(ents) == 1) != made || len(ents) > 1 {
				t.Errorf("left: %v", ents)
			}
			if made {
				if _, err := s.Key("bob"); err != nil {
					t.Error(err)
				}
			} else if _, err := s.New("bob", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("agent.assign-written", func(t *testing.T) {
		home := t.TempDir()
		s := open(t, home)
		made(t, s, "bob", "")
		made(t, s, "amy", "")
		if err := s.Assign("amy", conch.Assignment{Scope: conch.ScopeGlobal}); err != nil {
			t.Fatal(err)
		}
		killed(t, child(t, home, "AGENT_TEST_ASSIGN=1", fault.Variable+"=agent.assign-written"))
		if err := s.Sweep(); err != nil {
			t.Error(err)
		}
		a, err := s.Assignments()
		if err != nil || a.Global != "amy" {
			t.Errorf("%+v, %v", a, err)
		}
		if left, _ := filepath.Glob(filepath.Join(home, ".*")); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func killed(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("not killed: %v: %s", err, out)
	}
}

func TestSweepLeavesTheRest(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	if err := s.Sweep(); err != nil {
		t.Error(err)
	}
	made(t, s, "bob", "")
	if err := s.Sweep(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.path("bob")); errors.Is(err, fs.ErrNotExist) {
		t.Error("a key was swept away")
	}
}
