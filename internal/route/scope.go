package route

import (
	"net/http"
	"strings"

	"github.com/conchsh/conch"
)

// A Scope is a set of things that a token may do. A call names those of which
// any one is enough. The unix socket's user may do everything.
type Scope uint8

const (
	ScopeRead  Scope = 1 << iota // see sessions, processes, output, screens, and mail where looking leaves no trace
	ScopeExec                    // run, type, signal, make and close sessions; includes ScopeRead
	ScopeMail                    // be a session for mail: fetch, send, answer, be present
	ScopeAdmin                   // everything that is served over a network at all
)

// scopeNames in the order of the bits.
func scopeNames() []string { return []string{"read", "exec", "mail", "admin"} }

// Names are a scope's words.
func (s Scope) Names() []string {
	list := []string{}
	for i, name := range scopeNames() {
		if s&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	return list
}

func (s Scope) String() string { return strings.Join(s.Names(), ",") }

// ParseScope reads the words that a token is made with.
func ParseScope(names []string) (s Scope, err error) {
next:
	for _, name := range names {
		for i, known := range scopeNames() {
			if name == known {
				s |= 1 << i
				continue next
			}
		}
		return 0, conch.Errorf(conch.InvalidRequest, "there is no scope %q", name).Hint("there are %s", strings.Join(scopeNames(), ", "))
	}
	if s == 0 {
		return 0, conch.Errorf(conch.InvalidRequest, "a token needs a scope").Hint("there are %s", strings.Join(scopeNames(), ", "))
	}
	return s, nil
}

// Allows reports whether who was given s may do what any of needed is enough for.
func (s Scope) Allows(needed Scope) bool {
	if s&ScopeAdmin != 0 {
		s |= ScopeRead | ScopeExec | ScopeMail
	}
	if s&ScopeExec != 0 {
		s |= ScopeRead
	}
	return s&needed != 0
}

// Needs is the scope of one request: that of its call, and less where it says
// that it only looks.
func (r Route) Needs(req *http.Request) Scope {
	switch r.Name {
	case "attach", "processAttach", "sessionProcessAttach", "terminal", "processTerminal":
		if Bool(req, "read_only") && !Bool(req, "create") {
			return ScopeRead
		}
	case "mailEvents":
		if req.URL.Query().Get("session") != "" {
			return ScopeMail // it is told of its mail, which then counts as offered
		}
	}
	return r.Scope
}

// scoped fills in the scope of each call. A call that is missing in scopeOf is
// nobody's but the unix socket's, and a test says so.
func scoped(list []Route) []Route {
	for i := range list {
		list[i].Scope = scopeOf(list[i].Name)
	}
	return list
}

func scopeOf(name string) Scope {
	switch name {
	case "health", "metrics", "openapi", "version", "status", "sessions", "processes", "session", "sessionProcesses", "history", "events", "watch", "changes", "tape", "log", "stats",
		"command", "sessionCommand", "output", "sessionOutput", "commandEvents", "sessionCommandEvents",
		"process", "sessionProcess", "logs", "sessionLogs", "screen", "sessionScreen", "ownScreen", "cast", "sessionCast":
		return ScopeRead
	case "access", "whoami", "agents", "receipts", "thread", "search", "messages", "policy", "mailEvents", "responder", "relay", "contacts":
		return ScopeRead | ScopeMail
	case "new", "close", "exec", "interrupt", "reset", "run", "forget", "env", // an environment holds secrets
		"stdin", "sessionStdin", "processStdin", "sessionProcessStdin", "signal", "sessionSignal", "keys", "sessionKeys", "resize", "sessionResize",
		"wait", "sessionWait", // it can be told to knock at ports and addresses
		"attach", "attachStdin", "attachResize", "processAttach", "sessionProcessAttach", "terminal", "processTerminal":
		return ScopeExec
	case "send", "inbox", "ack", "reply", "ask", "await", "setPolicy", "setPriority", "presence", "busy", "hook",
		"addContact", "acceptContact", "blockContact", "verifyContact", "resetContact", "contactAuthority", // some of these want a person, too
		"quarantine", "clearQuarantine", "upload", "attachment":
		return ScopeMail
	case "doctor", "prune", "import", "shutdown", "keeperShutdown", "mailSnapshot",
		"newAgent", "importAgent", "unassignAgent", "useAgent", "assignAgent", "exportAgent", "unlockAgent", "lockAgent",
		"setResponder", "tokens", "newToken", "revokeToken", "listen", "page", "logOut",
		"relayListen", "relayInvite", "relayJoin", "relayLeave", "relayRemove":
		return ScopeAdmin
	}
	return 0
}
