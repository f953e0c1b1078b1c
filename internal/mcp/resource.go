package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/frame"
)

// What can be read and watched:
//
//	conch://sessions                              the open sessions, JSON
//	conch://session/{agent}/{+label}/history      its commands, JSON
//	conch://session/{agent}/{+label}/transcript   its last commands with their output, text
//	conch://output/{id}/{stream}                  what a command or process wrote, exact
//	conch://inbox                                 the caller's messages, framed; reading leases nothing
//
// (The + lets a label's colon stand as it is.)
const (
	sessionsURI = "conch://sessions"
	inboxURI    = "conch://inbox"
	// readLimit is the most a resource gives of an output: its end.
	readLimit = 1 << 20
	// transcriptCommands and transcriptOutput bound a transcript.
	transcriptCommands = 20
	transcriptOutput   = 2000
	// updateEvery is the least time between two notices of one resource, and how
	// often the list of sessions is looked at, for which nothing wakes a client.
	updateEvery = 500 * time.Millisecond
)

// addResources puts them into the server. Those of open sessions and of processes are
// listed as they are at the time.
func (s *Server) addResources() {
	if s.may("mail") {
		s.sdk.AddResource(&sdk.Resource{URI: inboxURI, Name: "inbox", Description: "your messages", MIMEType: "text/plain"}, s.read)
	}
	if !s.may("read") {
		return
	}
	s.sdk.AddResource(&sdk.Resource{URI: sessionsURI, Name: "sessions", Description: "open sessions", MIMEType: "application/json"}, s.read)
	for _, t := range []*sdk.ResourceTemplate{
		{URITemplate: "conch://session/{agent}/{+label}/history", Name: "history", Description: "a session's commands", MIMEType: "application/json"},
		{URITemplate: "conch://session/{agent}/{+label}/transcript", Name: "transcript", Description: "a session's last commands with their output", MIMEType: "text/plain"},
		{URITemplate: "conch://output/{id}/{stream}", Name: "output", Description: "what a command or process wrote to stdout or stderr: the last MiB", MIMEType: "text/plain"},
	} {
		s.sdk.AddResourceTemplate(t, s.read)
	}
	s.sdk.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			r, err := next(ctx, method, req)
			if list, ok := r.(*sdk.ListResourcesResult); ok && err == nil {
				s.list(ctx, list)
			}
			return r, err
		}
	})
}

// list adds what there is now. Listing starts no daemon: where none runs, nothing does.
func (s *Server) list(ctx context.Context, list *sdk.ListResourcesResult) {
	o := s.o.Client
	o.NoStart = true
	c := client.New(o)
	defer c.CloseIdle()
	sessions, err := c.Sessions(ctx)
	if err != nil {
		return
	}
	for _, i := range sessions {
		if i.ID == "" {
			continue // it has mail, and no shell
		}
		list.Resources = append(list.Resources, &sdk.Resource{
			URI: "conch://session/" + name(&i) + "/transcript", Name: i.Label, Title: "transcript of " + name(&i), MIMEType: "text/plain",
		})
	}
	processes, err := c.Processes(ctx)
	if err != nil {
		return
	}
	for _, p := range processes {
		if p.Status.Ended() {
			continue
		}
		title := frame.OneLine(p.Command, 60)
		if p.Name != "" {
			title = p.Name
		}
		for _, stream := range []string{"stdout", "stderr"} {
			list.Resources = append(list.Resources, &sdk.Resource{
				URI: "conch://output/" + string(p.ProcessID) + "/" + stream, Name: title, Title: stream + " of " + title, MIMEType: "text/plain",
			})
		}
	}
}

// A resource is a URI taken apart and checked.
type resource struct {
	kind    string // sessions, history, transcript, output, inbox
	session string // agent/label
	id      conch.CommandID
	stream  client.EventKind
}

func parseURI(uri string) (resource, error) {
	unknown := func() (resource, error) { return resource{}, sdk.ResourceNotFoundError(uri) }
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "conch" || u.RawQuery != "" || u.Fragment != "" {
		return unknown()
	}
	parts := strings.Split(u.Host+u.Path, "/")
	switch {
	case uri == sessionsURI:
		return resource{kind: "sessions"}, nil
	case uri == inboxURI:
		return resource{kind: "inbox"}, nil
	case len(parts) == 4 && parts[0] == "session" && (parts[3] == "history" || parts[3] == "transcript"):
		if conch.CheckAgent(parts[1]) != nil || conch.CheckLabel(parts[2]) != nil {
			return unknown()
		}
		return resource{kind: parts[3], session: parts[1] + "/" + parts[2]}, nil
	case len(parts) == 3 && parts[0] == "output":
		id := conch.CommandID(parts[1])
		streams, err := streamsOf(parts[2])
		if _, _, iderr := id.Split(); err != nil || iderr != nil || len(streams) != 1 {
			return unknown()
		}
		return resource{kind: "output", id: id, stream: streams[0]}, nil
	}
	return unknown()
}

// read gives a resource's contents. What is not there is the protocol's not found.
func (s *Server) read(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	r, err := parseURI(req.Params.URI)
	if err != nil {
		return nil, err
	}
	if s.o.Reach != nil {
		if err := s.o.Reach(ctx); err != nil {
			return nil, err
		}
	}
	s.harness(req.ClientInfo())
	contents, err := s.contents(ctx, r)
	if notThere(err) {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	if err != nil {
		e := conch.AsError(err)
		return nil, fmt.Errorf("%s: %s (%s)", e.Kind, e.Message, hintFor(e))
	}
	contents.URI = req.Params.URI
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{contents}}, nil
}

func notThere(err error) bool {
	return errors.Is(err, conch.SessionNotFound) || errors.Is(err, conch.CommandNotFound) || errors.Is(err, conch.ProcessNotFound)
}

func (s *Server) contents(ctx context.Context, r resource) (*sdk.ResourceContents, error) {
	var value any
	var err error
	switch r.kind {
	case "sessions":
		value, err = s.client.Sessions(ctx)
	case "history":
		value, err = s.client.History(ctx, r.session, 0)
	case "transcript":
		text, err := s.transcript(ctx, r.session)
		return &sdk.ResourceContents{MIMEType: "text/plain", Text: text}, err
	case "inbox":
		text, err := s.showInbox(ctx)
		return &sdk.ResourceContents{MIMEType: "text/plain", Text: text}, err
	case "output":
		c := &call{s: s}
		data, _, err := c.tail(ctx, r.id, r.stream, 1<<30, readLimit)
		if err != nil {
			return nil, err
		}
		if !utf8.Valid(data) {
			return &sdk.ResourceContents{MIMEType: "application/octet-stream", Blob: data}, nil
		}
		return &sdk.ResourceContents{MIMEType: "text/plain", Text: string(data)}, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(value)
	return &sdk.ResourceContents{MIMEType: "application/json", Text: string(b)}, err
}

// transcript is a session's last commands as a terminal would have shown them.
func (s *Server) transcript(ctx context.Context, session string) (string, error) {
	list, err := s.client.History(ctx, session, transcriptCommands)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	c := &call{s: s}
	for _, h := range list {
		fmt.Fprintf(&b, "$ %s\n", frame.OneLine(h.Command, 500))
		for _, stream := range []client.EventKind{client.Stdout, client.Stderr} {
			data, total, err := c.tail(ctx, h.CommandID, stream, transcriptCommands*10, transcriptOutput)
			if errors.Is(err, conch.OutputGone) || errors.Is(err, conch.CommandNotFound) {
				continue // fallen off the tape, or never run
			}
			if err != nil {
				return "", err
			}
			sec := section{name: stream.String(), data: data, total: total}
			if cut := total - int64(len(data)); cut > 0 {
				sec.omitted = &conch.Omitted{Bytes: cut}
				sec.more = fmt.Sprintf("conch://output/%s/%s has more", h.CommandID, stream)
			}
			text, _ := cutText(sec)
			b.WriteString(text)
			if text != "" && !strings.HasSuffix(text, "\n") {
				b.WriteByte('\n')
			}
		}
		fmt.Fprintf(&b, "[%s]\n", strings.SplitN(commandLine(&h), " · ", 2)[0])
	}
	return b.String(), nil
}

// A watch notices changes of one resource for those who have subscribed.
type watch struct {
	subscribers int
	stop        context.CancelFunc
}

// subscribe begins to watch. A change is a doorbell: it says that there is something
// to read, and may come once for several.
func (s *Server) subscribe(ctx context.Context, req *sdk.SubscribeRequest) error {
	uri := req.Params.URI
	r, err := parseURI(uri)
	if err != nil {
		return err
	}
	if need := map[bool]string{true: "mail", false: "read"}[r.kind == "inbox"]; !s.may(need) {
		return sdk.ResourceNotFoundError(uri)
	}
	if s.o.Reach != nil {
		if err := s.o.Reach(ctx); err != nil {
			return err
		}
	}
	s.harness(req.ClientInfo())
	// What cannot be read cannot change.
	at, err := s.look(ctx, r)
	if notThere(err) {
		return sdk.ResourceNotFoundError(uri)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watched[uri]
	if w == nil && r.kind == "inbox" {
		w = &watch{stop: func() {}} // who listens for the mail rings
		s.watched[uri] = w
	}
	if w == nil {
		w = new(watch)
		var wctx context.Context
		wctx, w.stop = context.WithCancel(s.left)
		s.watched[uri] = w
		go s.watch(wctx, uri, r, at) // ends with the last subscription, or the server
	}
	w.subscribers++
	return nil
}

func (s *Server) unsubscribe(_ context.Context, req *sdk.UnsubscribeRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.watched[req.Params.URI]; w != nil {
		if w.subscribers--; w.subscribers <= 0 {
			w.stop()
			delete(s.watched, req.Params.URI)
		}
	}
	return nil
}

// look gives something that is another when the resource is. Of an output it is the
// number of its bytes.
func (s *Server) look(ctx context.Context, r resource) (string, error) {
	switch r.kind {
	case "output":
		h, err := s.client.Command(ctx, r.id)
		if err != nil {
			return "", err
		}
		if r.stream == client.Stderr {
			return fmt.Sprint(h.StderrBytes), nil
		}
		return fmt.Sprint(h.StdoutBytes), nil
	case "sessions":
		list, err := s.client.Sessions(ctx)
		var b strings.Builder
		for _, i := range list {
			fmt.Fprintln(&b, name(&i), i.ID, i.Live, i.Running, i.Queue, i.Processes, i.Cwd)
		}
		return b.String(), err
	case "inbox":
		_, err := (&call{s: s}).own(ctx)
		return "", err
	}
	i, err := s.client.Session(ctx, r.session)
	if err != nil {
		return "", err
	}
	return fmt.Sprintln(i.ID, i.Running, i.Queue, i.TapeBytes), nil
}

// watch rings until it is told to stop, or nothing can change any more.
func (s *Server) watch(ctx context.Context, uri string, r resource, at string) {
	news := make(chan struct{}, 1)
	go func() { // ends with ctx, or when there will be no news
		defer close(news)
		tell := func() {
			select {
			case news <- struct{}{}:
			default: // not yet rung for the last
			}
		}
		switch r.kind {
		case "output":
			s.awaitOutput(ctx, r, at, tell)
		case "sessions":
			s.awaitSessions(ctx, r, at, tell)
		default:
			s.awaitSession(ctx, r, at, tell)
		}
	}()
	for range news {
		s.sdk.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: uri})
		if !pause(ctx) {
			return
		}
	}
}

func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(updateEvery):
		return true
	}
}

// awaitOutput is woken by what a command or process writes.
func (s *Server) awaitOutput(ctx context.Context, r resource, at string, tell func()) {
	var seen int64
	fmt.Sscan(at, &seen)
	for cuts := 0; cuts < 5; cuts++ {
		out, err := s.client.Output(ctx, r.id, r.stream, true)
		if err != nil {
			return
		}
		// A cancelled context cuts the connection, and with it the reading.
		_, err = io.CopyN(io.Discard, out, seen)
		buf := make([]byte, 64<<10)
		for err == nil {
			var n int
			n, err = out.Read(buf)
			if seen += int64(n); n > 0 {
				tell()
			}
		}
		out.Close()
		if err == io.EOF || ctx.Err() != nil {
			return
		}
	}
}

// awaitSession is woken by whatever happens in a session.
func (s *Server) awaitSession(ctx context.Context, r resource, at string, tell func()) {
	w, err := s.client.Watch(ctx, r.session, client.WatchOptions{Live: true})
	if err != nil {
		tell() // whoever reads now learns why
		return
	}
	defer w.Close()
	// What happened before the watch began.
	if now, err := s.look(ctx, r); err == nil && now != at {
		tell()
	}
	for {
		_, err := w.Next()
		if ctx.Err() != nil {
			return
		}
		tell()
		if err != nil {
			return
		}
	}
}

// awaitSessions looks now and then: nothing tells of all sessions.
func (s *Server) awaitSessions(ctx context.Context, r resource, at string, tell func()) {
	for pause(ctx) {
		if now, err := s.look(ctx, r); err == nil && now != at {
			at = now
			tell()
		}
	}
}
