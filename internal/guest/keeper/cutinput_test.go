//go:build linux

package keeper_test

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// streamed runs a command whose input the test sends.
type streamed struct {
	in   *io.PipeWriter
	done chan error
	res  wire.Result
}

func (b *box) stream(id, script string) *streamed {
	r, w := io.Pipe()
	s := &streamed{in: w, done: make(chan error, 1)}
	x := line(script)
	x.Stdin = true
	go func() { // ends with the call
		var err error
		s.res, err = b.call(channel.Request{ID: id, Op: channel.OpExec, Exec: x}, channel.Streams{Stdin: r})
		_ = r.Close() // never fails
		s.done <- err
	}()
	return s
}

func (s *streamed) write(t *testing.T, text string) {
	t.Helper()
	if _, err := s.in.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// seen waits until a file exists.
func (b *box) seen(t *testing.T, file string) {
	t.Helper()
	if _, _, res := b.run(t, "until [ -e "+file+" ]; do sleep 0.02; done"); res.ExitCode != 0 {
		t.Fatalf("%s does not come: %+v", file, res)
	}
}

// followed returns the result of a command whose session was lost. It sends the input once more.
func (b *box) followed(t *testing.T, id, input string) (string, wire.Result) {
	t.Helper()
	for {
		var out strings.Builder
		res, err := b.call(channel.Request{ID: id, Op: channel.OpFollow, Follow: &channel.Follow{Feeds: true}},
			channel.Streams{Stdin: strings.NewReader(input), Stdout: &out})
		if err == nil {
			return out.String(), res
		}
		if !errors.Is(err, channel.ErrLost) {
			t.Fatal(err)
		}
	}
}

const takesInput = "read first; touch /workspace/began; cat > /workspace/rest; echo took $(cat /workspace/rest)"

func TestACommandDoesNotTakeAPartOfItsInputForTheWhole(t *testing.T) {
	b := start(t, options{})
	kill := func(t *testing.T, s *streamed) {
		t.Helper()
		if out, err := exec.Command("kill", "-KILL", b.broker(t)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := <-s.done; !errors.Is(err, channel.ErrLost) {
			t.Fatalf("the call: %+v, %v", s.res, err)
		}
	}
	t.Run("ItsCallerComesBack", func(t *testing.T) {
		s := b.stream("killed", takesInput)
		s.write(t, "first\nsecond ")
		b.seen(t, "/workspace/began")
		kill(t, s)
		if out, res := b.followed(t, "killed", "first\nsecond third"); out != "took second third\n" ||
			res.Problem != "" || res.ExitCode != 0 {
			t.Errorf("%q, %+v", out, res)
		}
	})
	t.Run("ItsCallerCannotReadIt", func(t *testing.T) {
		s := b.stream("unreadable", takesInput)
		s.write(t, "first\nsecond\n")
		if err := s.in.CloseWithError(errors.New("injected")); err != nil {
			t.Fatal(err)
		}
		if err := <-s.done; err != nil || s.res.Problem != wire.ProblemInputCut {
			t.Errorf("%+v, %v", s.res, err)
		}
	})
	t.Run("AllOfItCame", func(t *testing.T) {
		b.run(t, "rm -f /workspace/began /workspace/rest")
		s := b.stream("whole", "cat > /workspace/rest; touch /workspace/began; "+
			"until [ -e /workspace/go ]; do sleep 0.05; done; echo took $(cat /workspace/rest)")
		s.write(t, "all of it")
		if err := s.in.Close(); err != nil {
			t.Fatal(err)
		}
		b.seen(t, "/workspace/began")
		kill(t, s)
		b.run(t, "touch /workspace/go")
		if out, res := b.followed(t, "whole", "all of it"); out != "took all of it\n" ||
			res.Problem != "" || res.ExitCode != 0 {
			t.Errorf("%q, %+v", out, res)
		}
	})
}
