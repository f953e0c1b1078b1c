package mcp

import (
	"context"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/conchsh/conch/internal/frame"
)

const (
	// progressEvery is the least time between two notifications of a call.
	progressEvery = 250 * time.Millisecond
	// progressQuiet is when a call without output says that it goes on: some
	// clients give up on one that says nothing.
	progressQuiet = 10 * time.Second
	// progressText is the most output a notification holds: its last lines.
	progressText = 1000
)

// progress tells the client of a command's output while it runs. It never holds the
// command up: what comes faster than it may be told is left out but for its end. A nil
// progress tells nobody.
type progress struct {
	wake chan struct{}
	done chan struct{}
	stop context.CancelFunc

	mu   sync.Mutex // guards text
	text []byte     // not yet told
}

// progress gives nil where the client did not ask for it.
func (c *call) progress(ctx context.Context) *progress {
	token := c.req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	p := &progress{wake: make(chan struct{}, 1), done: make(chan struct{}), stop: stop}
	go p.tell(ctx, c.req.Session, token) // ends with close, or with the call
	return p
}

func (p *progress) add(b []byte) {
	if p == nil || len(b) == 0 {
		return
	}
	p.mu.Lock()
	if len(b) >= progressText {
		p.text = append(p.text[:0], b[len(b)-progressText:]...)
	} else {
		p.text = append(p.text, b...)
		if over := len(p.text) - progressText; over > 0 {
			p.text = append(p.text[:0], p.text[over:]...)
		}
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// close returns when nothing more will be told: a notification must not follow the
// call's answer.
func (p *progress) close() {
	if p == nil {
		return
	}
	p.stop()
	<-p.done
}

func (p *progress) tell(ctx context.Context, session *sdk.ServerSession, token any) {
	defer close(p.done)
	begun := time.Now()
	quiet := time.NewTimer(progressQuiet)
	defer quiet.Stop()
	for {
		silent := false
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			silent = true
		case <-p.wake:
		}
		p.mu.Lock()
		text, _ := frame.Plain(lastLines(p.text, 20, progressText))
		p.text = p.text[:0]
		p.mu.Unlock()
		elapsed := time.Since(begun)
		if text == "" && !silent {
			continue // told already, with what came before it
		}
		if text == "" {
			text = "running for " + elapsed.Round(time.Second).String()
		}
		// Seconds: the protocol wants a number that grows.
		err := session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
			ProgressToken: token, Progress: elapsed.Seconds(), Message: text,
		})
		if err != nil {
			return
		}
		quiet.Reset(progressQuiet)
		select {
		case <-ctx.Done():
			return
		case <-time.After(progressEvery):
		}
	}
}
