package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/fault"
	"github.com/conchsh/conch/internal/sock"
)

// importLog posts a log as it is read.
func (d *daemon) importLog(query string, log io.Reader) (im conch.Imported, err error) {
	resp, err := d.http.Post("http://daemon.conch/v1/import?"+query, "application/octet-stream", log)
	if err != nil {
		return im, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var eb conch.ErrorBody
		if err := json.NewDecoder(resp.Body).Decode(&eb); err != nil {
			return im, err
		}
		return im, eb.Err()
	}
	return im, json.NewDecoder(resp.Body).Decode(&im)
}

// sessionDirs lists what a home has of sessions, whole or not.
func sessionDirs(home string) (names []string) {
	ents, _ := os.ReadDir(filepath.Join(home, "sessions"))
	for _, e := range ents {
		names = append(names, e.Name())
	}
	return names
}

func TestImport(t *testing.T) {
	home := newHome(t)
	d := start(t, home)
	// Larger than any other body may be, and sent without saying how large.
	line := "\x01\x01\x01" + strings.Repeat("x", 1<<10) + "\n\x02\x02\x02y\n"
	const n = 8 << 10
	im, err := d.importLog("agent=me", io.MultiReader(strings.NewReader(strings.Repeat(line, n))))
	if err != nil || im != (conch.Imported{Agent: "me", Label: "imported:1", StdoutBytes: n * (1<<10 + 1), StderrBytes: n * 2}) {
		t.Errorf("%+v, %v", im, err)
	}
	var log string
	if err := d.do("GET", "/v1/sessions/me/imported:1/log", nil, &log); err != nil || log != strings.Repeat(line, n) {
		t.Errorf("%d bytes back, %v", len(log), err)
	}
	var h []conch.HistoryEntry
	if err := d.do("GET", "/v1/sessions/me/imported:1/history", nil, &h); err != nil || len(h) != 1 || h[0].ExitCode != nil {
		t.Fatalf("%+v, %v", h, err)
	}
	var out string
	if err := d.do("GET", fmt.Sprintf("/v1/commands/%s/output?stream=stderr", h[0].CommandID), nil, &out); err != nil || out != strings.Repeat("y\n", n) {
		t.Errorf("%d bytes of stderr, %v", len(out), err)
	}
	d.mustExec("main", "true")
	for query, kind := range map[string]conch.Kind{
		"agent=me&label=main":       conch.LabelTaken,
		"agent=me&label=imported:1": conch.LabelTaken,
		"agent=me&label=a+b":        conch.InvalidLabel,
		"agent=A":                   conch.InvalidAgent,
	} {
		if _, err := d.importLog(query, strings.NewReader(line)); !errors.Is(err, kind) {
			t.Errorf("%s: %v, want %v", query, err, kind)
		}
	}
	if got := sessionDirs(home); len(got) != 2 {
		t.Errorf("%q", got)
	}
	// It is no session that could be used or ended, and a label like any other.
	if err := d.do("POST", "/v1/sessions/me/imported:1/close", nil, nil); !errors.Is(err, conch.SessionNotFound) {
		t.Errorf("close: %v", err)
	}
	if got := d.mustExec("imported:1", "echo new").Stdout; got != "new\n" {
		t.Errorf("%q", got)
	}
}

// A client that leaves, or a daemon that dies, in the middle of an import.
func TestImportCut(t *testing.T) {
	home := newHome(t)
	d := start(t, home)
	for _, head := range []string{"Transfer-Encoding: chunked\r\n\r\n5\r\n\x01\x01\x01a\n\r\n", "Content-Length: 1000\r\n\r\n\x01\x01\x01a\n"} {
		c, err := sock.Dial(t.Context(), d.record().Socket)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /v1/import?agent=me&label=x HTTP/1.1\r\nHost: daemon.conch\r\n%s", head)
		eventually(t, "the import is under way", 10*time.Second, func() bool { return len(sessionDirs(home)) == 1 })
		c.Close()
		eventually(t, "nothing is left of it", 10*time.Second, func() bool { return len(sessionDirs(home)) == 0 })
	}
	if err := d.do("GET", "/v1/sessions/me/x/history", nil, nil); !errors.Is(err, conch.SessionNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := d.importLog("agent=me&label=x", bytes.NewReader(nil)); err != nil {
		t.Errorf("%v", err)
	}
}

func TestImportFaultPoints(t *testing.T) {
	for point, whole := range map[string]bool{"import.filled": false, "import.named": true} {
		t.Run(point, func(t *testing.T) {
			home := newHome(t)
			d := start(t, home, fault.Variable+"="+point)
			if _, err := d.importLog("agent=me&label=x", strings.NewReader("\x01\x01\x01a\n")); err == nil {
				t.Fatal("the point was not passed")
			}
			<-d.gone
			d = start(t, home)
			var log string
			err := d.do("GET", "/v1/sessions/me/x/log", nil, &log)
			if whole && (err != nil || log != "\x01\x01\x01a\n") {
				t.Errorf("%q, %v", log, err)
			}
			if !whole && (!errors.Is(err, conch.SessionNotFound) || len(sessionDirs(home)) > 0) {
				t.Errorf("%v, left %q", err, sessionDirs(home))
			}
		})
	}
}
