package cloudflare_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testExec(w *world) {
	h := w.spawn(cloudflare.Limits{})
	for name, test := range map[string]func(*world, driver.Handle){
		"streams and exit code":                     execStreams,
		"directory, variables and user":             execSettings,
		"a large standard input reaches its end":    execStdin,
		"a standard input that nobody reads":        execUnread,
		"output and input are streamed":             execStreamed,
		"much output for a reader that is slow":     execSlow,
		"a timeout ends all that was started":       execTimeout,
		"a command whose caller leaves is ended":    execCancelled,
		"a command runs once under its id":          execOnce,
		"a sandbox that is asleep takes no command": execAsleep,
		"a sandbox that is not there":               execAbsent,
	} {
		w.Run(name, func(t *testing.T) { t.Parallel(); test(w.with(t), h) })
	}
}

func (w *world) exec(h driver.Handle, r sandbox.ExecRequest) (sandbox.ExecResult, error) {
	w.Helper()
	r, err := r.Normalize()
	w.must(err)
	return w.worker.Exec(w.Context(), h, r)
}

func execStreams(w *world, h driver.Handle) {
	res, err := w.exec(h, sandbox.ExecRequest{Command: []string{"sh", "-c", "echo out; echo err >&2; exit 7"}})
	w.must(err)
	if res.ExitCode != 7 || string(res.Stdout) != "out\n" || string(res.Stderr) != "err\n" ||
		res.TimedOut || res.Duration <= 0 {
		w.Errorf("got %+v", res)
	}
}

func execSettings(w *world, h driver.Handle) {
	w.sh(h, "mkdir -p /workspace/deep/er && chmod 755 /workspace")
	res, err := w.exec(h, sandbox.ExecRequest{
		Command: []string{"sh", "-c", "pwd; echo $GREETING; id -u; id -g"},
		Cwd:     "deep/er", Env: map[string]string{"GREETING": "hello there"}, User: "1001:1002",
	})
	w.must(err)
	if want := "/workspace/deep/er\nhello there\n1001\n1002\n"; string(res.Stdout) != want {
		w.Errorf("got %q, want %q (%s)", res.Stdout, want, res.Stderr)
	}
}

func execStdin(w *world, h driver.Handle) {
	input := strings.Repeat("0123456789abcdef", 3<<16) // 3 MiB
	res, err := w.exec(h,
		sandbox.ExecRequest{Command: []string{"sh", "-c", "wc -c; echo rest"}, Stdin: strings.NewReader(input)})
	w.must(err)
	if got := strings.Fields(string(res.Stdout)); len(got) != 2 || got[0] != fmt.Sprint(len(input)) || got[1] != "rest" {
		w.Errorf("of %d bytes it says %q", len(input), res.Stdout)
	}
	if got := w.sh(h, "wc -c"); strings.TrimSpace(got) != "0" {
		w.Errorf("without input it says %q", got)
	}
}

func execUnread(w *world, h driver.Handle) {
	res, err := w.exec(h,
		sandbox.ExecRequest{Command: []string{"echo", "done"}, Stdin: bytes.NewReader(make([]byte, 4<<20))})
	w.must(err)
	if res.ExitCode != 0 || string(res.Stdout) != "done\n" {
		w.Errorf("got %+v", res)
	}
}

func execStreamed(w *world, h driver.Handle) {
	out, in := io.Pipe()
	toCommand, keys := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := w.exec(h, sandbox.ExecRequest{
			Command: []string{"sh", "-c", "echo ready; read word; echo got $word"},
			Stdin:   toCommand,
			Stdout:  in,
		})
		in.CloseWithError(io.EOF)
		ended <- err
	}()
	line := make([]byte, 6)
	_, err := io.ReadFull(out, line) // it arrives although the command has not ended
	w.must(err)
	_, err = io.WriteString(keys, "back\n")
	w.must(err)
	w.must(keys.Close())
	rest, err := io.ReadAll(out)
	w.must(err)
	w.must(<-ended)
	if got := string(line) + string(rest); got != "ready\ngot back\n" {
		w.Errorf("streamed %q", got)
	}
}

// slow delays the first bytes.
type slow struct {
	n     int64
	begun bool
}

func (s *slow) Write(p []byte) (int, error) {
	if !s.begun {
		time.Sleep(time.Second) //nolint:forbidigo // the reader is slow at first
		s.begun = true
	}
	s.n += int64(len(p))
	return len(p), nil
}

func execSlow(w *world, h driver.Handle) {
	out := &slow{}
	res, err := w.exec(h,
		sandbox.ExecRequest{Command: []string{"sh", "-c", "yes 12345678 | head -c 40000000"}, Stdout: out})
	w.must(err)
	if out.n != 40000000 || res.StdoutBytes != out.n {
		w.Errorf("%d bytes came, the guest says %d", out.n, res.StdoutBytes)
	}
}

// alive counts the sandbox's processes whose command line begins with a mark.
func (w *world) alive(h driver.Handle, mark string) int {
	w.Helper()
	out := w.sh(h, "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done")
	return strings.Count("\n"+out, "\n"+mark)
}

func execTimeout(w *world, h driver.Handle) {
	res, err := w.exec(h, sandbox.ExecRequest{
		Command: []string{"sh", "-c", "echo begun; sleep 7001 & sleep 7001"},
		Timeout: sandbox.Duration(5 * time.Second),
	})
	w.must(err)
	if res.ExitCode != sandbox.ExitTimeout || !res.TimedOut || string(res.Stdout) != "begun\n" {
		w.Errorf("got %+v", res)
	}
	if n := w.alive(h, "sleep 7001"); n != 0 {
		w.Errorf("%d processes of the command survive its timeout", n)
	}
}

func execCancelled(w *world, h driver.Handle) {
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	begun := writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
	r, err := sandbox.ExecRequest{
		Command: []string{"sh", "-c", "sleep 7002 & echo begun; sleep 7002"},
		Stdout:  begun,
	}.Normalize()
	w.must(err)
	_, err = w.worker.Exec(ctx, h, r)
	w.wantError(err, sandbox.Timeout, sandbox.ReasonExecFailed)
	if n := w.alive(h, "sleep 7002"); n != 0 {
		w.Errorf("%d processes survive the command that its caller left", n)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func execOnce(w *world, h driver.Handle) {
	r := sandbox.ExecRequest{
		ID:      sandbox.RandomIDs(sandbox.SandboxIDLength),
		Command: []string{"sh", "-c", "echo x >> /workspace/once"},
	}
	_, err := w.exec(h, r)
	w.must(err)
	_, err = w.exec(h, r)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings)
	if got := w.sh(h, "cat /workspace/once"); got != "x\n" {
		w.Errorf("it left %q", got)
	}
}

func execAsleep(w *world, _ driver.Handle) {
	h := w.spawn(cloudflare.Limits{})
	w.must(w.worker.Sleep(w.Context(), h))
	_, err := w.exec(h, sandbox.ExecRequest{Command: []string{"true"}})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonInvalidState)
	if s := w.inspect(h); s.State != sandbox.StateStopped {
		w.Errorf("it was woken: %+v", s)
	}
}

func execAbsent(w *world, h driver.Handle) {
	_, err := w.exec(w.spec().Handle, sandbox.ExecRequest{Command: []string{"true"}})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	h.Instance = "another"
	_, err = w.exec(h, sandbox.ExecRequest{Command: []string{"true"}})
	w.wantError(err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
}
