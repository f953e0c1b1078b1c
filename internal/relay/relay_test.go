package relay

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/agent"
)

// me is an identity as internal/agent's keys are.
type me struct{ key ed25519.PrivateKey }

func someone(t testing.TB) me {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return me{key}
}

func (m me) Address() string         { return agent.Address(m.key.Public().(ed25519.PublicKey)) }
func (m me) Sign(text []byte) []byte { return ed25519.Sign(m.key, text) }
func (m me) Derive(purpose string, n int) ([]byte, error) {
	return hkdf.Key(sha256.New, m.key.Seed(), nil, purpose, n)
}

func open(t testing.TB, dir string) *Relay {
	t.Helper()
	r := New(Options{Dir: dir, Log: logTo(t)})
	t.Cleanup(r.Close)
	return r
}

func logTo(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

const patience = 20 * time.Second

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// connect gives an agent whose link is up.
func connect(t testing.TB, r *Relay, id Identity) *Agent {
	t.Helper()
	a, err := r.Connect(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	await(t, a, func(l Link) bool { return l.Connected })
	return a
}

func await(t testing.TB, a *Agent, ok func(Link) bool) {
	t.Helper()
	eventually(t, func() error {
		if l := a.Link(); !ok(l) {
			return fmt.Errorf("the link is %+v", l)
		}
		return nil
	})
}

func eventually(t testing.TB, f func() error) {
	t.Helper()
	eventuallyWithin(t, patience, f)
}

func eventuallyWithin(t testing.TB, d time.Duration, f func() error) {
	t.Helper()
	deadline := time.Now().Add(d)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func wantKind(t testing.TB, err error, k conch.Kind) {
	t.Helper()
	if !errors.Is(err, k) {
		t.Fatalf("the error is %v, want %s", err, k)
	}
}

func publish(t testing.TB, a *Agent, to *Agent, id, text string) {
	t.Helper()
	if dup, err := a.Publish(soon(t), to.Address(), id, []byte(text), 0); err != nil || dup {
		t.Fatalf("publish %s: duplicate %v, %v", id, dup, err)
	}
}

// A reader takes all that comes.
type reader struct {
	mu   sync.Mutex
	list []Message
}

func (r *reader) take(_ context.Context, batch []Message) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, batch...)
	return len(batch), nil
}

func (r *reader) texts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for _, m := range r.list {
		list = append(list, string(m.Data))
	}
	return list
}

func consume(t testing.TB, a *Agent, take Taker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Consume(ctx, take)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func wantTexts(t testing.TB, r *reader, want ...string) {
	t.Helper()
	eventually(t, func() error {
		if got := r.texts(); strings.Join(got, "|") != strings.Join(want, "|") {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

func TestMailGoesFromOneToTheOther(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	alice, bob := connect(t, r, someone(t)), connect(t, r, someone(t))

	publish(t, alice, bob, "1", "one")
	publish(t, alice, bob, "2", "two")
	if dup, err := alice.Publish(soon(t), bob.Address(), "1", []byte("other"), 0); err != nil || !dup {
		t.Errorf("the same id again: duplicate %v, %v", dup, err)
	}
	// Another's id is another message: nobody can use up mine.
	publish(t, bob, bob, "1", "own")

	var got reader
	stop := consume(t, bob, got.take)
	wantTexts(t, &got, "one", "two", "own")
	if m := got.list[0]; m.From != alice.Address() || m.ID != "1" || m.Seq != 1 || m.Deliveries != 1 || time.Since(m.Time) > time.Hour {
		t.Errorf("the first message is %+v", m)
	}
	// Waited for, then more at once.
	publish(t, alice, bob, "3", "three")
	wantTexts(t, &got, "one", "two", "own", "three")
	wantKind(t, bob.Consume(soon(t), got.take), conch.AlreadyRunning)
	stop()

	_, err := alice.Publish(soon(t), someone(t).Address(), "1", []byte("x"), 0)
	wantKind(t, err, conch.MailboxNotFound)
	_, err = alice.Publish(soon(t), "nobody.>", "1", []byte("x"), 0)
	wantKind(t, err, conch.MailboxNotFound)
	_, err = alice.Publish(soon(t), bob.Address(), "a.b", []byte("x"), 0)
	wantKind(t, err, conch.InvalidRequest)
	_, err = alice.Publish(soon(t), bob.Address(), "9", make([]byte, MaxMessage+1), 0)
	wantKind(t, err, conch.TooLarge)
	if _, err := alice.Publish(soon(t), bob.Address(), "big", make([]byte, MaxMessage), 0); err != nil {
		t.Errorf("a message of the largest size: %v", err)
	}
	if _, err = r.Connect(bob.id, nil); !errors.Is(err, conch.AlreadyRunning) {
		t.Errorf("a second connection: %v", err)
	}
}

func TestWhatIsNotTakenComesAgainInOrder(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	alice, bob := connect(t, r, someone(t)), connect(t, r, someone(t))
	for i := range 6 {
		publish(t, alice, bob, fmt.Sprint(i), fmt.Sprint(i))
	}
	var got reader
	refusals := 0
	take := func(ctx context.Context, batch []Message) (int, error) {
		if len(batch) > 1 && refusals < 3 {
			refusals++
			got.take(ctx, batch[:1])
			return 1, errors.New("no room")
		}
		return got.take(ctx, batch)
	}
	stop := consume(t, bob, take)
	wantTexts(t, &got, "0", "1", "2", "3", "4", "5")
	stop()

	// Taken and not acknowledged: it comes again, and what was acknowledged not,
	// to a home that begins anew too.
	publish(t, alice, bob, "6", "6")
	publish(t, alice, bob, "7", "7")
	seen := make(chan int, 10)
	stop = consume(t, bob, func(ctx context.Context, batch []Message) (int, error) {
		seen <- len(batch)
		<-ctx.Done()
		return 0, ctx.Err()
	})
	<-seen
	stop()
	id := bob.id
	r.Close()
	r = open(t, dir)
	bob = connect(t, r, id)
	var again reader
	consume(t, bob, again.take)
	wantTexts(t, &again, "6", "7")
	// What was acknowledged is removed in the end.
	eventually(t, func() error {
		if s := r.Status(soon(t)); s.Messages != 0 || s.Mailboxes != 2 {
			return fmt.Errorf("%d messages in %d mailboxes", s.Messages, s.Mailboxes)
		}
		return nil
	})
}

func TestFullMailboxRefusesAndKeeps(t *testing.T) {
	r := New(Options{Dir: t.TempDir(), limits: &limits{bytes: 64 << 10, msgs: 8, senderBytes: 16 << 10, senderMsgs: 4}})
	t.Cleanup(r.Close)
	alice, bob, carol := connect(t, r, someone(t)), connect(t, r, someone(t)), connect(t, r, someone(t))
	var want []string
	for i := range 4 {
		publish(t, alice, bob, fmt.Sprint(i), "a")
		want = append(want, "a")
	}
	_, err := alice.Publish(soon(t), bob.Address(), "4", []byte("a"), 0)
	wantKind(t, err, conch.QuotaReached)
	for i := range 4 {
		publish(t, carol, bob, fmt.Sprint(i), "c")
		want = append(want, "c")
	}
	_, err = bob.Publish(soon(t), bob.Address(), "1", []byte("b"), 0)
	wantKind(t, err, conch.MailboxFull)

	var got reader
	consume(t, bob, got.take)
	wantTexts(t, &got, want...)
	// Refused, it goes later under the same id.
	eventually(t, func() error { _, err := alice.Publish(soon(t), bob.Address(), "4", []byte("later"), 0); return err })
	wantTexts(t, &got, append(want, "later")...)

	// By size too: one sender may not fill what is for all.
	half := make([]byte, 9<<10)
	dave := connect(t, r, someone(t))
	if _, err := alice.Publish(soon(t), dave.Address(), "x1", half, 0); err != nil {
		t.Fatal(err)
	}
	_, err = alice.Publish(soon(t), dave.Address(), "x2", half, 0)
	wantKind(t, err, conch.QuotaReached)
	publish(t, carol, dave, "x", "still room")
}

func TestMessageExpires(t *testing.T) {
	r := open(t, t.TempDir())
	alice, bob := connect(t, r, someone(t)), connect(t, r, someone(t))
	if _, err := alice.Publish(soon(t), bob.Address(), "1", []byte("short"), time.Second); err != nil {
		t.Fatal(err)
	}
	publish(t, alice, bob, "2", "long")
	eventually(t, func() error {
		if s := r.Status(soon(t)); s.Messages != 1 {
			return fmt.Errorf("%d messages", s.Messages)
		}
		return nil
	})
	var got reader
	consume(t, bob, got.take)
	wantTexts(t, &got, "long")
}

func TestOrderOfConcurrentSends(t *testing.T) {
	r := open(t, t.TempDir())
	alice, bob := connect(t, r, someone(t)), connect(t, r, someone(t))
	var got reader
	consume(t, bob, got.take)
	const n = 500
	var want []string
	var wg sync.WaitGroup
	nc := func() (c interface{ Flush() error }) { alice.mu.Lock(); defer alice.mu.Unlock(); return alice.conn }
	for i := range n {
		want = append(want, fmt.Sprint(i))
		began := make(chan struct{})
		wg.Go(func() {
			close(began)
			if _, err := alice.Publish(soon(t), bob.Address(), fmt.Sprint(i), []byte(fmt.Sprint(i)), 0); err != nil {
				t.Error(err)
			}
		})
		<-began
		if i%50 == 49 {
			wg.Wait() // batches are in order; within one the scheduler decides
			nc().Flush()
		}
	}
	wg.Wait()
	eventually(t, func() error {
		if len(got.texts()) != n {
			return fmt.Errorf("%d of %d", len(got.texts()), n)
		}
		return nil
	})
	for i, s := range got.texts() {
		var k int
		fmt.Sscan(s, &k)
		if k/50 != i/50 {
			t.Fatalf("message %d arrived at %d", k, i)
		}
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	alice, bob := connect(t, r, someone(t)), connect(t, r, someone(t))
	ctx := soon(t)

	_, err := alice.Claim(ctx, bob.Address())
	wantKind(t, err, conch.MailboxNotFound)
	if err := bob.PutBundle(ctx, 5, []byte("bundle 5")); err != nil {
		t.Fatal(err)
	}
	wantKind(t, bob.PutBundle(ctx, 4, []byte("older")), conch.GenerationStale)
	wantKind(t, bob.PutBundle(ctx, 6, make([]byte, MaxBundle+1)), conch.TooLarge)
	if serial, b, err := alice.Bundle(ctx, bob.Address()); err != nil || serial != 5 || string(b) != "bundle 5" {
		t.Errorf("bundle %d %q, %v", serial, b, err)
	}

	keys := []OneTimeKey{{"k1", []byte("one")}, {"k2", []byte("two")}, {"k3", []byte("three")}}
	for range 2 { // the same again changes nothing
		if n, err := bob.PutOneTimeKeys(ctx, keys); err != nil || n != 3 {
			t.Fatalf("%d keys, %v", n, err)
		}
	}
	seen := map[string]bool{}
	for range 3 {
		c, err := alice.Claim(ctx, bob.Address())
		if err != nil || c.Key == nil || seen[c.Key.ID] || string(c.Bundle) != "bundle 5" || c.Serial != 5 {
			t.Fatalf("claim %+v, %v", c, err)
		}
		seen[c.Key.ID] = true
	}
	// One that was handed out does not come back by a repeated upload.
	if n, err := bob.PutOneTimeKeys(ctx, keys); err != nil || n != 0 {
		t.Errorf("%d keys after all were handed out, %v", n, err)
	}
	if c, err := alice.Claim(ctx, bob.Address()); err != nil || c.Key != nil || c.Limited {
		t.Errorf("a claim of none: %+v, %v", c, err)
	}
	many := make([]OneTimeKey, MaxOneTimeKeys+5)
	for i := range many {
		many[i] = OneTimeKey{fmt.Sprintf("m%d", i), make([]byte, MaxOneTimeKey)}
	}
	if n, err := bob.PutOneTimeKeys(ctx, many); err != nil || n != MaxOneTimeKeys {
		t.Errorf("%d keys, %v", n, err)
	}
	// An agent that takes one after the other gets no more.
	for i := range 10 {
		c, err := alice.Claim(ctx, bob.Address())
		if err != nil || (c.Key == nil) != c.Limited || c.Limited != (i > 0) || string(c.Bundle) != "bundle 5" {
			t.Fatalf("claim %d: %+v, %v", i, c, err)
		}
	}
	if n, err := bob.Count(ctx); err != nil || n != MaxOneTimeKeys-1 {
		t.Errorf("%d keys left, %v", n, err)
	}
	if err := bob.DropOneTimeKeys(ctx); err != nil {
		t.Error(err)
	}
	if n, err := bob.PutOneTimeKeys(ctx, many[:3]); err != nil || n != 0 {
		t.Errorf("%d dropped keys came back, %v", n, err)
	}

	// What the directory has is told with the connection.
	id := bob.id
	bob.Close()
	bob = connect(t, r, id)
	if l := bob.Link(); l.Bundle != 5 || l.Keys != 0 || l.Relay == "" {
		t.Errorf("the link says %+v", l)
	}
}

func TestConcurrentClaimsGetDifferentKeys(t *testing.T) {
	r := open(t, t.TempDir())
	bob := connect(t, r, someone(t))
	ctx := soon(t)
	if err := bob.PutBundle(ctx, 1, []byte("b")); err != nil {
		t.Fatal(err)
	}
	const n = 8
	var keys []OneTimeKey
	for i := range n {
		keys = append(keys, OneTimeKey{fmt.Sprint(i), []byte{1}})
	}
	if _, err := bob.PutOneTimeKeys(ctx, keys); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for range n {
		a := connect(t, r, someone(t))
		wg.Go(func() {
			c, err := a.Claim(ctx, bob.Address())
			if err != nil || c.Key == nil {
				t.Errorf("%+v, %v", c, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			seen[c.Key.ID]++
		})
	}
	wg.Wait()
	if len(seen) != n {
		t.Errorf("handed out: %v", seen)
	}
}

func TestMark(t *testing.T) {
	r := open(t, t.TempDir())
	bob := connect(t, r, someone(t))
	ctx := soon(t)
	for _, c := range []struct {
		m     Mark
		stale bool
	}{
		{Mark{"s1", 1, 10}, false},
		{Mark{"s1", 1, 10}, false},
		{Mark{"s1", 1, 12}, false},
		{Mark{"s1", 1, 11}, true}, // restored from a backup
		{Mark{"s2", 1, 99}, true}, // two at once
		{Mark{"s1", 2, 5}, false},
		{Mark{"s1", 1, 99}, true}, // an old daemon
		{Mark{"s2", 3, 0}, false},
	} {
		kept, err := bob.Mark(ctx, c.m)
		if c.stale {
			wantKind(t, err, conch.GenerationStale)
			if kept == c.m || kept.Store == "" {
				t.Errorf("%v is refused with %v", c.m, kept)
			}
		} else if err != nil || kept != c.m {
			t.Errorf("%v: %v, %v", c.m, kept, err)
		}
	}
}

func TestHandles(t *testing.T) {
	r := open(t, t.TempDir())
	alice, bob := connect(t, r, someone(t)), connect(t, r, someone(t))
	ctx := soon(t)
	if err := bob.TakeHandle(ctx, "bob", []byte("signed")); err != nil {
		t.Fatal(err)
	}
	if err := bob.TakeHandle(ctx, "bob", []byte("signed anew")); err != nil {
		t.Error(err)
	}
	wantKind(t, alice.TakeHandle(ctx, "bob", []byte("mine")), conch.NameTaken)
	if h, err := alice.FindHandle(ctx, "bob"); err != nil || h.Address != bob.Address() || string(h.Statement) != "signed anew" {
		t.Errorf("%+v, %v", h, err)
	}
	_, err := alice.FindHandle(ctx, "nobody")
	wantKind(t, err, conch.MailboxNotFound)
	wantKind(t, alice.TakeHandle(ctx, "Not.a.name", nil), conch.InvalidAgent)
	for i := range MaxHandles { // the refused one is not counted
		if err := alice.TakeHandle(ctx, fmt.Sprintf("a%d", i), nil); err != nil {
			t.Error(err)
		}
	}
	wantKind(t, alice.TakeHandle(ctx, "one-more", nil), conch.QuotaReached)
}

func TestBlobs(t *testing.T) {
	r := open(t, t.TempDir())
	alice, bob := connect(t, r, someone(t)), connect(t, r, someone(t))
	ctx := soon(t)
	id := strings.Repeat("a1", 16)
	for i, size := range []int{0, 1, BlobChunk - 1, BlobChunk, BlobChunk + 1, 3*BlobChunk + 7} {
		data := make([]byte, size)
		rand.Read(data)
		id := fmt.Sprintf("%s%d", id, i)
		for range 2 {
			if n, err := alice.PutBlob(ctx, id, bytes.NewReader(data)); err != nil || n != int64(size) {
				t.Fatalf("%d of %d bytes put, %v", n, size, err)
			}
		}
		var out bytes.Buffer
		if n, err := bob.Blob(ctx, alice.Address(), id, &out); err != nil || n != int64(size) || !bytes.Equal(out.Bytes(), data) {
			t.Fatalf("%d of %d bytes, %v", n, size, err)
		}
		if size > 0 {
			data[size-1]++
			_, err := alice.PutBlob(ctx, id, bytes.NewReader(data))
			wantKind(t, err, conch.MessageConflict)
		}
	}
	// Nobody else's can be changed: an id belongs to its owner.
	if _, err := bob.PutBlob(ctx, id+"1", strings.NewReader("bob's")); err != nil {
		t.Error(err)
	}
	if err := bob.DropBlob(ctx, id+"2"); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if _, err := bob.Blob(ctx, alice.Address(), id+"2", &out); err != nil {
		t.Errorf("another's drop removed it: %v", err)
	}
	if err := alice.DropBlob(ctx, id+"2"); err != nil {
		t.Error(err)
	}
	_, err := bob.Blob(ctx, alice.Address(), id+"2", &out)
	wantKind(t, err, conch.BlobNotFound)
	_, err = alice.PutBlob(ctx, "short", strings.NewReader("x"))
	wantKind(t, err, conch.InvalidRequest)
	_, err = alice.PutBlob(ctx, id+".>", strings.NewReader("x"))
	wantKind(t, err, conch.InvalidRequest)
}

func TestANewHomeStartsNothing(t *testing.T) {
	dir := t.TempDir() + "/relay"
	r := open(t, dir)
	if err := r.Start(soon(t)); err != nil {
		t.Fatal(err)
	}
	if s := r.Status(soon(t)); s.Running || s.Mode != conch.RelayEmbedded || s.URL != nil || s.Connected || r.Active() {
		t.Errorf("%+v", s)
	}
	if exists(dir) {
		t.Error("the directory was made")
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
