package channel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

func TestRepeatedOperationIsNotCarriedOutAgain(t *testing.T) {
	journal := channel.NewJournal()
	if _, err := journal.Begin("before", channel.OpPut); err != nil { // by an earlier guest
		t.Fatal(err)
	}
	counts, begun, proceed := map[string]int{}, make(chan struct{}), make(chan struct{})
	g := newGuest(t, func(_ context.Context, r channel.Request, _ io.Reader, _ *wire.Writer) wire.Result {
		counts[r.ID]++
		if r.ID == "slow" {
			close(begun)
			<-proceed
		}
		return wire.Result{ExitCode: counts[r.ID], Message: r.ID}
	}, channel.ServerConfig{Journal: journal})
	c := newClient(t, g.dial)
	call := func(op channel.Op, id string) wire.Result {
		t.Helper()
		result, err := c.Call(t.Context(), channel.Request{Op: op, ID: id}, channel.Streams{})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	for range 2 {
		if result := call(channel.OpPut, "put"); result.ExitCode != 1 || result.Problem != "" {
			t.Errorf("put: %+v", result)
		}
	}
	if result := call(channel.OpSecrets, "put"); result.Problem != wire.ProblemInvalid {
		t.Errorf("another operation with the id: %+v", result)
	}
	if result := call(channel.OpPut, ""); result.Problem != wire.ProblemInvalid {
		t.Errorf("no id: %+v", result)
	}
	if call(channel.OpExec, "exec"); call(channel.OpExec, "exec").Problem != wire.ProblemConflict {
		t.Error("a command was started again")
	}
	if result := call(channel.OpPut, "before"); result.Problem != wire.ProblemUnknown ||
		!strings.Contains(result.Message, "not known") {
		t.Errorf("an operation of the guest before: %+v", result)
	}
	for range 2 {
		call(channel.OpGet, "get")
	}
	first := make(chan wire.Result)
	go func() { first <- call(channel.OpPut, "slow") }()
	<-begun
	if result := call(channel.OpPut, "slow"); result.Problem != wire.ProblemConflict {
		t.Errorf("an operation under way: %+v", result)
	}
	close(proceed)
	if result := <-first; result.ExitCode != 1 {
		t.Errorf("slow: %+v", result)
	}
	if got, want := fmt.Sprint(counts), "map[exec:1 get:2 put:1 slow:1]"; got != want {
		t.Errorf("carried out: %s, want %s", got, want)
	}
}

func TestOperationGivenUpBeforeItWasCarriedOutMayBeRepeated(t *testing.T) {
	g := newGuest(t, func(_ context.Context, _ channel.Request, in io.Reader, _ *wire.Writer) wire.Result {
		content, err := io.ReadAll(in)
		if err != nil {
			return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
		}
		return wire.Result{ExitCode: len(content)}
	}, channel.ServerConfig{})
	c := newClient(t, g.dial)
	ctx, cancel := context.WithCancel(t.Context())
	in, feed := io.Pipe()
	go func() {
		feed.Write([]byte("some")) //nolint:errcheck // the call is given up
		cancel()
	}()
	if _, err := c.Call(ctx, channel.Request{Op: channel.OpPut, ID: "x"}, channel.Streams{Stdin: in}); err == nil {
		t.Fatal("the operation ended without its input")
	}
	in.Close()
	for {
		result, err := c.Call(t.Context(), channel.Request{Op: channel.OpPut, ID: "x"},
			channel.Streams{Stdin: strings.NewReader("all of it")})
		if err != nil {
			t.Fatal(err)
		}
		if result.Problem == wire.ProblemConflict {
			continue // the guest will notice soon
		}
		if result.Problem != "" || result.ExitCode != len("all of it") {
			t.Errorf("%+v", result)
		}
		return
	}
}

// A caller that gives up may close its input. The guest must not take that for a failed input, whose result it would keep.
func TestInputOfACallThatWasGivenUpIsNotSent(t *testing.T) {
	for range 200 {
		begun, inputs := make(chan struct{}), make(chan error, 1)
		g := newGuest(t, func(_ context.Context, _ channel.Request, in io.Reader, _ *wire.Writer) wire.Result {
			close(begun)
			_, err := io.Copy(io.Discard, in)
			inputs <- err
			return wire.Result{}
		}, channel.ServerConfig{})
		c := newClient(t, g.dial)
		ctx, cancel := context.WithCancel(t.Context())
		in, feed := io.Pipe()
		go func() {
			feed.Write([]byte("some")) //nolint:errcheck // the call is given up
			<-begun
			cancel()
		}()
		if _, err := c.Call(ctx, channel.Request{Op: channel.OpPut, ID: "x"}, channel.Streams{Stdin: in}); err == nil {
			t.Fatal("the operation ended without its input")
		}
		in.Close()
		if err := <-inputs; errors.Is(err, channel.ErrInput) {
			t.Fatalf("the guest read %v", err)
		}
	}
}

func TestInputThatFailsIsNotTakenForItsEnd(t *testing.T) {
	c := newClient(t, newGuest(t, echo, channel.ServerConfig{}).dial)
	broken := io.MultiReader(strings.NewReader("some"), failing{})
	result, err := c.Call(t.Context(), channel.Request{Op: channel.OpPut, ID: "x"}, channel.Streams{Stdin: broken})
	if err != nil || result.Problem != wire.ProblemFailed || !strings.Contains(result.Message, "the disk is on fire") {
		t.Errorf("%+v, %v", result, err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, fmt.Errorf("the disk is on fire") }

func TestJournalForgetsTheOldest(t *testing.T) {
	j := channel.NewJournal()
	for i := range 4097 {
		id := fmt.Sprint(i)
		if prior, err := j.Begin(id, channel.OpPut); prior != nil || err != nil {
			t.Fatal(prior, err)
		}
		if err := j.End(id, channel.OpPut, wire.Result{Message: strings.Repeat("x", 2000)}); err != nil {
			t.Fatal(err)
		}
	}
	if prior, err := j.Begin("0", channel.OpPut); prior != nil || err != nil {
		t.Errorf("the oldest: %+v, %v", prior, err)
	}
	if prior, err := j.Begin("1", channel.OpPut); prior == nil || !prior.Ended ||
		len(prior.Result.Message) != 1<<10 || err != nil {
		t.Errorf("the second: %+v, %v", prior, err)
	}
}
