package mail

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
)

func TestCompareLabels(t *testing.T) {
	want := []string{"-", "0", "00", "1", "2", "10", "99999999999999999999999999999998", "99999999999999999999999999999999", ":", "A", "a", "a1b2", "a1b10", "a2", "a02", "b", "claude", "claude:1", "claude:2", "claude:10", "claude:10x", "codex:1"}
	for i, a := range want {
		for j, b := range want {
			if got := CompareLabels(a, b); cmp.Compare(got, 0) != cmp.Compare(i, j) && !(strings.Trim(a, "a0") == strings.Trim(b, "a0")) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
			if CompareLabels(a, b) == 0 && a != b {
				t.Errorf("%s and %s are the same", a, b)
			}
			if cmp.Compare(CompareLabels(a, b), 0) != -cmp.Compare(CompareLabels(b, a), 0) {
				t.Errorf("%s and %s: no order", a, b)
			}
		}
	}
}

// The peer's own decisions. conch differs where it says so: labels are ordered
// by number, and a policy that does not exist is an error before routing.
func TestRoutingVectors(t *testing.T) {
	b, err := os.ReadFile("testdata/routing.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct {
			Live      []string `json:"live"`
			ToSession string   `json:"to_session"`
			Policy    string   `json:"policy"`
			Result    struct {
				Kind   string   `json:"kind"`
				Labels []string `json:"labels"`
			} `json:"result"`
		} `json:"vectors"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for i, v := range file.Vectors {
		if conch.CheckPolicy(conch.Policy(v.Policy)) != nil || (v.ToSession != "" && conch.CheckLabel(v.ToSession) != nil) {
			continue // refused before
		}
		var here []live
		for _, l := range v.Live {
			here = append(here, live{label: l})
		}
		d := route(v.ToSession, conch.Policy(v.Policy), here)
		kind := "session"
		switch {
		case d.refuse:
			kind = "drop"
		case d.held:
			kind = "unrouted"
		}
		labels := slices.Clone(v.Result.Labels)
		slices.SortFunc(labels, CompareLabels)
		if kind == "session" && v.ToSession == "" && v.Policy == "primary" {
			all := slices.Clone(v.Live)
			slices.SortFunc(all, CompareLabels)
			labels = all[:1]
		}
		if kind != v.Result.Kind || (kind == "session" && !slices.Equal(d.to, labels)) {
			t.Errorf("vector %d: %+v gives %s %v", i, v, kind, d.to)
		}
		checked++
	}
	if checked < 30 {
		t.Errorf("only %d vectors were looked at", checked)
	}
}

// model is the table of the contract once more, written for reading and
// without any of the code under test: lists of everything, gone through whole.
type model struct {
	live     map[string]bool // agent/label
	known    map[string]bool
	priority map[string]int
	policy   map[string]string
	inbox    map[string][]string          // agent/label: ids in order
	got      map[string]map[string]string // id, agent/label: how far it is there
	held     []*modelMessage              // to an agent, nobody there
	state    map[string]string
	order    []string // ids as accepted
}

type modelMessage struct {
	id, from, to, label, policy string
	spread                      bool
	given                       map[string]bool
}

func newModel() *model {
	return &model{map[string]bool{}, map[string]bool{}, map[string]int{}, map[string]string{}, map[string][]string{}, map[string]map[string]string{}, nil, map[string]string{}, nil}
}

func (m *model) liveOf(agent string) (list []string) {
	for n := range m.live {
		if strings.HasPrefix(n, agent+"/") {
			list = append(list, strings.TrimPrefix(n, agent+"/"))
		}
	}
	// Labels here are all of the form word:number.
	sort.Slice(list, func(i, j int) bool {
		wi, ni, _ := strings.Cut(list[i], ":")
		wj, nj, _ := strings.Cut(list[j], ":")
		if wi != wj {
			return wi < wj
		}
		a, _ := strconv.Atoi(ni)
		b, _ := strconv.Atoi(nj)
		return a < b
	})
	return list
}

// put keeps an inbox in the order of acceptance.
func (m *model) put(name, id, state string) {
	if m.got[id] == nil {
		m.got[id] = map[string]string{}
	}
	m.got[id][name] = state
	m.inbox[name] = append(m.inbox[name], id)
	sort.Slice(m.inbox[name], func(i, j int) bool {
		return slices.Index(m.order, m.inbox[name][i]) < slices.Index(m.order, m.inbox[name][j])
	})
}

// status is the least far of its recipients', or its own if it has none.
func (m *model) status(id string) string {
	for _, state := range []string{"held", "stored", "done"} {
		for _, s := range m.got[id] {
			if s == state {
				return state
			}
		}
	}
	return m.state[id]
}

// send gives the error's kind, or "".
func (m *model) send(id, from, agent, label, policy string) string {
	m2 := &modelMessage{id: id, from: from, to: agent, label: label, policy: policy, given: map[string]bool{}}
	if label != "" {
		if !m.known[agent+"/"+label] && from != agent+"/"+label {
			return "label_not_found"
		}
		m.known[from] = true
		m.order = append(m.order, id)
		state := "held"
		if m.live[agent+"/"+label] || from == agent+"/"+label {
			state = "stored"
		}
		m.put(agent+"/"+label, id, state)
		return ""
	}
	if p := cmp.Or(policy, m.policy[agent], "primary"); p == "drop" {
		return "message_refused"
	}
	m.known[from] = true
	m.order = append(m.order, id)
	m.state[id] = "held"
	m.held = append(m.held, m2)
	m.look()
	return ""
}

// look goes through everything that waits.
func (m *model) look() {
	for name, ids := range m.inbox {
		for _, id := range ids {
			if m.live[name] && m.got[id][name] == "held" {
				m.got[id][name] = "stored"
			}
		}
	}
	var still []*modelMessage
	for _, w := range m.held {
		p := cmp.Or(w.policy, m.policy[w.to], "primary")
		here := slices.DeleteFunc(m.liveOf(w.to), func(l string) bool { return w.to+"/"+l == w.from })
		keep := true
		switch {
		case len(w.given) > 0 && p != "broadcast":
			keep = false
		case p == "drop":
			m.state[w.id] = "refused"
			keep = false
		case len(here) == 0:
		case p == "broadcast":
			for _, l := range here {
				if !w.given[l] {
					w.given[l] = true
					m.put(w.to+"/"+l, w.id, "stored")
				}
			}
		default:
			best := here[0]
			for _, l := range here {
				if m.priority[w.to+"/"+l] > m.priority[w.to+"/"+best] {
					best = l
				}
			}
			m.put(w.to+"/"+best, w.id, "stored")
			keep = false
		}
		if keep {
			still = append(still, w)
		}
	}
	m.held = still
}

// TestRoutingAgainstAModel does what sessions do, at random, to both.
func TestRoutingAgainstAModel(t *testing.T) {
	for round := range 6 {
		seed := uint64(time.Now().UnixNano()) + uint64(round)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { routeAtRandom(t, seed) })
	}
}

func routeAtRandom(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	o, m := newOffice(t), newModel()
	names := []string{"me/claude:1", "me/claude:2", "me/claude:10", "me/codex:1", "bob/claude:2", "bob/claude:11"}
	leave := map[string]func(){}
	any := func() string { return names[rnd.IntN(len(names))] }
	policies := []string{"", "", "", "primary", "broadcast", "drop"}
	for i := range 120 {
		switch rnd.IntN(10) {
		case 0, 1: // somebody comes
			n := any()
			if leave[n] != nil {
				break
			}
			m.live[n], m.known[n] = true, true
			if rnd.IntN(2) == 0 {
				p := rnd.IntN(3) - 1
				m.priority[n] = p
				leave[n] = o.here(n, p)
			} else {
				leave[n] = o.here(n)
			}
			m.look()
		case 2: // somebody goes
			n := any()
			if leave[n] != nil {
				leave[n]()
				delete(leave, n)
				delete(m.live, n)
			}
		case 3: // an agent changes its mind
			a := []string{"me", "bob"}[rnd.IntN(2)]
			p := policies[3+rnd.IntN(3)]
			if err := o.SetPolicy(t.Context(), a, conch.Policy(p)); err != nil {
				t.Fatal(err)
			}
			m.policy[a] = p
			m.look()
		case 4: // somebody reads, and is done
			n := any()
			if !m.known[n] {
				break
			}
			agent, label, _ := strings.Cut(n, "/")
			was := m.live[n]
			m.live[n] = true
			m.look()
			var got []string
			for _, e := range o.fetch(n) {
				got = append(got, e.ID)
			}
			if !slices.Equal(got, m.inbox[n]) {
				t.Fatalf("step %d: inbox of %s:\n%v\nthe model has\n%v", i, n, got, m.inbox[n])
			}
			if len(got) > 0 {
				if err := o.Ack(t.Context(), agent, label, got); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range got {
				m.got[id][n] = "done"
			}
			delete(m.inbox, n)
			if !was {
				delete(m.live, n)
			}
		default:
			from, to := any(), any()
			agent, label, _ := strings.Cut(to, "/")
			policy := ""
			if rnd.IntN(2) == 0 {
				label = ""
				policy = policies[rnd.IntN(len(policies))]
			}
			id := fmt.Sprintf("m%d", i)
			want := m.send(id, from, agent, label, policy)
			_, err := o.trySend(from, target{agent, label}.String(), id, func(r *conch.SendRequest) { r.ID, r.Policy = id, conch.Policy(policy) })
			if (want == "") != (err == nil) || (want != "" && !errors.Is(err, conch.Kind(want))) {
				t.Fatalf("step %d: %s to %s (%s): %v, the model says %q", i, from, target{agent, label}, policy, err, want)
			}
		}
	}
	for _, id := range m.order {
		r, err := o.Receipts(t.Context(), "me", id)
		if err != nil {
			r, err = o.Receipts(t.Context(), "bob", id)
		}
		if err != nil || string(r.Status) != m.status(id) {
			t.Errorf("%s is %s (%v), the model says %s", id, r.Status, err, m.status(id))
		}
	}
}

// A command in a shell makes its session live; mail that waited finds it.
func TestAShellAtWork(t *testing.T) {
	o := newOffice(t)
	o.away("me/a")
	id := o.send("me/a", "bob", "anybody?").ID
	o.wantStory("bob", id, "held: queued held")
	o.running.Store("bob/build", true)
	o.Stir("bob", "build")
	for !strings.HasPrefix(o.story("bob", id), "stored") {
		time.Sleep(time.Millisecond) // between two looks
	}
	if s := o.send("me/a", "bob/build", "you"); s.Status != conch.ReceiptStored {
		t.Errorf("%+v", s)
	}
	if s := o.send("me/a", "bob", "the primary"); s.Status != conch.ReceiptStored || *s.ToSession != "build" {
		t.Errorf("%+v", s)
	}
	o.running.Delete("bob/build")
	if s := o.send("me/a", "bob", "nobody"); s.Status != conch.ReceiptHeld || s.ToSession != nil {
		t.Errorf("%+v", s)
	}
	o.wantInbox("bob/build", "anybody? you the primary nobody")
}

// A broadcast reaches who appears before it expires, and nobody after.
func TestBroadcast(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "bob/late", "bob/later")
	leave := o.here("bob/one")
	defer leave()
	all := func(r *conch.SendRequest) { r.Policy, r.ExpiresMS = conch.PolicyBroadcast, 1000*60 }
	id := o.send("me/a", "bob", "all", all).ID
	forever := o.send("me/a", "bob", "day", func(r *conch.SendRequest) { r.Policy = conch.PolicyBroadcast }).ID
	o.wantInbox("bob/one", "all day")
	o.wantInbox("bob/late", "all day")
	o.wantInbox("bob/one", "")
	o.time.pass(time.Minute)
	o.wantInbox("bob/later", "day")
	o.wantStory("me", id, "seen: queued stored seen stored seen")
	o.time.pass(spreadTime)
	o.away("bob/last")
	o.wantInbox("bob/last", "")
	if got := o.story("me", forever); !strings.HasPrefix(got, "seen") {
		t.Error(got)
	}
}

// Mail of one session to another stays in order, however it is routed.
func TestOrder(t *testing.T) {
	o := newOffice(t)
	o.away("me/a", "bob/x")
	o.send("me/a", "bob", "1") // nobody: waits for any session
	o.send("me/a", "bob/x", "2")
	o.send("me/a", "bob", "3", func(r *conch.SendRequest) { r.Policy = conch.PolicyBroadcast })
	o.send("me/a", "bob/x", "4")
	o.wantInbox("bob/x", "1 2 3 4")
}
