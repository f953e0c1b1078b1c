package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// The test binary is also what is killed: a process that hosts a relay, or one
// server of a cluster.
const childVariable = "RELAY_TEST_CHILD"

type child struct {
	Relay string // the directory of a relay to host

	Name, Dir         string // of a NATS server
	Port, ClusterPort int
	Routes            []string
}

func TestMain(m *testing.M) {
	if s := os.Getenv(childVariable); s != "" {
		var c child
		if err := json.Unmarshal([]byte(s), &c); err != nil {
			panic(err)
		}
		c.main()
		return
	}
	os.Exit(m.Run())
}

// main runs until stdin ends, so that no child outlives its test.
func (c child) main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if c.Relay != "" {
		r := New(Options{Dir: c.Relay})
		defer r.Close()
		if err := r.Start(ctx); err != nil {
			panic(err)
		}
	} else {
		s, err := server.NewServer(c.options())
		if err != nil {
			panic(err)
		}
		s.Start()
		defer s.Shutdown()
	}
	fmt.Println("ready")
	<-ctx.Done()
}

func (c child) options() *server.Options {
	o := &server.Options{
		ServerName: c.Name, Host: "127.0.0.1", Port: c.Port, NoSigs: true, NoLog: true, MaxPayload: MaxMessage + 64<<10,
		JetStream: true, StoreDir: c.Dir, SyncAlways: true, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 64 << 30,
		// Only the routes that are given, so that a test can cut them.
		Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: c.ClusterPort, NoAdvertise: true, PoolSize: -1},
	}
	for _, r := range c.Routes {
		u, err := url.Parse("nats://" + r)
		if err != nil {
			panic(err)
		}
		o.Routes = append(o.Routes, u)
	}
	return o
}

// A proc is a running child.
type proc struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.Closer
}

func spawn(t testing.TB, c child) *proc {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(b))
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &proc{t, cmd, in}
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return p
}

// end sends a signal and waits.
func (p *proc) end(sig os.Signal) {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Signal(sig)
		p.cmd.Wait()
		p.in.Close()
	}
}
