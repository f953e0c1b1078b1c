package seal

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"
)

// What mail pays a message, states and all; by the size of its body.
func BenchmarkSeal(b *testing.B) {
	for _, n := range []int{100, 10 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			amy, bob := pair(b)
			amy.start(bob, bob.claim())
			body := make([]byte, n)
			account, conversation := must(amy.a.State()), must(amy.c.State())
			size := 0
			for b.Loop() {
				amy.restore(account, conversation)
				size = len(must(amy.c.Seal(amy.header(), body)))
				must(amy.c.State())
			}
			b.ReportMetric(float64(size-n), "overhead-B")
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{100, 10 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			amy, bob := pair(b)
			amy.start(bob, bob.claim())
			bob.open(amy.seal("x"), "x")
			letter := must(amy.c.Seal(amy.header(), make([]byte, n)))
			account, conversation := must(bob.a.State()), must(bob.c.State())
			for b.Loop() {
				bob.restore(account, conversation)
				must(bob.try(letter))
				must(bob.c.State())
			}
		})
	}
}

// Both ways in turn: a step of the ratchet a message.
func BenchmarkTurns(b *testing.B) {
	amy, bob := pair(b)
	amy.start(bob, bob.claim())
	bob.open(amy.seal("x"), "x")
	must(bob.c.Learn(amy.bundle()))
	for b.Loop() {
		must(amy.try(bob.seal("x")))
		must(bob.try(amy.seal("x")))
	}
}

func BenchmarkNewAccount(b *testing.B) {
	id := named("amy")
	for b.Loop() {
		a := must(NewAccount(id, time.Now()))
		if err := a.Refill(0); err != nil {
			b.Fatal(err)
		}
		must(a.Unpublished())
		must(a.Bundle())
	}
}

func BenchmarkAttachment(b *testing.B) {
	content := make([]byte, 8<<20)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		must(EncryptAttachment(io.Discard, bytes.NewReader(content)))
	}
}
