package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

// A load is one agent sending numbers to another, each until it is acknowledged,
// and the other taking them.
type load struct {
	t     *testing.T
	from  *Agent
	to    *Agent
	acked atomic.Int64
	tries atomic.Int64

	mu   sync.Mutex
	seen map[int]int
	next int // the lowest that was not seen
	bad  []string
}

func (l *load) run() (stop func()) {
	l.seen = map[int]int{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	stopReading := consume(l.t, l.to, l.take)
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; {
			l.tries.Add(1)
			_, err := l.from.Publish(ctx, l.to.Address(), fmt.Sprintf("n%d", n), []byte(strconv.Itoa(n)), 0)
			if err == nil {
				n++
				l.acked.Store(int64(n))
				continue
			}
			if !errors.Is(err, conch.RelayUnreachable) && !errors.Is(err, conch.RelayRefused) && ctx.Err() == nil {
				l.t.Errorf("message %d: %v", n, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		// All that was acknowledged arrives.
		deadline := time.Now().Add(2 * time.Minute)
		for {
			l.mu.Lock()
			next := l.next
			l.mu.Unlock()
			if int64(next) >= l.acked.Load() {
				break
			}
			if time.Now().After(deadline) {
				l.t.Errorf("%d messages were acknowledged, %d arrived", l.acked.Load(), next)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		stopReading()
		l.mu.Lock()
		defer l.mu.Unlock()
		again := 0
		for _, n := range l.seen {
			again += n - 1
		}
		for _, b := range l.bad {
			l.t.Error(b)
		}
		l.t.Logf("%d acknowledged in %d tries, all arrived in order; %d came again", l.acked.Load(), l.tries.Load(), again)
	}
}

func (l *load) take(_ context.Context, batch []Message) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range batch {
		n, err := strconv.Atoi(string(m.Data))
		switch {
		case err != nil || m.From != l.from.Address():
			l.bad = append(l.bad, fmt.Sprintf("somebody else's message: %+v", m))
		case n > l.next && len(l.bad) < 10:
			l.bad = append(l.bad, fmt.Sprintf("%d came before %d", n, l.next))
		case n == l.next:
			l.next++
		}
		l.seen[n]++
	}
	return len(batch), nil
}

// progress waits until more messages were acknowledged.
func (l *load) progress(n int64) {
	l.t.Helper()
	want := l.acked.Load() + n
	deadline := time.Now().Add(time.Minute)
	for l.acked.Load() < want {
		if time.Now().After(deadline) {
			l.t.Fatalf("no progress: %d of %d, the sender's link is %+v", l.acked.Load(), want, l.from.Link())
		}
		time.Sleep(time.Millisecond)
	}
}

// TestKilledRelayKeepsWhatItAcknowledged ends the process that hosts the relay
// by SIGKILL, in the middle of what it does.
func TestKilledRelayKeepsWhatItAcknowledged(t *testing.T) {
	dir := t.TempDir()
	host, _ := listening(t, dir)
	guest := open(t, t.TempDir())
	if _, err := guest.Join(soon(t), inviteTo(t, host), nil); err != nil {
		t.Fatal(err)
	}
	host.Close()
	p := spawn(t, child{Relay: dir})
	l := &load{t: t, from: connect(t, guest, someone(t)), to: connect(t, guest, someone(t))}
	stop := l.run()
	for range kills(10) {
		l.progress(1)
		time.Sleep(rand.N(150 * time.Millisecond)) // anywhere in what it does
		p.end(syscall.SIGKILL)
		p = spawn(t, child{Relay: dir})
	}
	l.progress(10)
	stop()
}

// kills is how many; RELAY_KILLS says more for a long run.
func kills(n int) int {
	if s := os.Getenv("RELAY_KILLS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	return n
}

// A wire is a TCP connection's way from one server to another, which can be cut.
type wire struct {
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

func newWire(t testing.TB, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{l: l, target: target, open: map[net.Conn]bool{}}
	w.wg.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { w.carry(a) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.sever(true)
		w.wg.Wait()
	})
	return w
}

func (w *wire) carry(a net.Conn) {
	defer a.Close()
	b, err := net.Dial("tcp", w.target)
	if err != nil {
		return
	}
	defer b.Close()
	w.mu.Lock()
	if w.cut {
		w.mu.Unlock()
		return
	}
	w.open[a], w.open[b] = true, true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, a)
		delete(w.open, b)
	}()
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(a, b); a.Close(); b.Close() })
	io.Copy(b, a)
	a.Close()
	b.Close()
	wg.Wait()
}

func (w *wire) sever(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for c := range w.open {
			c.Close()
		}
	}
}

// freePorts gives ports that nobody listens on now.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// A trio is three NATS servers that are routed to each other.
type trio struct {
	t     testing.TB
	specs [3]child
	procs [3]*proc
	wires [3][3]*wire
}

func startTrio(t testing.TB) *trio {
	c := &trio{t: t}
	ports := freePorts(t, 6)
	for i := range 3 {
		c.specs[i] = child{Name: fmt.Sprintf("n%d", i), Dir: t.TempDir(), Port: ports[i], ClusterPort: ports[3+i]}
	}
	for i := range 3 {
		for j := range 3 {
			if i != j {
				c.wires[i][j] = newWire(t, fmt.Sprintf("127.0.0.1:%d", c.specs[j].ClusterPort))
				c.specs[i].Routes = append(c.specs[i].Routes, c.wires[i][j].l.Addr().String())
			}
		}
	}
	for i := range 3 {
		c.procs[i] = spawn(t, c.specs[i])
	}
	return c
}

func (c *trio) urls() string {
	return fmt.Sprintf("nats://127.0.0.1:%d,nats://127.0.0.1:%d,nats://127.0.0.1:%d", c.specs[0].Port, c.specs[1].Port, c.specs[2].Port)
}

func (c *trio) restart(i int, sig os.Signal) {
	c.procs[i].end(sig)
	c.procs[i] = spawn(c.t, c.specs[i])
}

// isolate cuts one server off from the other two; its clients still reach it.
func (c *trio) isolate(i int, cut bool) {
	for j := range 3 {
		if i != j {
			c.wires[i][j].sever(cut)
			c.wires[j][i].sever(cut)
		}
	}
}

// whole waits until every stream has all of its copies.
func (c *trio) whole(r *Relay) {
	c.t.Helper()
	eventuallyWithin(c.t, time.Minute, func() error {
		r.mu.Lock()
		m := r.member
		r.mu.Unlock()
		if m == nil || m.hub == nil {
			return fmt.Errorf("no hub")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		list := m.hub.js.ListStreams(ctx)
		n := 0
		for s := range list.Info() {
			n++
			if s.Cluster == nil || s.Cluster.Leader == "" || len(s.Cluster.Replicas) != 2 {
				return fmt.Errorf("%s has no leader, or too few copies: %+v", s.Config.Name, s.Cluster)
			}
			for _, p := range s.Cluster.Replicas {
				if !p.Current || p.Offline {
					return fmt.Errorf("a copy of %s is behind: %+v", s.Config.Name, p)
				}
			}
		}
		if list.Err() != nil || n == 0 {
			return fmt.Errorf("%d streams, %v", n, list.Err())
		}
		return nil
	})
}

// servers are those that something happens to, one after the other: one each,
// and all in a long run.
func servers(what string) []int {
	if os.Getenv("RELAY_KILLS") != "" {
		return []int{0, 1, 2}
	}
	return map[string][]int{"kill": {0}, "cut": {1}, "restart": {2}}[what]
}

func TestClusterLosesNothing(t *testing.T) {
	c := startTrio(t)
	one, two := open(t, t.TempDir()), open(t, t.TempDir())
	for _, r := range []*Relay{one, two} {
		eventuallyWithin(t, time.Minute, func() error { _, err := r.Join(soon(t), c.urls(), nil); return err })
		if s := r.Status(soon(t)); s.Mode != conch.RelayCluster || s.Replicas != 3 || !s.Connected {
			t.Fatalf("%+v", s)
		}
	}
	alice, bob := connect(t, one, someone(t)), connect(t, two, someone(t))
	if err := bob.PutBundle(soon(t), 1, []byte("b")); err != nil {
		t.Fatal(err)
	}
	c.whole(one)
	l := &load{t: t, from: alice, to: bob}
	stop := l.run()
	l.progress(50)
	for _, i := range servers("kill") {
		t.Logf("kill %d, after %d", i, l.acked.Load())
		c.procs[i].end(syscall.SIGKILL)
		l.progress(50) // two of three go on
		c.procs[i] = spawn(t, c.specs[i])
		c.whole(one)
	}
	for _, i := range servers("cut") {
		t.Logf("cut off %d, after %d", i, l.acked.Load())
		c.isolate(i, true)
		l.progress(50)
		c.isolate(i, false)
		c.whole(one)
	}
	for _, i := range servers("restart") {
		t.Logf("restart %d, after %d", i, l.acked.Load())
		c.restart(i, syscall.SIGTERM)
		l.progress(50)
		c.whole(one)
	}
	stop()
	eventuallyWithin(t, time.Minute, func() error {
		serial, _, err := alice.Bundle(soon(t), bob.Address())
		if err == nil && serial != 1 {
			err = fmt.Errorf("bundle %d", serial)
		}
		return err
	})
}
