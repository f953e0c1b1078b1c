package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
	"github.com/conchsh/conch/internal/conchtest"
)

// maker lets an example, which is no test, have the binary built.
type maker struct{ testing.TB }

func (maker) Helper()                      {}
func (maker) Fatal(args ...any)            { log.Fatal(args...) }
func (maker) Fatalf(f string, args ...any) { log.Fatalf(f, args...) }

// demo gives options for a daemon of its own in a temporary home, and what ends it.
// A program of yours says client.Options{}.
func demo() (client.Options, func()) {
	dir, err := os.MkdirTemp("", "cx")
	if err != nil {
		log.Fatal(err)
	}
	o := client.Options{Home: filepath.Join(dir, "h"), Exe: conchtest.Binary(maker{}), Agent: "me", Cwd: "/"}
	return o, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := client.New(o).Shutdown(ctx, true); err != nil {
			fmt.Println("shutdown:", err)
		}
		os.RemoveAll(dir)
	}
}

func Example() {
	options, done := demo()
	defer done()
	c := client.New(options)
	defer c.CloseIdle()
	ctx := context.Background()

	// One shell, two commands: the second sees what the first left.
	if _, err := c.Exec(ctx, "build", conch.ExecRequest{Command: "cd /tmp; name=conch"}); err != nil {
		log.Fatal(err)
	}
	r, err := c.Exec(ctx, "build", conch.ExecRequest{Command: `echo "$name in $PWD"; exit 3`})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(r.Stdout)
	fmt.Println("exit code", *r.ExitCode)
	// Output:
	// conch in /tmp
	// exit code 3
}

func ExampleClient_Exec() {
	options, done := demo()
	defer done()
	c := client.New(options)
	defer c.CloseIdle()

	r, err := c.Exec(context.Background(), "main", conch.ExecRequest{
		Command:   "cat; echo oops >&2; sleep 60",
		Stdin:     []byte("input\n"),
		TimeoutMS: 300,
	})
	if err != nil {
		log.Fatal(err) // conch could not run it
	}
	fmt.Printf("%q %q, timed out: %v\n", r.Stdout, r.Stderr, r.TimedOut)
	// Output: "input\n" "oops\n", timed out: true
}

func ExampleClient_Exec_errors() {
	options, done := demo()
	defer done()
	options.NoCreate = true
	c := client.New(options)
	defer c.CloseIdle()

	_, err := c.Exec(context.Background(), "nobody", conch.ExecRequest{Command: "true"})
	if errors.Is(err, conch.SessionNotFound) {
		fmt.Println("no such session:", err)
	}
	// Output: no such session: no session "nobody"
}

func ExampleClient_Stream() {
	options, done := demo()
	defer done()
	c := client.New(options)
	defer c.CloseIdle()

	s, err := c.Stream(context.Background(), "main", conch.ExecRequest{Command: "echo one; sleep 0.1; echo two >&2; sleep 0.1; echo three"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	for {
		e, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		switch e.Kind {
		case client.Stdout, client.Stderr:
			fmt.Printf("%s: %s", e.Kind, e.Data)
		case client.Exited:
			fmt.Println("exit code", *e.Result.ExitCode)
		}
	}
	// Output:
	// stdout: one
	// stderr: two
	// stdout: three
	// exit code 0
}

func ExampleStream_Stdin() {
	options, done := demo()
	defer done()
	c := client.New(options)
	defer c.CloseIdle()
	ctx := context.Background()

	s, err := c.Stream(ctx, "main", conch.ExecRequest{Command: "tr a-z A-Z", OpenStdin: true})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	in := s.Stdin(ctx)
	fmt.Fprintln(in, "typed")
	in.Close()
	for {
		e, err := s.Next()
		if err != nil {
			break
		}
		fmt.Printf("%s", e.Data)
	}
	// Output: TYPED
}

func ExampleClient_Follow() {
	options, done := demo()
	defer done()
	c := client.New(options)
	defer c.CloseIdle()
	ctx := context.Background()

	// Somebody else ran it; its id is enough.
	r, err := c.Exec(ctx, "main", conch.ExecRequest{Command: "echo again"})
	if err != nil {
		log.Fatal(err)
	}
	s, err := c.Follow(ctx, r.CommandID, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	for {
		e, err := s.Next()
		if err != nil {
			break
		}
		fmt.Printf("%s %q\n", e.Kind, e.Data)
	}
	// Output:
	// start ""
	// stdout "again\n"
	// exit ""
}

func ExampleClient_Watch() {
	options, done := demo()
	defer done()
	c := client.New(options)
	defer c.CloseIdle()
	ctx := context.Background()

	for _, command := range []string{"echo one", "false"} {
		if _, err := c.Exec(ctx, "main", conch.ExecRequest{Command: command}); err != nil {
			log.Fatal(err)
		}
	}
	w, err := c.Watch(ctx, "main", client.WatchOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	for range 5 {
		e, err := w.Next()
		if err != nil {
			log.Fatal(err)
		}
		switch e.Kind {
		case client.Started:
			fmt.Println("$", e.Command)
		case client.Exited:
			fmt.Println("exit code", *e.Result.ExitCode)
		default:
			fmt.Printf("%s", e.Data)
		}
	}
	// Output:
	// $ echo one
	// one
	// exit code 0
	// $ false
	// exit code 1
}

func ExampleClient_Interrupt() {
	options, done := demo()
	defer done()
	c := client.New(options)
	defer c.CloseIdle()
	ctx := context.Background()

	s, err := c.Stream(ctx, "main", conch.ExecRequest{Command: "echo up; sleep 60"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	for e, err := s.Next(); string(e.Data) != "up\n"; e, err = s.Next() {
		if err != nil {
			log.Fatal(err)
		}
	}
	i, err := c.Interrupt(ctx, "main", s.ID())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(i.Interrupted, i.Ended.Verified)
	// Output: true true
}

func ExampleClient_New() {
	options, done := demo()
	defer done()
	c := client.New(options)
	defer c.CloseIdle()
	ctx := context.Background()

	if _, err := c.New(ctx, "web", client.NewSession{Cwd: "/tmp", Env: map[string]string{"PORT": "8080"}}); err != nil {
		log.Fatal(err)
	}
	env, err := c.Env(ctx, "web")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("PORT is", env["PORT"])
	_, err = c.New(ctx, "web", client.NewSession{})
	fmt.Println(errors.Is(err, conch.LabelTaken))
	list, err := c.Sessions(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(list), list[0].Label, list[0].Cwd)
	gone, err := c.Close(ctx, "web")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("closed:", gone.OK, gone.Verified)
	// Output:
	// PORT is 8080
	// true
	// 1 web /tmp
	// closed: true true
}

func ExampleClient_History() {
	options, done := demo()
	defer done()
	c := client.New(options)
	defer c.CloseIdle()
	ctx := context.Background()

	for _, command := range []string{"echo one", "exit 2"} {
		if _, err := c.Exec(ctx, "main", conch.ExecRequest{Command: command}); err != nil {
			log.Fatal(err)
		}
	}
	list, err := c.History(ctx, "main", 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range list {
		fmt.Println(h.Command, h.Status, *h.ExitCode)
	}
	out, err := c.Output(ctx, list[0].CommandID, client.Stdout, false)
	if err != nil {
		log.Fatal(err)
	}
	defer out.Close()
	io.Copy(os.Stdout, out)
	// Output:
	// echo one done 0
	// exit 2 done 2
	// one
}
