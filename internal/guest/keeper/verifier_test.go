//go:build linux

package keeper_test

import (
	"bytes"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// verifies runs a command as a verifier.
func (b *box) verifies(t *testing.T, e channel.Exec) (stdout, stderr string, res wire.Result) {
	t.Helper()
	e.Cwd, e.Timeout = "/workspace", max(e.Timeout, 20*time.Second)
	var out, errOut bytes.Buffer
	r := channel.Request{Op: channel.OpVerify, ID: sandbox.RandomIDs(12), Exec: &e}
	res, err := b.call(r, channel.Streams{Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), res
}

func script(line string) channel.Exec { return channel.Exec{Args: []string{"sh", "-c", line}} }

func TestAVerifierHasAUserAndADirectoryOfItsOwn(t *testing.T) {
	b := start(t, options{})
	b.run(t, "umask 027; echo shared > group; echo private > own; chmod 600 own; mkdir -m 1777 open")
	out, errOut, res := b.verifies(t,
		script(`id -u; id -g; id -G; echo "$HOME $TMPDIR"; stat -c '%u %a' "$HOME"; touch "$HOME/x" open/y
		cat group; cat own 2>&1; touch z 2>&1; grep -E '^(CapBnd|NoNewPrivs|CapEff)' /proc/self/status; ulimit -u; pwd; exit 3`))
	v := strconv.Itoa(user + 1)
	home := strings.Fields(out)[4]
	want := v + "\n" + v + "\n" + v + " " + strconv.Itoa(user) + "\n" + home + " " + home + "\n" + v + " 700\nshared\n" +
		"cat: can't open 'own': Permission denied\ntouch: z: Permission denied\n" +
		"CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\n176\n/workspace\n"
	if out != want || errOut != "" || res.ExitCode != 3 || res.Problem != "" ||
		!strings.HasPrefix(home, "/tmp/verifier-") {
		t.Errorf("%q, %q, %+v, want %q", out, errOut, res, want)
	}
	if left, _, _ := b.run(t, "ls -A /tmp"); left != "" {
		t.Errorf("it leaves %q", left)
	}
}

// TestAVerifierTakesNothingFromTheSandboxButFiles replaces programs and variables.
func TestAVerifierTakesNothingFromTheSandboxButFiles(t *testing.T) {
	b := start(t, options{run: []string{
		"-e", "PATH=/workspace/bin:/data:/workspace/link:/bin:/usr/bin", "-e", "LD_PRELOAD=/workspace/x.so",
		"-e", "PYTHONPATH=/bin:/workspace", "-e", "BASH_ENV=/workspace/rc", "-e", "PROXY=http://127.0.0.1:3128",
		"-e", "OPTIONS=--require /workspace/x.js", "-e", "TOOLS=/usr/lib",
	}})
	b.run(t, "mkdir bin; printf '#!/bin/sh\nexit 0\n' > bin/false; chmod 755 bin/false; cp bin/false /data/false; ln -s "+
		"/bin link; echo exit 0 > rc")
	own := channel.Exec{Args: []string{"false"}, Cwd: "/workspace"}
	if _, _, res := b.exec(t, channel.Request{ID: "own", Exec: &own}, ""); res.ExitCode != 0 {
		t.Fatalf("the sandbox's own commands find no false of theirs: %+v", res)
	}
	if out, errOut, res := b.verifies(t, channel.Exec{Args: []string{"false"}}); res.ExitCode != 1 || out+errOut != "" {
		t.Errorf("%q, %q, %+v", out, errOut, res)
	}
	out, _, _ := b.verifies(t, channel.Exec{Args: []string{"env"}, Env: map[string]string{"MINE": "/workspace/mine"}})
	for _, want := range []string{
		"PATH=/bin:/bin\n", "PROXY=http://127.0.0.1:3128\n", "TOOLS=/usr/lib\n", "MINE=/workspace/mine\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q has no %q", out, want)
		}
	}
	for _, none := range []string{"LD_PRELOAD", "PYTHONPATH", "BASH_ENV", "OPTIONS", "=/workspace\n", "/data"} {
		if strings.Contains(out, none) {
			t.Errorf("%q has %q", out, none)
		}
	}
	b.run(t, "printf '#!/bin/sh\nexit 0\n' > bin/check; chmod 755 bin/check")
	_, errOut, res := b.verifies(t, channel.Exec{Args: []string{"check"}})
	if res.ExitCode != 127 || !strings.Contains(errOut, "check is not in a directory") {
		t.Errorf("a program of the sandbox by its name: %q, %+v", errOut, res)
	}
	if _, _, res := b.verifies(t, channel.Exec{Args: []string{"/workspace/bin/check"}}); res.ExitCode != 0 {
		t.Errorf("a program of the sandbox by its path: %+v", res)
	}
}

// TestAllElseStandsStillForAVerifier has programs that count, a stopped program, and a command that is requested
// meanwhile.
func TestAllElseStandsStillForAVerifier(t *testing.T) {
	b := start(t, options{})
	b.run(t, "for c in 1 2 3; do (i=0; while :; do i=$((i+1)); echo $i > $c; mv $c count; done) & done >/dev/null 2>&1; "+
		"sleep 1000 & echo $! > stopped; kill -STOP $!; until [ -e count ]; do :; done")
	began := make(chan struct{})
	ended := make(chan time.Time, 1)
	go func() {
		<-began
		_, _, res := b.exec(t, channel.Request{ID: "meanwhile", Exec: line("true")}, "")
		if res.ExitCode != 0 {
			t.Errorf("the command that waited: %+v", res)
		}
		ended <- time.Now()
	}()
	go func() {
		defer close(began)
		b.wantProcess(t, "sleep 3")
	}()
	out, errOut, res := b.verifies(t,
		script("cat count; sleep 3; cat count; (sleep 77 & setsid sleep 78 &) >/dev/null 2>&1"))
	verified := time.Now()
	if f := strings.Fields(out); res.ExitCode != 0 || len(f) != 2 || f[0] != f[1] {
		t.Errorf("%q, %q, %+v", out, errOut, res)
	}
	if at := <-ended; at.Before(verified.Add(-200 * time.Millisecond)) {
		t.Errorf("a command has ended %s before the verifier", verified.Sub(at))
	}
	after, _, _ := b.run(t, "a=$(cat count); sleep 0.3; [ $a != $(cat count) ] && echo counts; "+
		"grep State /proc/$(cat stopped)/status; ps | grep -c '[s]leep 7[78]'")
	if after != "counts\nState:\tT (stopped)\n0\n" {
		t.Errorf("afterwards: %q", after)
	}
}

func TestAVerifierEndsInTime(t *testing.T) {
	b := start(t, options{})
	b.run(t, "(i=0; while :; do i=$((i+1)); echo $i > c; mv c beat; done) >/dev/null 2>&1 & until [ -e beat ]; do :; done")
	began := time.Now()
	e := script("trap '' TERM; setsid sleep 1000 & sleep 1000")
	r := channel.Request{Op: channel.OpVerify, ID: "late", Exec: &e}
	e.Cwd, e.Timeout = "/workspace", time.Second
	res, err := b.call(r, channel.Streams{})
	if took := time.Since(began); err != nil || !res.TimedOut || res.ExitCode != 124 || took > 10*time.Second {
		t.Errorf("%+v, %v after %s", res, err, took)
	}
	out, _, _ := b.run(t, "a=$(cat beat); sleep 0.2; [ $a != $(cat beat) ] && echo beats; ps | grep -c '[s]leep 1000'")
	if out != "beats\n0\n" {
		t.Errorf("afterwards: %q", out)
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		b.wantProcess(t, "sleep 1000")
		if _, err := b.call(channel.Request{Op: channel.OpEnd, ID: "ended"}, channel.Streams{}); err != nil {
			t.Error(err)
		}
	}()
	defer func() { <-asked }()
	e.Timeout, began = 20*time.Second, time.Now()
	defer func() { t.Logf("ended on request after %s", time.Since(began)) }()
	res, err = b.call(channel.Request{Op: channel.OpVerify, ID: "ended", Exec: &e}, channel.Streams{})
	if err != nil || res.Problem != wire.ProblemFailed {
		t.Errorf("ended on request: %+v, %v", res, err)
	}
}

// TestVerifiersTakeTurns starts several at the same time, and one that has no time to wait.
func TestVerifiersTakeTurns(t *testing.T) {
	b := start(t, options{})
	results := make(chan wire.Result)
	for range 3 {
		go func() {
			_, _, res := b.verifies(t, script("sleep 0.3; [ $(ls -d /tmp/verifier-* | wc -l) = 1 ]"))
			results <- res
		}()
	}
	for range 3 {
		if res := <-results; res.ExitCode != 0 || res.Problem != "" {
			t.Errorf("%+v", res)
		}
	}
	go func() {
		_, _, res := b.verifies(t, script("touch $HOME/x; sleep 15"))
		results <- res
	}()
	b.wantProcess(t, "sleep 15")
	e := channel.Exec{Args: []string{"true"}, Cwd: "/workspace", Timeout: 100 * time.Millisecond}
	res, err := b.call(channel.Request{Op: channel.OpExec, ID: "hasty", Exec: &e}, channel.Streams{})
	if err != nil || res.Problem != wire.ProblemBusy {
		t.Errorf("a command without time to wait: %+v, %v", res, err)
	}
	if res := b.tryDo(channel.Request{Op: channel.OpSave, ID: "save", Path: []byte("/data")}); !strings.Contains(
		res.Message, "verifier") {
		t.Errorf("a save meanwhile: %+v", res)
	}
	last := channel.Request{Op: channel.OpSave, ID: "last", Path: []byte("/data"), Save: &channel.Save{End: true}}
	if res := b.tryDo(last); res.Problem != "" {
		t.Errorf("the last save: %+v", res)
	}
	if res := <-results; res.Problem != wire.ProblemFailed {
		t.Errorf("the verifier that the last save ended: %+v", res)
	}
}

// wantProcess waits until a process runs in the sandbox.
func (b *box) wantProcess(t *testing.T, command string) {
	t.Helper()
	if !testwait.Poll(10*time.Second, func() bool { return strings.Contains(b.docker(t, "top", b.name), command) }) {
		t.Errorf("%s does not run", command)
	}
}

func (b *box) tryDo(r channel.Request) wire.Result {
	res, err := b.call(r, channel.Streams{})
	if err != nil {
		res.Problem, res.Message = wire.ProblemFailed, err.Error()
	}
	return res
}

// TestAVerdictOutlivesTheBroker kills the broker while a verifier runs.
func TestAVerdictOutlivesTheBroker(t *testing.T) {
	b := start(t, options{})
	b.run(t,
		"(i=0; while :; do i=$((i+1)); echo $i > c; mv c count; done) >/dev/null 2>&1 & until [ -e count ]; do :; done")
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		b.wantProcess(t, "sleep 8")
		if out, err := exec.Command("kill", "-KILL", b.broker(t)).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}()
	defer func() { <-killed }()
	var out bytes.Buffer
	e := script("cat count; sleep 8; cat count; exit 5")
	e.Cwd, e.Timeout = "/workspace", 20*time.Second
	res, err := b.call(channel.Request{Op: channel.OpVerify, ID: "verdict", Exec: &e}, channel.Streams{Stdout: &out})
	for tries := 0; (err != nil || res.Problem != "") && tries < 50; tries++ {
		r := channel.Request{Op: channel.OpFollow, ID: "verdict", Follow: &channel.Follow{StdoutOffset: int64(out.Len())}}
		res, err = b.call(r, channel.Streams{Stdout: &out})
	}
	if f := strings.Fields(out.String()); err != nil || res.ExitCode != 5 || len(f) != 2 || f[0] != f[1] {
		t.Errorf("%q, %+v, %v", out.String(), res, err)
	}
	again := channel.Exec{Args: []string{"true"}, Cwd: "/workspace"}
	res, err = b.call(channel.Request{Op: channel.OpVerify, ID: "verdict", Exec: &again}, channel.Streams{})
	if err != nil || res.Problem != wire.ProblemConflict {
		t.Errorf("a repetition: %+v, %v", res, err)
	}
}

func TestAVerifierNeedsASandboxWithAUserOfItsOwn(t *testing.T) {
	b := start(t, options{keep: []string{"-own-uid=false"}})
	_, _, res := b.verifies(t, channel.Exec{Args: []string{"true"}})
	if res.Problem != wire.ProblemInvalid || !strings.Contains(res.Message, "confinement.user") {
		t.Errorf("%+v", res)
	}
}

// TestAVerifierRunsBesideAFullSandbox lets programs use up their process limit. The rest may be too small for a
// verifier.
func TestAVerifierRunsBesideAFullSandbox(t *testing.T) {
	b := start(t, options{})
	b.run(t, "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done >/dev/null 2>&1")
	for range 3 {
		out, errOut, res := b.verifies(t, script("echo a | cat; exit 1"))
		refused := res.Problem == wire.ProblemFailed && strings.Contains(res.Message, "end some programs")
		if !refused && (out != "a\n" || errOut != "" || res.ExitCode != 1 || res.Problem != "") {
			t.Errorf("%q, %q, %+v", out, errOut, res)
		}
		t.Logf("refused: %t", refused)
	}
}

// TestProgramsThatStopAreNoReasonToRefuse has programs that fork, sleep and write all the time.
func TestProgramsThatStopAreNoReasonToRefuse(t *testing.T) {
	b := start(t, options{})
	b.run(t, "(while :; do date > d; mv d e; sync e; done) >/dev/null 2>&1 & (while :; do sleep 0.01; done) >/dev/null "+
		"2>&1 & (while :; do echo x; done | cat) >/dev/null 2>&1 &")
	var slowest time.Duration
	for i := range 50 {
		began := time.Now()
		if _, errOut, res := b.verifies(t, channel.Exec{Args: []string{"true"}}); res.ExitCode != 0 || res.Problem != "" {
			t.Errorf("verifier %d: %q, %+v", i, errOut, res)
		}
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("the slowest of 50 took %s", slowest)
}

// TestAVerifierContinuesAfterASuspension suspends the sandbox with its programs while a verifier runs.
func TestAVerifierContinuesAfterASuspension(t *testing.T) {
	b := start(t, options{})
	b.run(t,
		"(i=0; while :; do i=$((i+1)); echo $i > c; mv c count; done) >/dev/null 2>&1 & until [ -e count ]; do :; done")
	suspended := make(chan struct{})
	time.AfterFunc(500*time.Millisecond, func() {
		defer close(suspended)
		for _, what := range []string{"pause", "unpause"} {
			if out, err := exec.Command("docker", what, b.name).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			time.Sleep(time.Second) //nolint:forbidigo // a suspension is real time
		}
	})
	out, errOut, res := b.verifies(t, script("cat count; sleep 1; cat count; exit 4"))
	<-suspended
	if f := strings.Fields(out); res.ExitCode != 4 || len(f) != 2 || f[0] != f[1] {
		t.Errorf("%q, %q, %+v", out, errOut, res)
	}
	if out, _, _ := b.run(t, "a=$(cat count); sleep 0.3; [ $a != $(cat count) ] && echo counts"); out != "counts\n" {
		t.Errorf("afterwards: %q", out)
	}
}
