// Package fakekeeper is a keeper without a shell, for tests of what is around
// one. It keeps the contract the daemon relies on (lock, record, control
// socket, tape, shutdown) and runs each command as a child of its own.
//
// A test's TestMain calls Main first; the test binary is then the Exe that
// sessions are started with.
package fakekeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/session"
	"github.com/conchsh/conch/internal/sock"
	"github.com/conchsh/conch/internal/tape"
)

// Main runs a keeper and exits if the program was started as one.
func Main() {
	if len(os.Args) != 2 || os.Args[1] != "keeper" {
		return
	}
	var order struct {
		Dir string
		Env []string
	}
	if json.NewDecoder(os.Stdin).Decode(&order) != nil {
		os.Exit(0) // nobody's
	}
	os.Clearenv()
	for _, kv := range order.Env {
		name, value, _ := strings.Cut(kv, "=")
		os.Setenv(name, value)
	}
	if err := run(order.Dir); err != nil {
		json.NewEncoder(os.Stdout).Encode(conch.AsError(err).Body())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

type keeper struct {
	spec session.Spec
	dir  string
	mark uint32
	quit chan struct{}

	mu   sync.Mutex
	last uint32
	tape *tape.Tape
}

func run(dir string) error {
	var spec session.Spec
	b, err := os.ReadFile(filepath.Join(dir, "spec.json"))
	if err == nil {
		err = json.Unmarshal(b, &spec)
	}
	if err != nil {
		return err
	}
	if why := spec.Env["FAKE_FAIL"]; why != "" {
		if why == "die" {
			os.Exit(3)
		}
		return conch.Errorf(conch.ShellFailed, "%s", why)
	}
	lock, err := session.TryLock(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	home := filepath.Dir(filepath.Dir(dir))
	path, err := sock.Path(home, spec.ID+".sock")
	if err != nil {
		return err
	}
	l, err := sock.Listen(path)
	if err != nil {
		return err
	}
	defer l.Close()
	rundir := filepath.Join(home, "run", spec.ID+".d")
	if err := os.MkdirAll(rundir, 0o700); err != nil {
		return err
	}
	k := &keeper{spec: spec, dir: dir, mark: uint32(os.Getpid()), quit: make(chan struct{})}
	if k.tape, err = tape.Open(filepath.Join(dir, "tape"), tape.Options{}); err != nil {
		return err
	}
	r := k.tape.NewReader(tape.Cursor{})
	if x, err := history.Scan(r, spec.ID, spec.Label); err == nil {
		k.last = x.Last()
	}
	r.Close()
	self := proc.Self()
	err = session.WriteJSON(filepath.Join(dir, "keeper.json"), session.Keeper{
		PID: self.PID, Start: self.Start, Boot: proc.BootID(), Socket: path, RunDir: rundir,
		Mark: k.mark, Version: "fake", Protocol: conch.ProtocolVersion,
	})
	if err != nil {
		return err
	}
	handed := &handed{conns: make(chan net.Conn), done: make(chan struct{}), addr: l.Addr()}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					conn, err := sock.Receive(c)
					if err != nil {
						return
					}
					handed.conns <- conn
				}
			}()
		}
	}()
	fmt.Println("ready")
	os.Stdout.Close()
	srv := &http.Server{Handler: k}
	go srv.Serve(handed)
	<-k.quit
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	srv.Shutdown(ctx)
	return k.tape.Close()
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	p := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/v1/sessions/"), "/", 3)
	verb := ""
	if len(p) == 3 {
		verb = p[2]
	}
	switch verb {
	case "":
		cwd := k.spec.Cwd
		json.NewEncoder(w).Encode(conch.SessionInfo{
			Agent: k.spec.Agent, Label: k.spec.Label, ID: k.spec.ID, Live: true,
			KeeperPID: os.Getpid(), Cwd: cwd, StartedAt: k.spec.CreatedAt,
		})
	case "environ": // of the keeper itself, not part of the real one's API
		json.NewEncoder(w).Encode(os.Environ())
	case "exec":
		k.exec(w, r)
	case "shutdown":
		if k.spec.Env["FAKE_DEAF"] != "" {
			return
		}
		rep := proc.End(r.Context(), func() []proc.ID {
			return proc.Scan(func(m proc.Mark) bool { return m.Session() == k.mark })
		}, []proc.Step{{Signal: syscall.SIGKILL, Wait: 2 * time.Second}})
		json.NewEncoder(w).Encode(map[string]any{"ok": true, "processes": rep.Processes, "verified": rep.Verified})
		close(k.quit)
	default:
		http.NotFound(w, r)
	}
}

// exec runs a command in a process session of its own, where only its mark
// tells whose it is. The header is flushed when it has started.
func (k *keeper) exec(w http.ResponseWriter, r *http.Request) {
	var req conch.ExecRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	k.mu.Lock()
	k.last++
	n := k.last
	id := conch.NewCommandID(k.spec.ID, n)
	start, _ := json.Marshal(history.Start{Command: req.Command, CommandID: id, Session: k.spec.Label})
	k.tape.Append(tape.Frame{Command: n, Kind: tape.Start, Data: start})
	cmd := exec.Command("/bin/sh", "-c", req.Command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout = writer{k.tape, n, tape.Stdout}
	cmd.Stderr = writer{k.tape, n, tape.Stderr}
	proc.SetMark(os.Getpid(), proc.MakeMark(k.mark, n))
	err := cmd.Start()
	proc.SetMark(os.Getpid(), 0)
	k.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Conch-Command-Id", string(id))
	http.NewResponseController(w).Flush()
	cmd.Wait()
	code := cmd.ProcessState.ExitCode()
	res := conch.Result{Session: k.spec.Label, CommandID: id, ExitCode: &code}
	exit, _ := json.Marshal(history.Exit{Result: res})
	k.tape.Append(tape.Frame{Command: n, Kind: tape.Exit, Data: exit})
	json.NewEncoder(w).Encode(res)
}

type writer struct {
	t    *tape.Tape
	n    uint32
	kind tape.Kind
}

func (w writer) Write(p []byte) (int, error) {
	if _, err := w.t.Append(tape.Frame{Command: w.n, Kind: w.kind, Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// handed is a listener of connections that were handed over.
type handed struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, errors.New("closed")
	}
}

func (h *handed) Close() error   { h.once.Do(func() { close(h.done) }); return nil }
func (h *handed) Addr() net.Addr { return h.addr }
