package executortest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// line runs a shell line and returns its result, with the state that the line left.
func (w *world) line(t *testing.T, h driver.Handle, line string, env map[string]string) shell {
	t.Helper()
	r, err := sandbox.ExecRequest{Session: "contract", Shell: line, Env: env, Cwd: "/workspace"}.Normalize()
	must(t, err)
	res, err := w.x.Exec(t.Context(), h, r)
	must(t, err)
	return shell{res}
}

func shellTellsWhatItLeaves(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h, "mkdir -p '/workspace/a dir' && ln -sfn /etc /workspace/etc-link")
	env := map[string]string{"KEPT": "1", "CHANGED": "1", "DROPPED": "1"}
	awkward := "two\nlines, 'single' \"double\" $HOME `x` \\ é"
	for line, want := range map[string]sandbox.ShellState{
		"true":                     {Cwd: "/workspace"},
		"cd 'a dir'; echo at=$PWD": {Cwd: "/workspace/a dir"},
		"export NEW=2 CHANGED=3; unset DROPPED; LOCAL=4": {
			Cwd:   "/workspace",
			Set:   map[string]string{"NEW": "2", "CHANGED": "3"},
			Unset: []string{"DROPPED"},
		},
		"(cd /data; export NEW=2)": {Cwd: "/workspace"},
		"cd /etc":                  {Outside: "/etc"},
		"cd etc-link":              {Outside: "/etc"},
		"export NEW=2; exit 3":     {Cwd: "/workspace", Set: map[string]string{"NEW": "2"}},
		"set -eu; export NEW=2; false; export NEVER=1": {Cwd: "/workspace", Set: map[string]string{"NEW": "2"}},
		"exec 3>/workspace/three; export NEW=2":        {Cwd: "/workspace", Set: map[string]string{"NEW": "2"}},
		"export AWKWARD='" + strings.ReplaceAll(awkward, "'", `'\''`) + "'": {
			Cwd: "/workspace",
			Set: map[string]string{"AWKWARD": awkward},
		},
		"export EMPTY=": {Cwd: "/workspace", Set: map[string]string{"EMPTY": ""}},
	} {
		res := w.line(t, h, line, env)
		if res.Shell == nil {
			t.Errorf("%s: the shell does not tell: %+v", line, res.ExecResult)
			continue
		}
		if d := cmp.Diff(want, *res.Shell); d != "" {
			t.Errorf("%s: want (-), got (+):\n%s", line, d)
		}
	}
}

func shellIsAsOneKnowsIt(t *testing.T, w *world, h driver.Handle) {
	res := w.line(t, h, "echo out; echo err >&2; echo $0 $# \"$KEPT\"; exit 7", map[string]string{"KEPT": "1"})
	if res.ExitCode != 7 || res.stdout() != "out\nsh 0 1\n" || string(res.Stderr) != "err\n" {
		t.Errorf("got %d, %q, %q", res.ExitCode, res.Stdout, res.Stderr)
	}
	if res := w.line(t, h, "if", nil); res.ExitCode == 0 || len(res.Stderr) == 0 {
		t.Errorf("a line that is no command: %+v", res.ExecResult)
	}
	began := time.Now()
	res = w.line(t, h, "sleep 7010 & export NEW=1; echo $!", nil)
	if res.Shell == nil || res.Shell.Set["NEW"] != "1" || time.Since(began) > patience {
		t.Errorf("with a process left behind: %+v after %s", res.ExecResult, time.Since(began))
	}
	w.sh(t, h, "kill "+res.stdout()) // without affecting another test's process
}

// shellThatDoesNotTell: none of these lines reports a state, and none is an error.
func shellThatDoesNotTell(t *testing.T, w *world, h driver.Handle) {
	for _, line := range []string{"export NEW=1; kill -9 $$", "export NEW=1; exec true", "export NEW=1; trap - EXIT"} {
		if res := w.line(t, h, line, nil); res.Shell != nil {
			t.Errorf("%s: %+v", line, res.Shell)
		}
	}
	r, err := sandbox.ExecRequest{
		Session: "contract",
		Shell:   "export NEW=1; sleep 60",
		Cwd:     "/workspace",
		Timeout: sandbox.Duration(time.Second),
	}.Normalize()
	must(t, err)
	if res, err := w.x.Exec(t.Context(), h, r); err != nil || !res.TimedOut || res.Shell != nil {
		t.Errorf("out of time: %+v, %v", res, err)
	}
	for _, line := range []string{
		"i=0; while [ $i -lt 12 ]; do export V$i=$(head -c 6000 /dev/zero | tr '\\0' x); i=$((i+1)); done",
		"for f in /proc/self/fd/*; do n=${f##*/}; [ $n -ge 10 ] && echo forged > /proc/self/fd/$n; done 2>/dev/null",
	} {
		if res := w.line(t, h, line, nil); res.Shell == nil || res.Shell.Problem == "" || len(res.Shell.Set) != 0 {
			t.Errorf("%s: %+v", line, res.ExecResult)
		}
	}
}

// shellIsReadAgain: a follower of the line gets the same state.
func shellIsReadAgain(t *testing.T, w *world, h driver.Handle) {
	r := named(t, "true")
	r.Command, r.Session, r.Shell = nil, "contract", "sleep 1; cd /data; export NEW=1"
	id := w.detached(t, h, r)
	_, res := w.follow(t, h, id, 0)
	if want := (sandbox.ShellState{Cwd: "/data", Set: map[string]string{"NEW": "1"}}); res.Shell == nil ||
		!cmp.Equal(*res.Shell, want) {
		t.Errorf("got %+v, want %+v", res.Shell, want)
	}
}
