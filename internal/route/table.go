package route

import (
	"net/http"
	"slices"

	"github.com/conchsh/conch"
)

const (
	sessionPath = "/v1/sessions/{agent}/{label}"
	get         = http.MethodGet
	post        = http.MethodPost
)

// Daemon are the calls that the daemon answers itself.
func Daemon() []Route {
	return scoped(slices.Concat(daemon(), agents(), mail(), contacts(), access(), sockets(), relay()))
}

func daemon() []Route {
	return []Route{
		{Name: "health", Method: get, Path: "/healthz", Summary: "Can the daemon do its work? Status 503 says what keeps it.", Media: []string{"text/plain"}},
		{Name: "metrics", Method: get, Path: "/metrics", Summary: "What is counted, in Prometheus' text form.", Media: []string{"text/plain"}},
		{Name: "openapi", Method: get, Path: "/openapi.json", Summary: "This description.", Answer: map[string]any{}},
		{Name: "version", Method: get, Path: "/v1/version", Summary: "Which conch this is.", Answer: conch.VersionInfo{}},
		{Name: "status", Method: get, Path: "/v1/status", Summary: "How the daemon is.", Answer: conch.StatusInfo{}},
		{Name: "doctor", Method: get, Path: "/v1/doctor", Summary: "Look at everything conch stands on.",
			Query: []Param{{Name: "deep", Type: Boolean, Doc: "Read every byte of every tape."}}, Answer: conch.Checkup{}},
		{Name: "sessions", Method: get, Path: "/v1/sessions", Summary: "The open sessions of all agents.", Answer: []conch.SessionInfo{}},
		{Name: "new", Method: post, Path: "/v1/sessions", Summary: "Make a session and start its keeper.",
			Body: conch.NewRequest{}, Answer: conch.SessionInfo{},
			Errors: []conch.Kind{conch.InvalidLabel, conch.InvalidAgent, conch.InvalidEnv, conch.LabelTaken, conch.AgentNotFound, conch.SessionNotFound, conch.NotRunning, conch.ShellFailed}},
		{Name: "close", Method: post, Path: sessionPath + "/close", Summary: "End a session for good, with every process in it.",
			Answer: conch.Gone{}, Errors: missing()},
		{Name: "prune", Method: post, Path: "/v1/prune", Summary: "Remove what closed sessions left on disk, and take ended processes off the lists.",
			Body: conch.PruneRequest{}, Answer: conch.Pruned{}, Errors: []conch.Kind{conch.NotRunning}},
		{Name: "watch", Method: get, Path: "/v1/events", Summary: "All that changes on this machine, as events: sessions, commands, processes, mail.",
			Detail: "The first event is watching and says whether it goes on after the one that was named; if not, everything is to be looked at anew. " +
				"Then come session (a SessionChange), closed (a SessionGone), mail and receipt (a MailEvent). A comment comes every 15 s when nothing else does.",
			Query:  []Param{{Name: "after", Type: String, Doc: "The id of the last event that was seen; it goes before Last-Event-ID."}},
			Header: []Param{{Name: "Last-Event-ID", Type: String, Doc: "The id of the last event that was seen, as browsers send it."}},
			Media:  []string{EventType}},
		{Name: "processes", Method: get, Path: "/v1/processes", Summary: "The background processes of all open sessions, oldest first.",
			Detail: "Names are found here: calls about one process take its process_id alone, as two sessions may have processes of one name.", Answer: []conch.Process{}, Errors: []conch.Kind{conch.NotRunning}},
		{Name: "import", Method: post, Path: "/v1/import", Summary: "Keep a labelled log, the body, as a closed session.",
			Detail: "The log may be larger than memory. When it fails nothing is kept.",
			Query: []Param{
				{Name: "agent", Type: String, Doc: "Whose session; default me."},
				{Name: "label", Type: String, Doc: "A label that no session has or had; default the lowest free imported:N."},
			},
			Upload: true, Answer: conch.Imported{},
			Errors: []conch.Kind{conch.InvalidLabel, conch.InvalidAgent, conch.AgentNotFound, conch.LabelTaken, conch.NotRunning}},
		{Name: "shutdown", Method: post, Path: "/v1/shutdown", Summary: "Make the daemon leave.",
			Detail: "Sessions go on; with all they are closed first.", Body: conch.ShutdownRequest{}, Optional: true, Answer: conch.Gone{}},
	}
}

// agents are the calls about agents.
func agents() []Route {
	caller := []Param{
		{Name: "agent", Type: String, Doc: "The agent that the caller names, if it does."},
		{Name: "harness", Type: String, Doc: "The id that the caller's harness has for its session."},
		{Name: "dir", Type: String, Doc: "The directory that the caller is in."},
	}
	none := []conch.Kind{conch.InvalidAgent, conch.AgentNotFound, conch.AgentLocked, conch.InvalidKey}
	agent := func(name, path, summary string, body any, kinds ...conch.Kind) Route {
		return Route{Name: name, Method: post, Path: "/v1/agents" + path, Summary: summary, Body: body, Optional: true,
			Answer: conch.AgentInfo{}, Errors: append(none[:len(none):len(none)], kinds...)}
	}
	export := agent("exportAgent", "/{name}/export", "The key file, secret and all, sealed with the passphrase if there is one.", conch.PassphraseRequest{}, conch.WrongPassphrase)
	export.Answer = map[string]any{}
	unassign := agent("unassignAgent", "/unassign", "Take back an assignment.", conch.Assignment{})
	unassign.Answer = conch.Unassigned{}
	return []Route{
		{Name: "whoami", Method: get, Path: "/v1/whoami", Summary: "The agent and session of a caller.",
			Query:  append(caller[:3:3], Param{Name: "label", Type: String, Doc: "The session the caller is in."}),
			Answer: conch.WhoAmI{}, Errors: append(none[:len(none):len(none)], conch.InvalidLabel)},
		{Name: "agents", Method: get, Path: "/v1/agents", Summary: "All agents, and which is active for a caller.",
			Query: caller, Answer: []conch.AgentInfo{}, Errors: none},
		agent("newAgent", "", "Make an agent.", conch.NewAgentRequest{}, conch.AgentExists, conch.LabelTaken),
		agent("importAgent", "/import", "Keep an exported key.", conch.ImportAgentRequest{}, conch.AgentExists, conch.LabelTaken),
		unassign,
		agent("useAgent", "/{name}/use", "Work as it wherever nothing else is assigned.", nil),
		agent("assignAgent", "/{name}/assign", "Work as it in a place.", conch.Assignment{}),
		export,
		agent("unlockAgent", "/{name}/unlock", "Open a sealed key, until the daemon leaves.", conch.PassphraseRequest{}, conch.WrongPassphrase),
		agent("lockAgent", "/{name}/lock", "Forget an opened key again.", nil),
	}
}

// mail are the calls about messages, and about who is there to get them.
func mail() []Route {
	who := []conch.Kind{conch.InvalidAgent, conch.InvalidLabel, conch.AgentNotFound, conch.LabelNotFound, conch.LabelTaken, conch.NotRunning, conch.NotOwner, conch.StoreDamaged}
	with := func(kinds ...conch.Kind) []conch.Kind { return append(who[:len(who):len(who)], kinds...) }
	agent := Param{Name: "agent", Type: String, Doc: "Whose mail; default the agent that works everywhere."}
	found := conch.MessageNotFound
	return []Route{
		{Name: "send", Method: post, Path: "/v1/mail/send", Summary: "Send a message.",
			Detail: "It is on disk when this answers. The same id with the same content is the same message.",
			Body:   conch.SendRequest{}, MaxBody: MaxMail, Answer: conch.SentMessage{}, Errors: with(conch.MessageConflict, conch.MessageRefused, conch.NotAContact, conch.AgentLocked)},
		{Name: "inbox", Method: post, Path: "/v1/mail/inbox", Summary: "Fetch a session's messages and lease them for 120 s, or with peek only look.",
			Body: conch.InboxRequest{}, MaxBody: MaxMail, Answer: conch.InboxPage{}, Errors: who},
		{Name: "ack", Method: post, Path: "/v1/mail/ack", Summary: "Be done with messages of a session's inbox.",
			Body: conch.AckRequest{}, MaxBody: MaxMail, Answer: conch.Acked{}, Errors: with(found)},
		{Name: "reply", Method: post, Path: "/v1/mail/reply/{message}", Summary: "Answer a message of a session's inbox, and be done with it.",
			Body: conch.ReplyRequest{}, MaxBody: MaxMail, Answer: conch.SentMessage{}, Errors: with(found, conch.MessageConflict, conch.MessageRefused)},
		{Name: "ask", Method: post, Path: "/v1/mail/ask", Summary: "Send a message and wait for the reply of the session that was asked.",
			Detail: "Asking again under the same id goes on waiting.",
			Body:   conch.AskRequest{}, MaxBody: MaxMail, Answer: conch.Asked{}, Errors: with(conch.MessageConflict, conch.MessageRefused)},
		{Name: "await", Method: post, Path: "/v1/mail/await", Summary: "The next message of a session's inbox, now or when it comes; null when the time is up.",
			Body: conch.AwaitRequest{}, MaxBody: MaxMail, Answer: (*conch.InboxEntry)(nil), Errors: who},
		{Name: "receipts", Method: get, Path: "/v1/mail/receipts/{message}", Summary: "What became of a message.",
			Query: []Param{agent}, Answer: conch.Receipts{}, Errors: with(found)},
		{Name: "thread", Method: get, Path: "/v1/mail/thread/{message}", Summary: "The chain of replies that a message belongs to, oldest first.",
			Query: []Param{agent}, Answer: []conch.FoundMessage{}, Errors: with(found)},
		{Name: "search", Method: get, Path: "/v1/mail/search", Summary: "An agent's messages that have all these words, newest first.",
			Query:  []Param{agent, {Name: "text", Type: String, Doc: "The words."}, {Name: "limit", Type: Integer, Doc: "At most so many; 0: 100.", Max: 1000}},
			Answer: []conch.FoundMessage{}, Errors: who},
		{Name: "messages", Method: get, Path: "/v1/mail/messages", Summary: "An agent's messages, sent and received, newest first.",
			Query: []Param{agent, {Name: "before", Type: String, Doc: "The id of a message: only what is older."},
				{Name: "limit", Type: Integer, Doc: "At most so many; 0: 100.", Max: 1000}},
			Answer: []conch.FoundMessage{}, Errors: who},
		{Name: "policy", Method: get, Path: "/v1/mail/policy", Summary: "Who gets mail to an agent that names no session.",
			Query: []Param{agent}, Answer: conch.PolicyInfo{}, Errors: who},
		{Name: "setPolicy", Method: post, Path: "/v1/mail/policy", Summary: "Say who gets mail to an agent that names no session.",
			Body: conch.PolicyInfo{}, MaxBody: MaxMail, Answer: conch.PolicyInfo{}, Errors: who},
		{Name: "responder", Method: get, Path: "/v1/responder", Summary: "What an agent's auto-responder is, did and cost.",
			Query: []Param{agent}, Answer: conch.ResponderStatus{}, Errors: who},
		{Name: "setResponder", Method: post, Path: "/v1/responder", Summary: "Switch an agent's auto-responder on or off.",
			Body: conch.ResponderRequest{}, MaxBody: MaxMail, Answer: conch.ResponderStatus{}, Errors: with(conch.Unsupported)},
		{Name: "setPriority", Method: post, Path: "/v1/mail/priority", Summary: "Set a session's priority: the highest that is live is the primary.",
			Body: conch.PriorityRequest{}, MaxBody: MaxMail, Answer: conch.PriorityRequest{}, Errors: who},
		{Name: "mailSnapshot", Method: get, Path: "/v1/mail/snapshot", Summary: "All mail of the home as a database file, for a backup; empty if there is none.",
			Media: []string{BytesType}, Errors: []conch.Kind{conch.StorageFull, conch.StoreDamaged}},
		{Name: "mailEvents", Method: get, Path: "/v1/mail/events", Summary: "What happens to an agent's mail, or to one session's, as events.",
			Detail: "New mail is an event mail, a step of a message that was sent an event receipt. Without a number to go on after it begins now.",
			Query:  []Param{agent, {Name: "session", Type: String, Doc: "Only this session's; it is told of its mail, which is then offered."}, after()},
			Header: []Param{lastEventID()}, Media: []string{EventType}, Errors: who},
		{Name: "hook", Method: post, Path: "/v1/mail/hook", Summary: "What a harness's hook should tell its model: which session it is, and what waits there.",
			Detail: "A message is given to each kind of hook once, which is recorded as offered, and fetched by none.",
			Body:   conch.HookRequest{}, MaxBody: MaxMail, Answer: conch.HookAnswer{}, Errors: who},
		{Name: "presence", Method: post, Path: "/v1/presence", Summary: "Be a session's client for as long as this request lasts.",
			Detail: "The event presence says which label was joined or claimed.",
			Body:   conch.PresenceRequest{}, MaxBody: MaxMail, Media: []string{EventType}, Errors: with(conch.SessionClosed)},
		{Name: "busy", Method: post, Path: "/v1/presence/busy", Summary: "Say whether the client of a presence is at work.",
			Body: conch.BusyRequest{}, MaxBody: MaxMail, Answer: conch.BusyRequest{}, Errors: with(conch.SessionNotFound)},
	}
}

// contacts are the calls about agents of other homes, and about what comes with
// mail.
func contacts() []Route {
	who := []conch.Kind{conch.InvalidAgent, conch.AgentNotFound, conch.AgentLocked, conch.ContactNotFound, conch.NotRunning, conch.NotOwner, conch.StoreDamaged}
	agent := Param{Name: "agent", Type: String, Doc: "Whose; default the agent that works everywhere."}
	contact := func(name, path, summary string, kinds ...conch.Kind) Route {
		return Route{Name: name, Method: post, Path: "/v1/contacts/" + path, Summary: summary,
			Body: conch.ContactRequest{}, MaxBody: MaxMail, Answer: conch.Contact{}, Errors: append(who[:len(who):len(who)], kinds...)}
	}
	verify := contact("verifyContact", "verify", "The safety number; with confirm, note that a person compared it.", conch.NotHuman)
	verify.Answer = conch.ContactSafety{}
	return []Route{
		{Name: "contacts", Method: get, Path: "/v1/contacts", Summary: "An agent's contacts in other homes, those who wait for an answer first.",
			Query: []Param{agent}, Answer: []conch.Contact{}, Errors: who},
		contact("addContact", "add", "Ask an agent to be a contact, and give it a name.", conch.NameTaken, conch.LabelTaken, conch.NotAContact),
		contact("acceptContact", "accept", "Let a contact in that asked, that was blocked, or whose keys changed. A person's decision.", conch.NotHuman),
		contact("blockContact", "block", "Keep an agent out, and tell it."),
		verify,
		contact("resetContact", "reset", "Begin new ratchets with a contact; what has no report is sealed again."),
		contact("contactAuthority", "authority", "Say what a contact's word counts for. To raise it is a person's decision.", conch.NotHuman),
		{Name: "quarantine", Method: get, Path: "/v1/mail/quarantine", Summary: "Letters that could not be opened or taken, newest first.",
			Query: []Param{agent}, Answer: []conch.Quarantined{}, Errors: who},
		{Name: "clearQuarantine", Method: post, Path: "/v1/mail/quarantine/clear", Summary: "Throw them away.",
			Body: conch.ContactRequest{}, MaxBody: MaxMail, Answer: conch.Acked{}, Errors: who},
		{Name: "upload", Method: post, Path: "/v1/mail/upload", Summary: "Keep a file, the body, for a message that is about to be sent.",
			Query:  []Param{{Name: "name", Type: String, Doc: "What the recipient is to call it."}},
			Upload: true, Answer: conch.Attachment{}, Errors: []conch.Kind{conch.NotRunning, conch.NotOwner, conch.StoreDamaged}},
		{Name: "attachment", Method: get, Path: "/v1/mail/attachments/{message}/{n}", Summary: "A file that came with a message.",
			Query: []Param{agent}, Media: []string{BytesType}, Errors: append(who[:len(who):len(who)], conch.MessageNotFound)},
	}
}

// access are the calls about who else may come in, and by which way.
func access() []Route {
	return []Route{
		{Name: "access", Method: get, Path: "/v1/access", Summary: "What the caller may do, and as whom.", Answer: conch.AccessInfo{}},
		{Name: "tokens", Method: get, Path: "/v1/tokens", Summary: "The tokens that let programs in over the network, and the browsers' logins to the page.", Answer: []conch.TokenInfo{}},
		{Name: "newToken", Method: post, Path: "/v1/tokens", Summary: "Make a token. This answer is the only one that has it.",
			Detail: "On the unix socket only.", Body: conch.NewTokenRequest{}, Answer: conch.NewToken{}, Errors: []conch.Kind{conch.NameTaken, conch.InvalidLabel}},
		{Name: "revokeToken", Method: post, Path: "/v1/tokens/{token}/revoke", Summary: "Take a token back, or end a login; what is open under it ends.",
			Answer: conch.Revoked{}, Errors: []conch.Kind{conch.TokenNotFound}},
		{Name: "listen", Method: post, Path: "/v1/listen", Summary: "Serve the network until the daemon leaves: TLS, and a token with every request.",
			Detail: "On the unix socket only.", Body: conch.ListenRequest{}, Answer: conch.ListenInfo{}, Errors: []conch.Kind{conch.AlreadyRunning, conch.InvalidConfig, conch.TokenNotFound}},
		{Name: "page", Method: post, Path: "/v1/page", Summary: "Serve the web page on 127.0.0.1, and make an address that lets one browser in, once, within a minute.",
			Detail: "On the unix socket only.", Body: conch.PageRequest{}, Optional: true, Answer: conch.PageLink{}, Errors: []conch.Kind{conch.AlreadyRunning}},
		{Name: "logOut", Method: post, Path: "/v1/page/logout", Summary: "Shut all browsers out, and those that were given an address and have not come.", Answer: conch.LoggedOut{}},
	}
}

// relay are the calls about the way to other homes.
func relay() []Route {
	change := func(name, path, summary string, body any, kinds ...conch.Kind) Route {
		return Route{Name: name, Method: post, Path: "/v1/relay/" + path, Summary: summary, Detail: "On the unix socket only.", Body: body, Optional: body == nil, Answer: conch.RelayStatus{},
			Errors: append(kinds, conch.RelayUnreachable, conch.HomeUnusable, conch.Damaged)}
	}
	invite := change("relayInvite", "invite", "Make a text that lets one other home in, once.", conch.RelayInviteRequest{}, conch.LimitReached)
	invite.Optional, invite.Answer = true, conch.RelayInvite{}
	return []Route{
		{Name: "relay", Method: get, Path: "/v1/relay", Summary: "The relay: which it is, and who is there.", Answer: conch.RelayStatus{}},
		change("relayListen", "listen", "Open the home's own relay to other machines, or close it to them.", conch.RelayListenRequest{}),
		invite,
		change("relayJoin", "join", "Use another home's relay, by its invitation, or a NATS cluster.", conch.RelayJoinRequest{}, conch.InvalidInvite, conch.RelayRefused),
		change("relayLeave", "leave", "Go back to the home's own relay.", nil),
		change("relayRemove", "remove", "Shut out a home that was let in.", conch.RelayRemoveRequest{}),
	}
}

// Session are the calls that a session's keeper answers. Of a closed session the
// daemon still answers those that Archived allows.
func Session() []Route {
	list := []Route{
		{Name: "session", Method: get, Path: sessionPath, Summary: "One open session.", Answer: conch.SessionInfo{}, Errors: missing()},
		{Name: "exec", Method: post, Path: sessionPath + "/exec", Summary: "Run a command in the session's shell.",
			Detail: "What comes back depends on Accept: the result, events as they happen, or frames of the tape. " +
				"The header Conch-Command-Id comes at once, even while the command is queued. A command goes on when its client leaves.",
			Query: []Param{
				{Name: "create", Type: Boolean, Doc: "Make the session if there is none."},
				{Name: "cwd", Type: String, Doc: "Where a session that is made starts: an absolute path."},
			},
			Body: conch.ExecBody{}, MaxBody: MaxExecBody, Answer: conch.Result{}, Media: []string{EventType, TapeType},
			Errors: append(missing(), conch.InvalidCommand, conch.InvalidEnv, conch.SessionBusy, conch.QueueFull, conch.QueueTimeout, conch.ShellFailed, conch.OutputGone)},
		{Name: "history", Method: get, Path: sessionPath + "/history", Summary: "The session's commands, oldest first.",
			Query:  []Param{{Name: "limit", Type: Integer, Doc: "Only the last so many; 0: all."}},
			Answer: []conch.HistoryEntry{}, Errors: missing()},
		{Name: "interrupt", Method: post, Path: sessionPath + "/interrupt", Summary: "End what runs, or one command, running or queued.",
			Body: conch.InterruptRequest{}, Optional: true, Answer: conch.Interrupted{}, Errors: append(missing(), conch.CommandNotFound)},
		{Name: "reset", Method: post, Path: sessionPath + "/reset", Summary: "End the shell and all its processes; start a clean one.",
			Answer: conch.Gone{}, Errors: missing()},
		{Name: "keeperShutdown", Method: post, Path: sessionPath + "/shutdown", Summary: "For the daemon: end the keeper.",
			Detail: "close is what clients want.", Answer: conch.Gone{}, Errors: missing()},
		{Name: "events", Method: get, Path: sessionPath + "/events", Summary: "What happens in the session, all commands, as events.",
			Detail: resume + " It follows until the session ends.",
			Query: []Param{after(),
				{Name: "live", Type: Boolean, Doc: "Begin with what comes next instead of the beginning."},
				{Name: "follow", Type: Boolean, Doc: "0: end where the tape ends now."},
			},
			Header: []Param{lastEventID()}, Media: []string{EventType, TapeType}, Empty: "nothing is left to tell of a session that is closed",
			Errors: append(missing(), conch.OutputGone)},
		{Name: "tape", Method: get, Path: sessionPath + "/tape", Summary: "Frames of the tape.",
			Query: []Param{
				{Name: "from", Type: String, Doc: "A cursor, SEGMENT.OFFSET; default the beginning."},
				{Name: "follow", Type: Boolean, Doc: "Go on as frames are added."},
			},
			Media: []string{TapeType}, Errors: append(missing(), conch.OutputGone)},
		{Name: "log", Method: get, Path: sessionPath + "/log", Summary: "The session's whole output as a labelled log, or a recording.",
			Query: []Param{{Name: "format", Type: String, Enum: []string{"labelled", "asciicast"}, Doc: "Default labelled."}},
			Media: []string{BytesType, CastType}, Errors: append(missing(), conch.OutputGone)},
		{Name: "env", Method: get, Path: sessionPath + "/env", Summary: "The exported variables of the session's shell.",
			Answer: conch.Environment{}, Errors: missing()},
		{Name: "changes", Method: get, Path: sessionPath + "/changes", Summary: "For the daemon: the session, now and whenever it changes.",
			Media: []string{EventType}, Errors: missing()},
		{Name: "stats", Method: get, Path: sessionPath + "/stats", Summary: "For the daemon: what the session has counted.",
			Answer: map[string]any{}, Errors: missing()},
	}
	list = append(append(list, processes()...), attach()...)
	for _, r := range append(append(command(), process()...), terminal()...) {
		byID, inSession := r, r
		byID.Path = "/v1" + r.Path
		inSession.Path = sessionPath + r.Path
		inSession.Name = "session" + string(r.Name[0]-'a'+'A') + r.Name[1:]
		list = append(list, byID, inSession)
	}
	return scoped(list)
}

// command are the calls about one command. Each has two paths: by the id alone,
// which is enough, and in its session, which a client's pooled connection needs.
func command() []Route {
	lost := append(missing(), conch.CommandNotFound, conch.OutputGone)
	return []Route{
		{Name: "command", Method: get, Path: "/commands/{id}", Summary: "One command, or its result.",
			Detail: "Without wait the answer is an entry of the history, with it the result, once there is one.",
			Query: []Param{
				{Name: "wait", Type: Boolean, Doc: "Wait for the command's end and answer its result."},
				{Name: "max_output", Type: Integer, Max: MaxResult, Doc: "Bytes of each stream in the result, first and last half; 0: 1 MiB."},
			},
			Answer: Either{conch.HistoryEntry{}, conch.Result{}}, Errors: append(lost, conch.QueueTimeout, conch.ShellFailed)},
		{Name: "output", Method: get, Path: "/commands/{id}/output", Summary: "One stream of a command, whole.",
			Query: []Param{
				{Name: "stream", Type: String, Enum: []string{"stdout", "stderr"}, Doc: "Default stdout."},
				{Name: "follow", Type: Boolean, Doc: "Go on until the command's end."},
			},
			Media: []string{BytesType}, Errors: append(lost, conch.QueueTimeout, conch.ShellFailed)},
		{Name: "commandEvents", Method: get, Path: "/commands/{id}/events", Summary: "What a command does and did, as events.",
			Detail: resume + " It follows until the command's exit, which is the last event.",
			Query:  []Param{after()}, Header: []Param{lastEventID()}, Media: []string{EventType, TapeType},
			Empty: "nothing is left to tell: the command's exit came before", Errors: lost},
		{Name: "stdin", Method: post, Path: "/commands/{id}/stdin", Summary: "Write to the stdin of a command that was started with open_stdin.",
			Query:  stdinQuery(),
			Upload: true, Answer: conch.StdinOffset{}, Errors: append(lost, conch.StdinClosed, conch.QueueTimeout, conch.ShellFailed)},
	}
}

// processes are the calls about a session's background processes.
func processes() []Route {
	return []Route{
		{Name: "run", Method: post, Path: sessionPath + "/run", Summary: "Start a command in the background, in the session's current state.",
			Detail: "The answer comes when it is on record. It goes on without client and daemon.",
			Query: []Param{
				{Name: "create", Type: Boolean, Doc: "Make the session if there is none."},
				{Name: "cwd", Type: String, Doc: "Where a session that is made starts: an absolute path."},
			},
			Body: conch.RunBody{}, MaxBody: MaxExecBody, Answer: conch.Process{},
			Errors: append(missing(), conch.InvalidCommand, conch.InvalidEnv, conch.NameTaken, conch.LimitReached, conch.ShellFailed)},
		{Name: "sessionProcesses", Method: get, Path: sessionPath + "/processes", Summary: "The session's background processes, oldest first.",
			Answer: []conch.Process{}, Errors: missing()},
		{Name: "forget", Method: post, Path: sessionPath + "/processes/prune", Summary: "Take the session's ended processes off the list.",
			Answer: conch.Forgotten{}, Errors: missing()},
	}
}

// process are the calls about one process; each has two paths, like those about a
// command.
func process() []Route {
	lost := append(missing(), conch.ProcessNotFound, conch.CommandNotFound, conch.OutputGone)
	return []Route{
		{Name: "process", Method: get, Path: "/processes/{id}", Summary: "One process.", Answer: conch.Process{}, Errors: lost},
		{Name: "logs", Method: get, Path: "/processes/{id}/logs", Summary: "What a process wrote.",
			Detail: "What comes back depends on Accept: bytes, both streams in the order of their arrival; frames of the tape; or a page of JSON with a cursor to go on from.",
			Query: []Param{
				{Name: "stream", Type: String, Enum: []string{"stdout", "stderr"}, Doc: "Default both."},
				{Name: "since", Type: Integer, Doc: "Only what follows this cursor."},
				{Name: "tail", Type: Integer, Max: 1_000_000, Doc: "Only so many of the last lines."},
				{Name: "grep", Type: String, Doc: "Only lines that match this regular expression (RE2)."},
				{Name: "follow", Type: Boolean, Doc: "Go on until the process ends."},
				{Name: "max_output", Type: Integer, Max: MaxResult, Doc: "About how many bytes a page has; 0: 1 MiB."},
			},
			Answer: conch.LogPage{}, Media: []string{BytesType, TapeType}, Errors: lost},
		{Name: "wait", Method: post, Path: "/processes/{id}/wait", Summary: "Wait for the first of several things to happen to a process.",
			Body: conch.WaitRequest{}, Optional: true, Answer: conch.WaitResult{}, Errors: lost},
		{Name: "signal", Method: post, Path: "/processes/{id}/signal", Summary: "End a process and all that it started, or send them a signal.",
			Body: conch.SignalRequest{}, Optional: true, Answer: conch.Killed{}, Errors: append(lost, conch.ProcessEnded)},
		{Name: "processStdin", Method: post, Path: "/processes/{id}/stdin", Summary: "Write to a process's stdin.",
			Query: stdinQuery(), Upload: true, Answer: conch.StdinOffset{}, Errors: append(lost, conch.StdinClosed)},
	}
}

func stdinQuery() []Param {
	return []Param{
		{Name: "offset", Type: Integer, Doc: "Where in the input these bytes stand: what was taken before is skipped, so a write can be sent again."},
		{Name: "close", Type: Boolean, Doc: "The input ends with these bytes."},
	}
}

// Either is an answer of one type or the other.
type Either [2]any

// Archived says whether a call of Session can be answered for a closed session.
func Archived(name string) bool {
	switch name {
	case "history", "log", "events", "sessionProcesses", "process", "sessionProcess", "logs", "sessionLogs", "wait", "sessionWait", "signal", "sessionSignal",
		"screen", "sessionScreen", "keys", "sessionKeys", "resize", "sessionResize", "cast", "sessionCast", "command", "sessionCommand", "output", "sessionOutput", "commandEvents", "sessionCommandEvents":
		return true
	}
	return false
}

const resume = "Each event's id is its number on the tape; after (or Last-Event-ID) goes on behind one. " +
	"What has fallen off the tape is told by an event named error with the code output_gone, whose id is where to go on. " +
	"A comment comes every 15 s when nothing else does."

func after() Param {
	return Param{Name: "after", Type: Integer, Doc: "The number of the last event that was seen; it goes before Last-Event-ID."}
}

func lastEventID() Param {
	return Param{Name: "Last-Event-ID", Type: Integer, Doc: "The number of the last event that was seen, as browsers send it."}
}

// missing are the ways in which a session is not there to answer.
func missing() []conch.Kind {
	return []conch.Kind{conch.InvalidLabel, conch.InvalidAgent, conch.AgentNotFound, conch.SessionNotFound, conch.SessionClosed, conch.NotRunning}
}
