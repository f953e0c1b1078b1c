package api

import (
	"bytes"
	"net/http"
	"strconv"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/route"
)

// plainHead is what net/http puts between the status and its text when it
// answers, by itself, what is no request.
const plainHead = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// Rewrite gives the function that turns net/http's own answers into the error
// form. Such an answer is written in one piece and holds its status line's text
// twice, with plainHead between; nothing that a handler sends looks so, since
// every answer of theirs has headers of ours.
func Rewrite(version string) func([]byte) []byte {
	return func(p []byte) []byte {
		const start = "HTTP/1.1 "
		if len(p) > 1024 || !bytes.HasPrefix(p, []byte(start)) {
			return p
		}
		if bytes.HasPrefix(p, []byte(start+"417 Expectation Failed\r\nConnection: close\r\n")) &&
			bytes.HasSuffix(p, []byte("\r\nContent-Length: 0\r\n\r\n")) && bytes.Count(p, []byte("\r\n")) == 5 {
			return Response(version, conch.Errorf(conch.InvalidRequest, "the request expects what conch does not know").Hint("Expect: 100-continue is known"))
		}
		status, text, ok := bytes.Cut(p[len(start):], []byte(plainHead))
		if !ok || !bytes.Equal(status, text) {
			return p
		}
		code, _, _ := bytes.Cut(status, []byte(" "))
		n, err := strconv.Atoi(string(code))
		if err != nil || n < 400 {
			return p
		}
		e := conch.Errorf(conch.InvalidRequest, "not an HTTP request: %s", text)
		switch n {
		case http.StatusRequestHeaderFieldsTooLarge:
			e = conch.Errorf(conch.HeaderTooLarge, "the request's header is longer than %d bytes", route.MaxHeader)
		case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
			e = conch.Errorf(conch.Unsupported, "%s", text).Hint("conch speaks HTTP/1.1")
		}
		return Response(version, e)
	}
}

// Crowded is the answer for a connection above the limit.
func Crowded(version string) []byte {
	return Response(version, conch.Errorf(conch.TooManyClients, "the daemon has %d connections, which is its limit", route.DaemonConns).
		Hint("close some; nothing was done").Retry())
}
