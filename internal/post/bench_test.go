package post

import (
	"testing"

	"github.com/conchsh/conch"
)

// BenchmarkAway is a message from one home into the inbox of another.
func BenchmarkAway(b *testing.B) {
	x, y := trusting(b, nil)
	b.ResetTimer()
	for b.Loop() {
		x.send(y.address()+"/main", "text")
		e, err := y.mail.Await(b.Context(), conch.AwaitRequest{Agent: "me", Session: "main", TimeoutMS: 10_000})
		if err != nil || e == nil {
			b.Fatal(err)
		}
		if err := y.mail.Ack(b.Context(), "me", "main", []string{e.ID}); err != nil {
			b.Fatal(err)
		}
	}
}
