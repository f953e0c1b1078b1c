package web_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/creack/pty"

	"github.com/conchsh/conch/internal/conchtest"
)

// These tests drive the page in a real Chromium: one browser for all of them, a profile
// of its own for each.

const root = "../.."

var chrome struct {
	sync.Mutex
	ctx  context.Context
	stop func()
	dir  string
}

func TestMain(m *testing.M) {
	code := func() int {
		defer func() {
			if chrome.stop != nil {
				chrome.stop()
				os.RemoveAll(chrome.dir)
			}
		}()
		return m.Run()
	}()
	conchtest.Clean()
	os.Exit(code)
}

// missing ends a test that cannot be run here. Where everything is to be tested that is
// a failure.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip("NOT TESTED: " + why)
}

// browser starts Chromium, once.
func browser(t *testing.T) context.Context {
	t.Helper()
	if list, _ := fs.Glob(os.DirFS("dist"), "app-*.js.gz"); len(list) == 0 {
		missing(t, "the page was not built: run make, which needs npm and its packages")
	}
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		missing(t, "there is no chromium: apt-get install chromium, or run make test as root on Debian")
	}
	chrome.Lock()
	defer chrome.Unlock()
	if chrome.ctx != nil {
		return chrome.ctx
	}
	dir, err := os.MkdirTemp("", "conch-chromium")
	if err != nil {
		t.Fatal(err)
	}
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.UserDataDir(dir), chromedp.WindowSize(1280, 800),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("lang", "en-GB"),
	}
	for _, f := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage",
		"disable-extensions", "disable-default-apps", "metrics-recording-only", "mute-audio"} {
		opts = append(opts, chromedp.Flag(f, true))
	}
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	alloc, end := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		end()
		t.Fatalf("chromium does not start: %v", err)
	}
	chrome.ctx, chrome.dir = ctx, dir
	chrome.stop = func() { chromedp.Cancel(ctx); cancel(); end() }
	return ctx
}

// A page is a tab in a profile of its own.
type page struct {
	*testing.T
	h   *conchtest.Home
	ctx context.Context

	mu      sync.Mutex
	said    []string // errors on the console
	foreign []string // requests to elsewhere
	host    string

	forgiven []string
	loads    map[string]int64 // bytes over the wire, by path
}

// open gives a fresh tab that is logged in to a home's page.
func open(t *testing.T, h *conchtest.Home, flags ...string) *page {
	t.Helper()
	p := blank(t, h)
	p.visit(p.link(flags...))
	return p
}

func blank(t *testing.T, h *conchtest.Home) *page {
	t.Helper()
	b := browser(t)
	ctx, cancel := chromedp.NewContext(b, chromedp.WithNewBrowserContext())
	ctx, stop := context.WithTimeout(ctx, 60*time.Second)
	p := &page{T: t, h: h, ctx: ctx, loads: map[string]int64{}}
	console := chromedp.Console(ctx)
	requests := chromedp.Events(ctx, network.RequestWillBeSent)
	responses := chromedp.Events(ctx, network.ResponseReceived)
	finished := chromedp.Events(ctx, network.LoadingFinished)
	p.do(chromedp.EmulateViewport(1280, 800))
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for m, err := range console {
			if err != nil {
				return
			}
			if m.Type == "error" || m.Type == "warning" || m.Type == chromedp.ConsoleException {
				p.mu.Lock()
				p.said = append(p.said, fmt.Sprintf("%s: %s (%s)", m.Type, m.Text, m.URL))
				p.mu.Unlock()
			}
		}
	})
	wg.Go(func() {
		for e, err := range requests {
			if err != nil {
				return
			}
			u, _ := url.Parse(e.Request.URL)
			p.mu.Lock()
			if u != nil && u.Scheme != "data" && u.Host != p.host {
				p.foreign = append(p.foreign, e.Request.URL)
			}
			p.mu.Unlock()
		}
	})
	paths := map[network.RequestID]string{}
	wg.Go(func() {
		for e, err := range responses {
			if err != nil {
				return
			}
			u, _ := url.Parse(e.Response.URL)
			p.mu.Lock()
			paths[e.RequestID] = u.Path
			p.mu.Unlock()
		}
	})
	wg.Go(func() {
		for e, err := range finished {
			if err != nil {
				return
			}
			p.mu.Lock()
			p.loads[paths[e.RequestID]] += int64(e.EncodedDataLength)
			p.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		if t.Failed() {
			p.shot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
			t.Logf("on the page:\n%s", p.eval("document.body.innerText.slice(0, 3000)"))
		}
		stop()
		cancel()
		wg.Wait()
		if len(p.foreign) > 0 {
			t.Errorf("requests to elsewhere: %q", p.foreign)
		}
		for _, s := range p.said {
			if !slices.ContainsFunc(p.forgiven, func(text string) bool { return strings.Contains(s, text) }) {
				t.Errorf("on the console: %s", s)
			}
		}
	})
	return p
}

// link is an address that lets a browser in, made by a person: conch reads from a
// terminal.
func (p *page) link(flags ...string) string {
	p.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		p.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	out := p.h.Feed(slave, append([]string{"ui", "--print"}, flags...)...)
	for word := range strings.FieldsSeq(out.Stdout) {
		if strings.HasPrefix(word, "http://") {
			return word
		}
	}
	p.Fatalf("no address in %v", out)
	return ""
}

func (p *page) visit(address string) {
	p.Helper()
	u, err := url.Parse(address)
	if err != nil {
		p.Fatal(err)
	}
	p.mu.Lock()
	p.host = u.Host
	p.mu.Unlock()
	p.do(chromedp.Navigate(address))
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.Fatal(err)
	}
}

// eval is the text of an expression's value, or of a promise's.
func (p *page) eval(js string) string {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`(async () => String(`+js+`))()`, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Errorf("%s: %v", js, err)
	}
	return v
}

// until waits for an expression to be true.
func (p *page) until(what, js string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 15*time.Second)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](js, chromedp.WithPollingInterval(30*time.Millisecond))); err != nil {
		p.Fatalf("%s: never was (%s): %v", what, js, err)
	}
}

// text waits for a text to be seen in an element.
func (p *page) text(selector, text string) {
	p.Helper()
	p.until(fmt.Sprintf("%q in %s", text, selector), fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.innerText.includes(%q))`, selector, text))
}

// click waits for an element with a text ("" any) and clicks on it.
func (p *page) click(selector, text string) {
	p.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%q)].find(e => e.innerText.includes(%q) && !e.disabled && e.getClientRects().length)`, selector, text)
	p.until(fmt.Sprintf("%s with %q", selector, text), "!!"+find)
	p.eval(find + ".click()")
}

// fill types into a field, key by key, and leaves it with what ends.
func (p *page) fill(selector, text string) {
	p.Helper()
	p.until(selector, fmt.Sprintf(`!!document.querySelector(%q)`, selector))
	p.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// keys presses keys as a keyboard does: the browser makes characters of those that no
// script has taken, which chromedp's own events come with in any case.
func (p *page) keys(text string) {
	p.Helper()
	for _, r := range text {
		char := ""
		for _, e := range kb.Encode(r) {
			char += e.Text
		}
		for _, e := range kb.Encode(r) {
			switch e.Type {
			case input.DispatchKeyEventTypeChar:
				continue
			case input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeRawKeyDown:
				e.Type, e.Text = input.DispatchKeyEventTypeKeyDown, char
			}
			if _, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, *e); err != nil {
				p.Fatal(err)
			}
		}
	}
}

func (p *page) size(width, height int64) {
	p.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

func (p *page) colours(scheme string) {
	p.Helper()
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
		p.Fatal(err)
	}
}

// renderer is the process that shows this page: the one whose memory grows with it.
func (p *page) renderer() int {
	p.Helper()
	info, err := chromedp.CallBrowser(p.ctx, systeminfo.GetProcessInfo, cdp.Empty{})
	if err != nil {
		p.Fatal(err)
	}
	best, most := 0, float64(-1)
	for _, i := range info.ProcessInfo {
		if i.Type == "renderer" && i.CPUTime > most {
			best, most = int(i.ID), i.CPUTime
		}
	}
	if best == 0 {
		p.Fatal("no renderer")
	}
	return best
}

// forgive lets the console speak of something that the test brings about.
func (p *page) forgive(texts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgiven = append(p.forgiven, texts...)
}

// shot keeps a picture among the artefacts.
func (p *page) shot(name string) []byte {
	p.Helper()
	b, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.Logf("no picture: %v", err)
		return nil
	}
	dir := filepath.Join(root, "web", "artefacts")
	if err := os.MkdirAll(dir, 0o755); err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), b, 0o644)
	}
	if err != nil {
		p.Error(err)
	}
	return b
}
