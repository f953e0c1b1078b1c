package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/conchsh/conch"
)

// An attacker has a login of its own and speaks NATS as it likes.
type attacker struct {
	*nats.Conn
	t  *testing.T
	id me

	mu   sync.Mutex
	errs []error
}

func attack(t *testing.T, host *Relay) *attacker {
	t.Helper()
	eve := &attacker{t: t, id: someone(t)}
	home := open(t, t.TempDir())
	if _, err := home.Join(soon(t), inviteTo(t, host), nil); err != nil {
		t.Fatal(err)
	}
	connect(t, home, eve.id) // enrolled, and its mailbox made
	j := home.target().cfg.Joined
	kp, proof, err := login(eve.id, j.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	eve.Conn, err = j.dial(nats.Nkey(proof.Login, kp.Sign), nats.CustomInboxPrefix(inboxPrefix(eve.id.Address())), nats.NoReconnect(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			eve.mu.Lock()
			defer eve.mu.Unlock()
			eve.errs = append(eve.errs, err)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(eve.Close)
	return eve
}

// refused runs f and wants the server to have refused what it did.
func (e *attacker) refused(what string, f func()) {
	e.t.Helper()
	e.mu.Lock()
	before := len(e.errs)
	e.mu.Unlock()
	f()
	e.Flush()
	eventually(e.t, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, err := range e.errs[before:] {
			if errors.Is(err, nats.ErrPermissionViolation) {
				return nil
			}
		}
		return fmt.Errorf("%s was not refused", what)
	})
}

func TestAttackerWithALogin(t *testing.T) {
	host, _ := listening(t, t.TempDir())
	alice, bob := connect(t, host, someone(t)), connect(t, host, someone(t))
	ctx := soon(t)
	if err := bob.PutBundle(ctx, 7, []byte("bob's")); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.PutOneTimeKeys(ctx, []OneTimeKey{{"k1", []byte("one")}, {"k2", []byte("two")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.Mark(ctx, Mark{"s", 5, 5}); err != nil {
		t.Fatal(err)
	}
	blob := strings.Repeat("b", 40)
	if _, err := bob.PutBlob(ctx, blob, strings.NewReader("bob's blob")); err != nil {
		t.Fatal(err)
	}
	publish(t, alice, bob, "1", "for bob")
	publish(t, alice, bob, "2", "for bob too")

	eve := attack(t, host)
	b, e := bob.Address(), eve.id.Address()
	stream, consumer := mailStream+b, mailOwner

	// The whole of JetStream's interface, of whatever is there.
	var api []string
	for _, s := range []string{stream, mailStream + e, dirStream, blobStream, "NEW"} {
		for _, verb := range []string{
			"STREAM.INFO.%s", "STREAM.CREATE.%s", "STREAM.UPDATE.%s", "STREAM.DELETE.%s", "STREAM.PURGE.%s",
			"STREAM.MSG.GET.%s", "STREAM.MSG.DELETE.%s", "STREAM.SNAPSHOT.%s", "STREAM.RESTORE.%s", "STREAM.LEADER.STEPDOWN.%s",
			"STREAM.PEER.REMOVE.%s", "DIRECT.GET.%s", "DIRECT.GET.%s.conch.mail.x", "CONSUMER.NAMES.%s", "CONSUMER.LIST.%s",
			"CONSUMER.CREATE.%s", "CONSUMER.CREATE.%s.owner", "CONSUMER.CREATE.%s.owner.conch.mail.>", "CONSUMER.DURABLE.CREATE.%s.owner",
			"CONSUMER.INFO.%s.owner", "CONSUMER.DELETE.%s.owner", "CONSUMER.MSG.NEXT.%s.owner", "CONSUMER.PAUSE.%s.owner",
			"CONSUMER.UNPIN.%s.owner", "CONSUMER.LEADER.STEPDOWN.%s.owner",
		} {
			api = append(api, "$JS.API."+fmt.Sprintf(verb, s))
		}
	}
	api = append(api, "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.META.LEADER.STEPDOWN",
		"$JS.ACK."+stream+"."+consumer+".1.1.1.1.0", "$JS.ACK."+mailStream+e+"."+consumer+".1.1.1.1.0", "$JS.ACK.>", "$JS.FC.x",
		mailSubject+b+"."+alice.Address(), mailSubject+b+"."+e, mailSubject+e+"."+e,
		dirSubject+"bundle."+b, dirSubject+"bundle."+e, blobSubject+b+"."+blob+".0", blobSubject+e+"."+blob+".0",
		"$KV.x.y", "$O.x.y", "$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.ACCOUNT."+agentsAccount+".DISCONNECT",
		"$SRV.PING", "$SRV.INFO.conch-hub", "$SRV.STATS", "$NRG.x", "_INBOX.x", inboxPrefix(b)+".x",
		hubSubject+b+"."+verbFetch, hubSubject+b+"."+verbAck, hubSubject+b+"."+verbBundle, hubSubject+b+"."+verbOpen, hubSubject+b+"."+verbSend,
		hubSubject+e+".x.y", homeSubject+"x."+verbEnrol, "anything")
	for _, s := range api {
		eve.refused("a request to "+s, func() { eve.PublishRequest(s, eve.NewInbox(), []byte("{}")) })
		eve.refused("publishing on "+s, func() {
			m := nats.NewMsg(s)
			m.Header.Set("Nats-Rollup", "all")
			eve.PublishMsg(m)
		})
	}
	for _, s := range []string{
		">", "*", "$JS.>", "$JS.API.>", "$JS.EVENT.>", "$SYS.>", "$SRV.>", "$KV.>", "$O.>", "_INBOX.>", "_INBOX_*.>", inboxPrefix(b) + ".>",
		mailSubject + ">", mailSubject + b + ".*", mailSubject + e + ".*", dirSubject + ">", hubSubject + ">", hubSubject + "*." + verbSend, hubSubject + e + "." + verbSend,
		homeSubject + ">", "conch.>", "_R_.>", "_GR_.>",
	} {
		eve.refused("subscribing to "+s, func() { eve.SubscribeSync(s) })
		eve.refused("subscribing in a queue to "+s, func() { eve.QueueSubscribeSync(s, "q") })
	}

	// The hub's rights are not lent to who names another's subject for the answer.
	for _, verb := range []string{verbOpen, verbSend, verbFetch, verbAck, verbBundle, verbGet, verbKeys, verbClaim, verbMark, verbPut, verbRead, verbDrop, verbHandle, verbResolve} {
		for _, reply := range []string{
			mailSubject + b + "." + alice.Address(), "$JS.API.STREAM.PURGE." + stream, "$JS.API.STREAM.DELETE." + stream,
			"$JS.API.CONSUMER.DELETE." + stream + "." + consumer, hubSubject + b + "." + verbOpen, inboxPrefix(b) + ".x", inboxPrefix(e), inboxPrefix(e) + "x.y", dirSubject + "bundle." + b,
		} {
			for _, meta := range []any{struct{}{}, sendRequest{To: e, ID: "z"}, chunkRequest{ID: blob}, addressRequest{b}} {
				m := newMsg(hubSubject+e+"."+verb, meta, []byte("{}"))
				m.Reply = reply
				eve.PublishMsg(m)
			}
		}
	}
	// Names that would mean something inside a subject, headers that would mean
	// something to a stream.
	ask := func(verb string, meta any, header nats.Header) error {
		m := newMsg(hubSubject+e+"."+verb, meta, []byte("x"))
		for k, v := range header {
			m.Header[k] = v
		}
		m, err := eve.RequestMsg(m, patience)
		if err != nil {
			t.Errorf("%s: %v", verb, err)
			return nil
		}
		return readMsg(m, nil)
	}
	for _, to := range []string{b + ".*", "*", ">", b + "." + alice.Address(), "", "$JS.API.STREAM.PURGE." + stream, strings.Repeat("1", 32) + "\r\nPUB x 0"} {
		if ask(verbSend, sendRequest{To: to, ID: "x"}, nil) == nil {
			t.Errorf("a message to %q was taken", to)
		}
		if ask(verbClaim, addressRequest{to}, nil) == nil {
			t.Errorf("a claim of %q was taken", to)
		}
		if ask(verbRead, chunkRequest{Owner: to, ID: blob}, nil) == nil {
			t.Errorf("a blob of %q was read", to)
		}
		if ask(verbPut, chunkRequest{ID: blob + "." + to, N: 0}, nil) == nil {
			t.Errorf("a blob %q was taken", to)
		}
		if ask(verbHandle, handleRequest{to}, nil) == nil {
			t.Errorf("a name %q was taken", to)
		}
	}
	if err := ask(verbSend, sendRequest{To: b, ID: "headers"}, nats.Header{
		"Nats-Rollup": {"all"}, "Nats-Msg-Id": {alice.Address() + ":3"}, "Nats-TTL": {"never"}, "Nats-Expected-Stream": {stream},
		"Nats-Expected-Last-Sequence": {"0"}, "Nats-Schedule": {"@every 1s"}, "Nats-Schedule-Target": {mailSubject + b + ".x"},
		"Nats-Batch-Id": {"1"}, "Nats-Batch-Sequence": {"1"}, "Nats-Incr": {"1"},
	}); err != nil {
		t.Errorf("headers that are ignored: %v", err)
	}
	eve.refused("a trace to another's mailbox", func() {
		m := newMsg(hubSubject+e+"."+verbSend, sendRequest{To: b, ID: "trace"}, []byte("x"))
		m.Header.Set("Nats-Trace-Dest", mailSubject+b+".x")
		m.Reply = eve.NewInbox()
		eve.PublishMsg(m)
	})
	// Its own acknowledgements, with made-up numbers, touch only its own.
	ask(verbAck, ackRequest{Seq: 1 << 60, Consumer: 1 << 60, Deliveries: 1}, nil)

	// Draining keys ends at the limit.
	ctx = soon(t)
	for range 3 * claimsPerPeer {
		ask(verbClaim, addressRequest{b}, nil)
	}
	if n, err := bob.Count(ctx); err != nil || n != 0 {
		t.Errorf("%d keys left, %v: two claims are allowed", n, err)
	}
	if n, err := bob.PutOneTimeKeys(ctx, []OneTimeKey{{"k3", []byte("x")}}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	for range claimsPerPeer {
		ask(verbClaim, addressRequest{b}, nil)
	}
	if n, err := bob.Count(ctx); err != nil || n != 1 {
		t.Errorf("%d keys left, %v: the rest is beyond the limit", n, err)
	}

	// Everything of Bob's is as it was, and the one message that Eve may send is
	// from Eve.
	publish(t, alice, bob, "3", "and this") // its id was not used up
	var got reader
	consume(t, bob, got.take)
	wantTexts(t, &got, "for bob", "for bob too", "x", "and this")
	for _, m := range got.list {
		if (string(m.Data) == "x") != (m.From == e) || m.Deliveries != 1 {
			t.Errorf("%+v", m)
		}
	}
	if serial, bundle, err := alice.Bundle(ctx, b); err != nil || serial != 7 || string(bundle) != "bob's" {
		t.Errorf("%d %q %v", serial, bundle, err)
	}
	if _, err := bob.Mark(ctx, Mark{"s", 5, 6}); err != nil {
		t.Error(err)
	}
	var text strings.Builder
	if _, err := alice.Blob(ctx, b, blob, &text); err != nil || text.String() != "bob's blob" {
		t.Errorf("%q, %v", &text, err)
	}
	host.mu.Lock()
	h := host.nest.hub
	host.mu.Unlock()
	if s, err := h.js.Stream(ctx, stream); err != nil || s.CachedInfo().Config.MaxAge != MessageAge || s.CachedInfo().Config.AllowDirect {
		t.Errorf("bob's stream: %v", err)
	}
	names := h.js.StreamNames(ctx)
	for n := range names.Name() {
		if n != dirStream && n != blobStream && !strings.HasPrefix(n, mailStream) {
			t.Errorf("there is a stream %s", n)
		}
	}
}

// TestStrangerWithoutALogin: what does not show a key that is known gets nowhere.
func TestStrangerWithoutALogin(t *testing.T) {
	host, addr := listening(t, t.TempDir())
	bob := connect(t, host, someone(t))
	host.mu.Lock()
	cert := host.nest.cert
	host.mu.Unlock()
	j := &joined{Addresses: []string{addr}, Fingerprint: cert.fingerprint, Seed: newSecret()}
	j.Seed = append(j.Seed, newSecret()...)
	_, bobs, err := login(bob.id, cert.fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	mine, own, err := login(someone(t), cert.fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	for name, options := range map[string][]nats.Option{
		"nobody":             nil,
		"a key not enrolled": {nats.Nkey(own.Login, mine.Sign)},
		"another's key":      {nats.Nkey(bobs.Login, mine.Sign)},
		"no signature":       {nats.Nkey(bobs.Login, func([]byte) ([]byte, error) { return nil, nil })},
		"a password":         {nats.UserInfo("hub", "hub")},
		"a token":            {nats.Token("hub")},
		"a token and a key":  {nats.Nkey(own.Login, mine.Sign), nats.Token("AAAAAAAAAAAAAAAAAAAAAA")},
	} {
		if nc, err := j.dial(append(options, nats.NoReconnect())...); !errors.Is(err, conch.RelayRefused) {
			t.Errorf("%s: %v", name, err)
			if nc != nil {
				nc.Close()
			}
		}
	}
	// A home can enrol only agents whose keys it has.
	home := open(t, t.TempDir())
	if _, err := home.Join(soon(t), inviteTo(t, host), nil); err != nil {
		t.Fatal(err)
	}
	hj, err := home.membership(soon(t), home.target())
	if err != nil {
		t.Fatal(err)
	}
	for name, proof := range map[string]enrolRequest{
		"another's address":    {bob.Address(), own.Login, own.Proof},
		"another's old proof":  {bob.Address(), own.Login, bobs.Proof},
		"no proof":             {bob.Address(), own.Login, nil},
		"no address":           {"x", own.Login, own.Proof},
		"a proof elsewhere":    {own.Address, own.Login, nil},
		"a login that is none": {own.Address, "x", own.Proof},
	} {
		if err := hj.enrol(soon(t), proof); !errors.Is(err, conch.RelayRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A home's own connection may enrol and nothing else.
	nc, public := hj.nc, hj.key
	for _, s := range []string{hubSubject + bob.Address() + "." + verbFetch, "$JS.API.INFO", homeSubject + "x." + verbEnrol} {
		if _, err := nc.Request(s, nil, 300*time.Millisecond); err == nil {
			t.Errorf("a home asked %s", s)
		}
	}
	m := newMsg(homeSubject+public+"."+verbEnrol, enrolRequest{}, nil)
	m.Reply = "$JS.API.STREAM.DELETE." + mailStream + bob.Address()
	nc.PublishMsg(m)
	nc.Flush()
	publish(t, bob, bob, "1", "x")
}

// TestTheServerLendsItsRights keeps the reason why agents do not get JetStream's
// subjects themselves: when it fails, the server has changed.
func TestTheServerLendsItsRights(t *testing.T) {
	host, _ := listening(t, t.TempDir())
	alice, bob := connect(t, host, someone(t)), connect(t, host, someone(t))
	publish(t, alice, bob, "1", "for bob")
	publish(t, alice, alice, "1", "for alice")
	host.mu.Lock()
	back := host.nest.hub.back
	host.mu.Unlock()
	js, err := jetstream.New(back)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := back.Request("$JS.API.CONSUMER.MSG.NEXT."+mailStream+alice.Address()+"."+mailOwner, []byte("1"), patience); err != nil {
		t.Fatal(err)
	}
	// With the right to acknowledge its own mail and no other, one would say:
	back.PublishRequest("$JS.ACK."+mailStream+alice.Address()+"."+mailOwner+".1.1.1.1.0", "$JS.API.STREAM.PURGE."+mailStream+bob.Address(), nil)
	eventually(t, func() error {
		s, err := js.Stream(soon(t), mailStream+bob.Address())
		if err != nil {
			return err
		}
		if n := s.CachedInfo().State.Msgs; n != 0 {
			return fmt.Errorf("%d messages", n)
		}
		return nil
	})
}

func TestWireErrors(t *testing.T) {
	in := conch.Errorf(conch.QuotaReached, "too much: “%d”", 7).Hint("later").Retry()
	err := readMsg(errorMsg("x", in), nil)
	b, _ := json.Marshal(conch.AsError(err))
	if want, _ := json.Marshal(in); string(b) != string(want) {
		t.Errorf("%s, want %s", b, want)
	}
}
