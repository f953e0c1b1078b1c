package mail

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/conchsh/conch"
)

// BenchmarkSend is the way of a message without HTTP.
func BenchmarkSend(b *testing.B) {
	for _, senders := range []int{1, 16} {
		b.Run(fmt.Sprint(senders), func(b *testing.B) {
			m := New(Options{Path: filepath.Join(b.TempDir(), "conch.db"), Agents: agents{"me"}})
			defer m.Close()
			p, err := m.Present(b.Context(), conch.PresenceRequest{Agent: "me", Label: "b", Claim: true})
			if err != nil {
				b.Fatal(err)
			}
			defer p.End()
			text := strings.Repeat("some words ", 93)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range senders {
				wg.Go(func() {
					for next.Add(1) <= int64(b.N) {
						if _, err := m.Send(b.Context(), conch.SendRequest{Agent: "me", Session: "a", To: "b", Text: text}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
