package keeper

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/history"
	"github.com/conchsh/conch/internal/logs"
	"github.com/conchsh/conch/internal/proc"
	"github.com/conchsh/conch/internal/route"
	"github.com/conchsh/conch/internal/tape"
)

// handlers are the functions of the calls that keepers answer, by the names that
// package route has for them.
func (k *Keeper) handlers() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"session":        k.getInfo,
		"exec":           k.postExec,
		"history":        k.getHistory,
		"interrupt":      k.postInterrupt,
		"reset":          k.postReset,
		"keeperShutdown": k.postShutdown,
		"events":         k.getEvents,
		"tape":           k.getTape,
		"log":            k.getLog,
		"env":            k.getEnv,
		"stats":          k.getStats,
		"changes":        k.getChanges,
		"command":        k.getCommand, "sessionCommand": k.getCommand,
		"output": k.getOutput, "sessionOutput": k.getOutput,
		"commandEvents": k.getCommandEvents, "sessionCommandEvents": k.getCommandEvents,
		"stdin": k.postStdin, "sessionStdin": k.postStdin,
		"run":              k.postRun,
		"sessionProcesses": k.getProcesses,
		"forget":           k.postForget,
		"process":          k.getProcess, "sessionProcess": k.getProcess,
		"logs": k.getLogs, "sessionLogs": k.getLogs,
		"wait": k.postWait, "sessionWait": k.postWait,
		"signal": k.postSignal, "sessionSignal": k.postSignal,
		"processStdin": k.postStdin, "sessionProcessStdin": k.postStdin,
		"screen": k.getScreen, "sessionScreen": k.getScreen,
		"keys": k.postKeys, "sessionKeys": k.postKeys,
		"resize": k.postResize, "sessionResize": k.postResize,
		"cast": k.getCast, "sessionCast": k.getCast,
		"processAttach": k.getProcessAttach, "sessionProcessAttach": k.getProcessAttach,
		"attach":       k.getAttach,
		"attachStdin":  k.postAttachStdin,
		"attachResize": k.postAttachResize,
		"ownScreen":    k.getSessionScreen,
	}
}

// handler serves the session's part of /v1, and commands by id alone.
func (k *Keeper) handler() http.Handler {
	mux, wrong := route.Build(route.Session(), k.handlers(), sendError)
	if len(wrong) > 0 { // a test looks at this
		k.log.Error("calls without handler, or handlers without call", "names", wrong)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.identify(w.Header())
		// A connection belongs to this session for ever. Only a client that
		// says it knows (it names the session as its host) may keep it.
		if !strings.HasPrefix(r.Host, "s-") {
			w.Header()["Connection"] = []string{"close"}
		}
		mux.ServeHTTP(w, r)
	})
}

// identify says whom a client talks to, in every answer.
func (k *Keeper) identify(h http.Header) {
	h["Conch-Protocol"] = []string{strconv.Itoa(conch.ProtocolVersion)}
	h["Conch-Version"] = []string{k.version}
}

func sendJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		sendError(w, err)
		return
	}
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(b) + 1)}
	w.Write(append(b, '\n'))
}

func sendError(w http.ResponseWriter, err error) {
	e := conch.AsError(err)
	b, _ := json.Marshal(e.Body())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Kind.HTTPStatus())
	w.Write(append(b, '\n'))
}

func (k *Keeper) closedError() error {
	return conch.Errorf(conch.SessionClosed, "session %s is closed", k.spec.Label).Hint("run the command again: it makes a new session")
}

// getInfo describes the session.
func (k *Keeper) getInfo(w http.ResponseWriter, r *http.Request) {
	var info conch.SessionInfo
	if !k.do(func() { info = k.info() }) {
		sendError(w, k.closedError())
		return
	}
	sendJSON(w, info)
}

func (k *Keeper) info() conch.SessionInfo {
	i := conch.SessionInfo{
		Agent: k.spec.Agent, Label: k.spec.Label, ID: k.spec.ID, Busy: k.running() != nil, Live: k.cur != nil, Attached: k.att.peopleThere(), Cwd: k.cwd,
		KeeperPID: os.Getpid(), Queue: len(k.queue), Processes: len(k.procs), StartedAt: k.spec.Created, LastActive: k.lastActive.UTC(), TapeBytes: k.tape.Size(),
		Sandbox: k.spec.Sandbox != nil,
	}
	if k.sh != nil {
		i.ShellPID = k.sh.PID
		if k.running() != nil {
			if d := k.sh.Cwd(); d != "" {
				i.Cwd = d
			}
		}
	}
	if c := k.running(); c != nil {
		i.Running = c.id
		i.Command = c.req.Command[:min(len(c.req.Command), 200)]
	}
	list := k.index.Entries()
	for n := len(list) - 1; n >= 0; n-- {
		if e := list[n]; e.Exit != nil {
			i.LastCommand, i.LastOutcome = e.Text[:min(len(e.Text), 200)], e.Exit.Outcome()
			if e.Long {
				text := k.longText(e)
				i.LastCommand = text[:min(len(text), 200)]
			}
			break
		}
	}
	return i
}

// decodeExec reads and checks a request to run a command.
func decodeExec(w http.ResponseWriter, r *http.Request) (conch.ExecRequest, error) {
	var body conch.ExecBody
	b, err := route.Read(w, r, route.MaxExecBody)
	if err != nil {
		if errors.Is(err, conch.TooLarge) {
			err = conch.AsError(err).Hint("send large input through stdin (-i)")
		}
		return body.ExecRequest, err
	}
	if err := route.Strict(b, &body); err != nil {
		return body.ExecRequest, err
	}
	if body.Command == "" {
		if err := route.Required(b, &body); err != nil {
			return body.ExecRequest, err
		}
	}
	q := body.ExecRequest
	if err := decodeText(body.Encoding, &q.Command, &q.Cwd, q.Env); err != nil {
		return q, err
	}
	return q, checkExec(&q)
}

// decodeText undoes the base64 that carries bytes JSON cannot.
func decodeText(encoding string, command, cwd *string, env map[string]string) error {
	switch encoding {
	case "", "utf-8":
		return nil
	case "base64":
	default:
		return conch.Errorf(conch.InvalidRequest, "unknown encoding %q", encoding).Hint("utf-8 or base64")
	}
	plain := func(s string) (string, error) {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return "", conch.Errorf(conch.InvalidRequest, "bad base64: %v", err)
		}
		return string(b), nil
	}
	for _, p := range []*string{command, cwd} {
		var err error
		if *p, err = plain(*p); err != nil {
			return err
		}
	}
	for name, v := range env {
		text, err := plain(v)
		if err != nil {
			return conch.Errorf(conch.InvalidRequest, "env %s: %v", name, err)
		}
		env[name] = text
	}
	return nil
}

func checkExec(q *conch.ExecRequest) error {
	if strings.IndexByte(q.Command, 0) >= 0 {
		return conch.Errorf(conch.InvalidCommand, "the command holds a NUL byte, which no shell can read").
			Hint("put binary data into stdin or a file; printf '\\0' makes a NUL")
	}
	if len(q.Command) > route.MaxCommand {
		return conch.Errorf(conch.TooLarge, "the command is %d bytes; the limit is %d", len(q.Command), route.MaxCommand).Hint("put it into a script file and run that")
	}
	for name, v := range q.Env {
		if err := conch.CheckEnvName(name); err != nil {
			return err
		}
		if strings.IndexByte(v, 0) >= 0 {
			return conch.Errorf(conch.InvalidEnv, "the value of %s holds a NUL byte", name)
		}
	}
	if strings.IndexByte(q.Cwd, 0) >= 0 {
		return conch.Errorf(conch.InvalidRequest, "cwd holds a NUL byte")
	}
	if q.TimeoutMS < 0 || q.QueueTimeoutMS < 0 || q.MaxOutput < 0 {
		return conch.Errorf(conch.InvalidRequest, "timeouts and max_output cannot be negative")
	}
	if limit := logs.MaxWait.Milliseconds(); q.TimeoutMS > limit || q.QueueTimeoutMS > limit {
		return conch.Errorf(conch.InvalidRequest, "a timeout is at most %d milliseconds (a year)", limit).Hint("leave it out for none")
	}
	return nil
}

// submit puts a command into the queue. The error is one the caller can act on.
// attend says that the caller will call await at once.
func (k *Keeper) submit(q conch.ExecRequest, peerPID int, attend bool) (*command, error) {
	c := &command{req: q, queuedAt: time.Now(), status: conch.StatusQueued, began: make(chan struct{}), done: make(chan struct{}), peer: peerPID}
	if q.OpenStdin || len(q.Stdin) > 0 {
		c.stdin = newStdin(q)
	}
	var err error
	ok := k.do(func() {
		if k.stopping != nil {
			err = k.closedError()
			return
		}
		if err = k.admit(c); err != nil {
			return
		}
		c.n = k.next
		k.next++
		c.id = conch.NewCommandID(k.spec.ID, c.n)
		if q.QueueTimeoutMS > 0 {
			c.queueLimit = c.queuedAt.Add(time.Duration(q.QueueTimeoutMS) * time.Millisecond)
		}
		k.queue = append(k.queue, c)
		k.clearUp()
		if k.att.holds() {
			k.tellWaiting(c)
		} else if attend && k.cur == nil && k.ckpt == nil && len(k.queue) == 1 && !k.blocked {
			k.attended = c // and advance starts it
		}
	})
	if !ok {
		return nil, k.closedError()
	}
	return c, err
}

// askedByItself refuses a caller that the running command itself started.
func (k *Keeper) askedByItself(peer int) error {
	if c := k.running(); c != nil && peer > 0 {
		if m, ok := proc.MarkOf(peer); ok && m == proc.MakeMark(k.mark, c.n) {
			return conch.Errorf(conch.SessionBusy, "session %s is running the very command that asks (%s)", k.spec.Label, c.id).
				Hint("use another session (-s NAME), or plain bash -c inside a command")
		}
	}
	return nil
}

// postExec runs a command; what comes back depends on what the client accepts.
func (k *Keeper) postExec(w http.ResponseWriter, r *http.Request) {
	q, err := decodeExec(w, r)
	if err == nil {
		err = k.checkResult(&q)
	}
	if err != nil {
		sendError(w, err)
		return
	}
	if gone(r) {
		return // it does not want to know any more, and has not been told yes
	}
	accept := r.Header.Get("Accept")
	frames, events := strings.Contains(accept, route.TapeType), strings.Contains(accept, route.EventType)
	c, err := k.submit(q, peer(r), !frames && !events)
	if err != nil {
		sendError(w, err)
		return
	}
	w.Header()["Conch-Command-Id"] = []string{string(c.id)}
	switch {
	case frames, events:
		k.tellExec(w, r, c, frames)
	default:
		if !k.await(r, c) {
			k.clientGone(c)
		} else {
			k.sendResult(w, c, q.MaxOutput)
			http.NewResponseController(w).Flush()
			k.do(func() {}) // clears up after the command, now that nobody waits
		}
	}
}

// await waits for the end of a command and reports false if the client leaves before.
// The command goes on either way.
func (k *Keeper) await(r *http.Request, c *command) bool {
	if !k.attend(r, c) {
		return false
	}
	select {
	case <-c.done:
		return true
	default:
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-c.done:
		return true
	case <-t.C:
	}
	ctx, stop := k.present(r)
	defer stop()
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
		return false
	}
}

func (k *Keeper) sendResult(w http.ResponseWriter, c *command, limit int64) {
	if c.failed != nil {
		sendError(w, c.failed)
		return
	}
	res := *c.result
	if err := k.fillStreams(&res, c, limit); err != nil {
		sendError(w, err)
		return
	}
	sendJSON(w, res)
}

// find looks a command up by its id, running or not.
func (k *Keeper) find(id conch.CommandID) (n uint32, err error) {
	sid, n, err := id.Split()
	if err != nil {
		return 0, err
	}
	if sid != k.spec.ID {
		return 0, conch.Errorf(conch.CommandNotFound, "no command %s in session %s", id, k.spec.Label)
	}
	return n, nil
}

// lookup gives a copy of a command's record; live is the command if it has not
// been forgotten.
func (k *Keeper) lookup(id conch.CommandID) (e history.Entry, live *command, h conch.HistoryEntry, err error) {
	n, err := k.find(id)
	if err != nil {
		return e, nil, h, err
	}
	ok := k.do(func() {
		for i, c := range k.queue {
			if c.n == n {
				live, h = c, k.describeQueued(c, i+1)
				return
			}
		}
		for _, c := range []*command{k.cur, k.closing} {
			if c != nil && c.n == n {
				live = c
			}
		}
		if p := k.procs[n]; p != nil {
			live = p.command
		}
		p := k.index.Get(n)
		if p == nil {
			err = conch.Errorf(conch.CommandNotFound, "no command %s in session %s", id, k.spec.Label).Hint("conch history -s %s lists them", k.spec.Label)
			return
		}
		e = *p
		h = k.index.Describe(p, k.longText)
	})
	if !ok {
		err = k.closedError()
	}
	return e, live, h, err
}

// readExit is the whole end of a command, from the tape.
func (k *Keeper) readExit(e *history.Entry) (history.Exit, error) {
	r := k.tape.NewReader(e.ExitAt)
	defer r.Close()
	return history.ReadExit(r)
}

func (k *Keeper) longText(e *history.Entry) string {
	r := k.tape.NewReader(e.From)
	defer r.Close()
	return history.Text(r)
}

func (k *Keeper) describeQueued(c *command, pos int) conch.HistoryEntry {
	return conch.HistoryEntry{CommandID: c.id, Session: k.spec.Label, Command: c.req.Command, Status: conch.StatusQueued, Position: pos}
}

func (k *Keeper) getHistory(w http.ResponseWriter, r *http.Request) {
	limit := int(route.Int(r, "limit"))
	list := []conch.HistoryEntry{}
	ok := k.do(func() {
		for _, e := range k.index.Entries() {
			list = append(list, k.index.Describe(e, k.longText))
		}
		for i, c := range k.queue {
			list = append(list, k.describeQueued(c, i+1))
		}
	})
	if !ok {
		sendError(w, k.closedError())
		return
	}
	if limit > 0 && len(list) > limit {
		list = list[len(list)-limit:]
	}
	sendJSON(w, list)
}

func (k *Keeper) getCommand(w http.ResponseWriter, r *http.Request) {
	id := conch.CommandID(r.PathValue("id"))
	e, live, h, err := k.lookup(id)
	if err != nil {
		sendError(w, err)
		return
	}
	if !route.Bool(r, "wait") {
		sendJSON(w, h)
		return
	}
	limit := route.Int(r, "max_output")
	if limit == 0 || limit > k.limits.result {
		limit = min(route.DefResult, k.limits.result)
	}
	if live != nil {
		if k.await(r, live) {
			k.sendResult(w, live, limit)
		}
		return
	}
	if e.Exit == nil {
		sendError(w, conch.Errorf(conch.CommandNotFound, "command %s has no result", id))
		return
	}
	ex, err := k.readExit(&e)
	if err != nil {
		sendError(w, err)
		return
	}
	res := ex.Result
	if err := k.readStreams(&res, e, limit); err != nil {
		sendError(w, err)
		return
	}
	sendJSON(w, res)
}

func (k *Keeper) postInterrupt(w http.ResponseWriter, r *http.Request) {
	var body conch.InterruptRequest
	if err := route.Decode(w, r, route.MaxBody, true, &body); err != nil {
		sendError(w, err)
		return
	}
	if body.CommandID != "" {
		if _, err := k.find(body.CommandID); err != nil {
			sendError(w, err)
			return
		}
	}
	ch := make(chan conch.Ended, 1)
	var id conch.CommandID
	var found bool
	if !k.do(func() { id, found = k.interrupt(body.CommandID, ch) }) {
		sendError(w, k.closedError())
		return
	}
	if !found {
		sendJSON(w, conch.Interrupted{})
		return
	}
	rep := <-ch // the ladder has an end
	sendJSON(w, conch.Interrupted{Interrupted: true, CommandID: id, Ended: &rep})
}

func (k *Keeper) postReset(w http.ResponseWriter, r *http.Request) {
	ch := make(chan proc.Report, 1)
	if !k.do(func() { k.reset(func(rep proc.Report) { ch <- rep }) }) {
		sendError(w, k.closedError())
		return
	}
	rep := <-ch
	sendJSON(w, conch.Gone{OK: true, Processes: rep.Processes, Verified: rep.Verified})
}

func (k *Keeper) postShutdown(w http.ResponseWriter, r *http.Request) {
	ch := make(chan proc.Report, 1)
	if !k.do(func() { k.shutdown(func(rep proc.Report) { ch <- rep }) }) {
		sendError(w, k.closedError())
		return
	}
	rep := <-ch
	sendJSON(w, conch.Gone{OK: true, Processes: rep.Processes, Verified: rep.Verified})
}

func (k *Keeper) postStdin(w http.ResponseWriter, r *http.Request) {
	id := conch.CommandID(r.PathValue("id"))
	e, live, _, err := k.lookup(id)
	if err != nil {
		sendError(w, err)
		return
	}
	var in *stdin
	k.do(func() {
		if live != nil {
			in = live.stdin
		} else if in = k.inputs[e.N]; in != nil {
			over := make(chan struct{})
			close(over)
			live = &command{began: over, done: over, stdin: in} // for a write that is sent again
		}
	})
	if in == nil {
		err := conch.Errorf(conch.StdinClosed, "command %s has no open stdin", id).Hint("exec -i (open_stdin) leaves it open")
		if e.Process != nil && e.Exit != nil {
			err = conch.Errorf(conch.StdinClosed, "process %s has ended and reads nothing any more", id).Hint("conch ps shows how it ended")
		} else if e.Process != nil {
			err = conch.Errorf(conch.StdinClosed, "process %s was started without a stdin", id).Hint("run it without --no-stdin")
		}
		sendError(w, err)
		return
	}
	q := r.URL.Query()
	offset := int64(-1)
	if q.Has("offset") {
		offset = route.Int(r, "offset")
	}
	ctx, stop := k.present(r)
	defer stop()
	if began(ctx, live) != nil {
		return
	}
	k.do(func() { in = live.stdin }) // a second attempt has a new one
	hurry := patient(r, live.done)   // a person may be typing
	at, err := in.write(ctx, r.Body, offset, route.Bool(r, "close"), live.done)
	hurry()
	if err != nil {
		sendError(w, inputError(err, at))
		return
	}
	sendJSON(w, conch.StdinOffset{Offset: at})
}

// inputError names the ways in which input stops coming.
func inputError(err error, at int64) error {
	var e *conch.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, route.ErrSlow):
		return conch.Errorf(conch.StdinClosed, "the command ended while its input was awaited; it had taken %d bytes", at)
	}
	return conch.Errorf(conch.InvalidRequest, "the input was cut off after %d bytes: %v", at, err).Hint("send the rest with offset=%d", at)
}

// getEnv is the exported environment after the last command.
func (k *Keeper) getEnv(w http.ResponseWriter, r *http.Request) {
	ch := make(chan map[string]string, 1)
	if !k.do(func() { k.afterCheckpoint(func() { ch <- k.environ() }) }) {
		sendError(w, k.closedError())
		return
	}
	sendJSON(w, conch.Environment{Env: <-ch})
}

func (k *Keeper) environ() map[string]string {
	if k.state != nil {
		return k.state.Environ()
	}
	env := map[string]string{}
	for _, kv := range shellEnv() {
		name, v, _ := strings.Cut(kv, "=")
		env[name] = v
	}
	return env
}

func (k *Keeper) getLog(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("format") == "asciicast" {
		k.castSession(w)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	rd := k.tape.NewReader(tape.Cursor{})
	defer rd.Close()
	if err := tape.WriteLabelled(w, rd); err != nil {
		k.log.Warn("log export", "err", err)
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
}
