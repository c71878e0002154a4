package executortest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// shell is the result of a shell script.
type shell struct{ sandbox.ExecResult }

func (s shell) stdout() string { return string(s.Stdout) }

// sh runs a script. It fails the test only if the backend does not run it.
func (w *world) sh(t *testing.T, h driver.Handle, script string) shell {
	t.Helper()
	return w.exec(t, h, sandbox.ExecRequest{Command: []string{"sh", "-c", script}})
}

// user returns the user and group of a sandbox's code, as uid:gid.
func (w *world) user(t *testing.T, h driver.Handle) string {
	t.Helper()
	return strings.TrimSpace(w.sh(t, h, "echo $(id -u):$(id -g)").stdout())
}

func (w *world) exec(t *testing.T, h driver.Handle, r sandbox.ExecRequest) shell {
	t.Helper()
	r, err := r.Normalize()
	must(t, err)
	res, err := w.x.Exec(t.Context(), h, r)
	must(t, err)
	return shell{res}
}

func testExec(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	w.needExec(t)
	shared := w.spawn(t)
	for name, test := range map[string]func(*testing.T, *world, driver.Handle){
		"streams and exit code":                      execStreams,
		"standard input reaches its end":             execStdin,
		"a large standard input that nobody reads":   execUnreadStdin,
		"directory, variables and user":              execSettings,
		"a directory that is not there or not ours":  execBadDirectory,
		"a command as verifier":                      execVerifier,
		"a program that cannot be started":           execCannotStart,
		"a program that a signal ends":               execSignal,
		"output beyond the limit is dropped":         execTruncated,
		"output reaches writers as it comes":         execStreamed,
		"a timeout ends all that was started":        execTimeout,
		"a cancelled command ends with all of it":    execCancelled,
		"what a command leaves behind lives on":      execBackground,
		"a command in an absent sandbox":             execAbsent,
		"variables and configuration of the sandbox": execVariables,
		"a line of the shell tells what it leaves":   shellTellsWhatItLeaves,
		"a line of the shell is as one knows it":     shellIsAsOneKnowsIt,
		"a shell that does not tell":                 shellThatDoesNotTell,
		"a line of the shell is read again":          shellIsReadAgain,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w, shared)
		})
	}
	t.Run("a sleeping sandbox takes no command", func(t *testing.T) {
		t.Parallel()
		execAsleep(t, w)
	})
	t.Run("sleep keeps what its mode promises", func(t *testing.T) {
		t.Parallel()
		sleepKeeps(t, w)
	})
	t.Run("stopping lets programs finish", func(t *testing.T) {
		t.Parallel()
		stopIsGraceful(t, w)
	})
}

func execStreams(t *testing.T, w *world, h driver.Handle) {
	res := w.sh(t, h, "echo out; echo err >&2; exit 7")
	if res.ExitCode != 7 || res.stdout() != "out\n" || string(res.Stderr) != "err\n" || res.TimedOut ||
		res.OOMKilled || res.Truncated {
		t.Errorf("got %+v", res.ExecResult)
	}
	if res.Duration <= 0 {
		t.Errorf("duration is %s", res.Duration)
	}
}

func execStdin(t *testing.T, w *world, h driver.Handle) {
	input := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	res := w.exec(t, h,
		sandbox.ExecRequest{Command: []string{"sh", "-c", "wc -c; echo rest"}, Stdin: strings.NewReader(input)})
	if got := strings.Fields(res.stdout()); len(got) != 2 || got[0] != fmt.Sprint(len(input)) || got[1] != "rest" {
		t.Errorf("wc -c of %d bytes says %q", len(input), res.stdout())
	}
	res = w.sh(t, h, "wc -c")
	if strings.TrimSpace(res.stdout()) != "0" {
		t.Errorf("without input, wc -c says %q", res.stdout())
	}
}

func execUnreadStdin(t *testing.T, w *world, h driver.Handle) {
	res := w.exec(t, h,
		sandbox.ExecRequest{Command: []string{"echo", "done"}, Stdin: bytes.NewReader(make([]byte, 4<<20))})
	if res.ExitCode != 0 || res.stdout() != "done\n" {
		t.Errorf("got %+v", res.ExecResult)
	}
}

func execSettings(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h, "mkdir -p /workspace/deep/er")
	res := w.exec(t, h, sandbox.ExecRequest{
		Command: []string{"sh", "-c", "pwd; echo $GREETING; id -u; id -g"},
		Cwd:     "deep/er", Env: map[string]string{"GREETING": "hello there"}, User: "1001:1002",
	})
	if want := "/workspace/deep/er\nhello there\n1001\n1002\n"; res.stdout() != want {
		t.Errorf("got %q, want %q (%s)", res.stdout(), want, res.Stderr)
	}
	res = w.exec(t, h, sandbox.ExecRequest{Command: []string{"id", "-g"}, User: "1001"})
	if res.stdout() == "0\n" {
		t.Error("a user without a group gets the group of root")
	}
	if res = w.sh(t, h, "pwd"); res.stdout() != "/workspace\n" {
		t.Errorf("by default it runs in %q", res.stdout())
	}
	if user := w.user(t, h); strings.HasPrefix(user, "0:") || strings.HasSuffix(user, ":0") {
		t.Errorf("by default it runs as %s", user)
	}
	for _, cwd := range []string{"/", "/etc", "/workspace/../etc", "/workspaces"} {
		_, err := sandbox.ExecRequest{Command: []string{"true"}, Cwd: cwd}.Normalize()
		wantError(t, err, sandbox.Invalid, "")
	}
}

func execBadDirectory(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h, "ln -s /etc /workspace/way-out")
	for _, cwd := range []string{"/workspace/missing", "/workspace/way-out"} {
		res := w.exec(t, h, sandbox.ExecRequest{Command: []string{"pwd"}, Cwd: cwd})
		if res.ExitCode != 126 || len(res.Stdout) != 0 || len(res.Stderr) == 0 {
			t.Errorf("in %s: got %+v", cwd, res.ExecResult)
		}
	}
}

func execCannotStart(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h, "echo data > /workspace/not-a-program")
	for command, want := range map[string]int{
		"no-such-program":          127,
		"/no/such/program":         127,
		"/workspace/not-a-program": 126,
	} {
		res := w.exec(t, h, sandbox.ExecRequest{Command: []string{command}})
		if res.ExitCode != want || !strings.Contains(string(res.Stderr), command) {
			t.Errorf("%s: exit code %d, want %d, and %q", command, res.ExitCode, want, res.Stderr)
		}
	}
}

func execSignal(t *testing.T, w *world, h driver.Handle) {
	if res := w.sh(t, h, "kill -9 $$"); res.ExitCode != 128+9 {
		t.Errorf("exit code %d, want 137", res.ExitCode)
	}
}

func execTruncated(t *testing.T, w *world, h driver.Handle) {
	res := w.exec(t, h,
		sandbox.ExecRequest{Command: []string{"sh", "-c", "yes 12345678 | head -c 3000000; echo err >&2"}, OutputLimit: 1000})
	if len(res.Stdout) != 1000 || !res.Truncated || string(res.Stderr) != "err\n" || res.ExitCode != 0 {
		t.Errorf("%d bytes of output, truncated %t, stderr %q, exit code %d",
			len(res.Stdout), res.Truncated, res.Stderr, res.ExitCode)
	}
}

func execStreamed(t *testing.T, w *world, h driver.Handle) {
	out, in := io.Pipe() // the command's output
	toCommand, keys := io.Pipe()
	r, err := sandbox.ExecRequest{
		Command: []string{"sh", "-c", "echo ready; read word; echo got $word"},
		Stdin:   toCommand,
		Stdout:  in,
	}.Normalize()
	must(t, err)
	type outcome struct {
		res sandbox.ExecResult
		err error
	}
	ended := make(chan outcome, 1)
	go func() {
		res, err := w.x.Exec(t.Context(), h, r)
		in.CloseWithError(io.EOF)
		ended <- outcome{res, err}
	}()
	line := make([]byte, 6)
	_, err = io.ReadFull(out, line) // it arrives before the command has ended
	must(t, err)
	_, err = io.WriteString(keys, "back\n")
	must(t, err)
	must(t, keys.Close())
	rest, err := io.ReadAll(out)
	must(t, err)
	o := <-ended
	if got := string(line) + string(rest); o.err != nil || got != "ready\ngot back\n" || len(o.res.Stdout) != 0 {
		t.Errorf("streamed %q, result %+v, error %v", got, o.res, o.err)
	}
}

// alive counts the sandbox's processes whose command line begins with a mark.
func (w *world) alive(t *testing.T, h driver.Handle, mark string) int {
	t.Helper()
	res := w.sh(t, h, "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done")
	n := 0
	for line := range strings.Lines(res.stdout()) {
		if strings.HasPrefix(line, mark) {
			n++
		}
	}
	return n
}

// stubborn is a script whose grandchild leaves its session and its parent, and ignores SIGTERM.
func stubborn(seconds int) string {
	return fmt.Sprintf(`trap "" TERM; (setsid sh -c 'trap "" TERM HUP; sleep %d' &) ; sleep %d`, seconds, seconds)
}

func execTimeout(t *testing.T, w *world, h driver.Handle) {
	began := time.Now()
	res := w.exec(t, h, sandbox.ExecRequest{
		Command: []string{"sh", "-c", "echo begun; " + stubborn(7001)},
		Timeout: sandbox.Duration(time.Second),
	})
	if res.ExitCode != sandbox.ExitTimeout || !res.TimedOut || res.stdout() != "begun\n" {
		t.Errorf("got %+v", res.ExecResult)
	}
	if d := time.Since(began); d > patience {
		t.Errorf("a timeout of 1s took %s", d)
	}
	if n := w.alive(t, h, "sleep 7001"); n != 0 {
		t.Errorf("%d processes of the command survive its timeout", n)
	}
	if res := w.sh(t, h, "exit 124"); res.TimedOut || res.ExitCode != 124 {
		t.Errorf("a program's own exit code 124: %+v", res.ExecResult)
	}
}

func execCancelled(t *testing.T, w *world, h driver.Handle) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	r, err := sandbox.ExecRequest{Command: []string{"sh", "-c", "echo begun; " + stubborn(7002)}, Stdout: in}.Normalize()
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := w.x.Exec(ctx, h, r)
		in.CloseWithError(io.EOF)
		ended <- err
	}()
	_, err = io.ReadFull(out, make([]byte, 6))
	must(t, err)
	eventually(t, "the command runs", func() bool { return w.alive(t, h, "sleep 7002") == 2 })
	cancel()
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the command
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a cancelled command has a result")
		}
	case <-time.After(patience):
		t.Fatal("a cancelled Exec does not return")
	}
	if n := w.alive(t, h, "sleep 7002"); n != 0 {
		t.Errorf("%d processes survive the cancelled command", n)
	}
}

func execBackground(t *testing.T, w *world, h driver.Handle) {
	began := time.Now()
	res := w.sh(t, h, "sleep 7003 & echo $!")
	if res.ExitCode != 0 || res.stdout() == "" || time.Since(began) > patience {
		t.Fatalf("got %+v after %s", res.ExecResult, time.Since(began))
	}
	if n := w.alive(t, h, "sleep 7003"); n != 1 {
		t.Errorf("%d background processes live on, want 1", n)
	}
	w.sh(t, h, "kill "+res.stdout()) // without affecting another test's process
	eventually(t, "process 1 has reaped the ended processes", func() bool {
		return strings.TrimSpace(w.sh(t, h, "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null").stdout()) == ""
	})
}

func execAbsent(t *testing.T, w *world, _ driver.Handle) {
	r, err := sandbox.ExecRequest{Command: []string{"true"}}.Normalize()
	must(t, err)
	_, err = w.x.Exec(t.Context(), w.spec().Handle, r)
	wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	other := w.spec().Handle
	other.Instance = "another-instance"
	_, err = w.x.Exec(t.Context(), other, r)
	wantError(t, err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
}

func execVariables(t *testing.T, w *world, h driver.Handle) {
	spec := w.spec()
	res := w.sh(t, h, `echo "$IS_SANDBOXED|$SANDBOX_VERSION|$AGENT_DID|$ENVIRONMENT_ID|$ENVIRONMENT_TYPE|$ALLOWED_ROOT_DIRECTORY|$FLAVOUR"; cat /workspace/config.json`)
	want := "true|0.1.0|" + spec.AgentDID + "|" + spec.EnvironmentID +
		"|custom|/workspace|of the environment\n" + string(spec.Config)
	if res.stdout() != want {
		t.Errorf("got  %q\nwant %q", res.stdout(), want)
	}
}

func execAsleep(t *testing.T, w *world) {
	h := w.spawn(t)
	r, err := sandbox.ExecRequest{Command: []string{"true"}}.Normalize()
	must(t, err)
	for _, mode := range w.sleepModes() {
		must(t, w.x.Sleep(t.Context(), h, mode))
		_, err = w.x.Exec(t.Context(), h, r)
		wantError(t, err, sandbox.Conflict, sandbox.ReasonInvalidState)
		err = w.x.CopyTo(t.Context(), h, "/workspace", bytes.NewReader(nil))
		wantError(t, err, sandbox.Conflict, sandbox.ReasonInvalidState)
		wake(t, w.x, h)
		if _, err := w.x.Exec(t.Context(), h, r); err != nil {
			t.Errorf("after %s and wake: %v", mode, err)
		}
	}
}

func sleepKeeps(t *testing.T, w *world) {
	h := w.spawn(t)
	w.sh(t, h, "echo 1 > /workspace/kept; echo 2 > /data/kept; echo 3 > /tmp/kept; sleep 7004 & true")
	const look = "cat /workspace/kept /data/kept /tmp/kept 2>/dev/null"
	if w.x.Capabilities().Pause {
		must(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause))
		wake(t, w.x, h)
		if got, n := w.sh(t, h, look).stdout(), w.alive(t, h, "sleep 7004"); got != "1\n2\n3\n" || n != 1 {
			t.Errorf("a pause keeps %q and %d of 1 processes", got, n)
		}
	}
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	wake(t, w.x, h)
	want := "1\n2\n"
	if !w.x.Capabilities().Disk {
		want = "2\n"
	}
	if got, n := w.sh(t, h, look).stdout(), w.alive(t, h, "sleep 7004"); got != want || n != 0 {
		t.Errorf("a stop keeps %q and %d processes, want %q and none", got, n, want)
	}
}

func stopIsGraceful(t *testing.T, w *world) {
	h := w.spawn(t)
	w.sh(t, h, `sh -c 'trap "sleep 1; echo bye > /data/last-words; exit" TERM; echo > /workspace/up; while :; do sleep 0.1; done' >/dev/null 2>&1 & while [ ! -e /workspace/up ]; do sleep 0.1; done`)
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	wake(t, w.x, h)
	if got := w.sh(t, h, "cat /data/last-words").stdout(); got != "bye\n" {
		t.Errorf("a program that takes a second to finish left %q", got)
	}
}
