package executortest

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// tricked are commands that exit with 1 unless sandbox code interferes.
var tricked = []sandbox.ExecRequest{
	// This checks whether a file changes after a while.
	{Command: []string{"sh", "-c", `a=$(cat answer); sleep 0.03; b=$(cat answer); [ -n "$a" ] && [ "$a" != "$b" ]`}},
	// The workspace has another program with this name.
	{Command: []string{"false"}},
	{Command: []string{"sh", "-c", `a=$(cat answer); sleep 0.1; b=$(cat answer); [ -n "$a" ] && [ "$a" != "$b" ]`}},
	// This shell reads startup files.
	{Command: []string{"sh", "-lc", "/bin/false"}},
	// The file blocks its reader.
	{Command: []string{"sh", "-c", "cat fifo; exit 1"}, Timeout: sandbox.Duration(300 * time.Millisecond)},
	{Command: []string{"sh", "-c", "cat leased; exit 1"}, Timeout: sandbox.Duration(300 * time.Millisecond)},
}

// verdict is the command of an attempt: two of three are /bin/false, the third is tricked.
func verdict(i int) sandbox.ExecRequest {
	r := sandbox.ExecRequest{Command: []string{"/bin/false"}}
	if i%3 == 2 {
		r = tricked[i/3%len(tricked)]
	}
	if r.Timeout == 0 {
		r.Timeout = sandbox.Duration(5 * time.Second)
	}
	r.As = sandbox.AsVerifier
	return r
}

// forgeVerdicts runs verifiers while programs of the sandbox try everything to run at the same time, to trace and
// signal them, and to change their input. A verifier may fail with an error. It must never have a wrong result.
func forgeVerdicts(t *testing.T, a *attacks) {
	if !a.x.Capabilities().Verifier {
		t.Skip("the backend runs no verifiers")
	}
	h := a.attacked(t)
	id := a.start(t, h, "forge", enoughFile)
	var forged, genuine, late, refused, broken int
	const most = 2000 // they run one after another
	attempts := min(a.attempts, most) * 3 / 2
	for i := range attempts {
		if broken > 3 {
			break // it hangs: more attempts prove nothing new
		}
		r, err := verdict(i).Normalize()
		must(t, err)
		began := time.Now()
		res, err := a.x.Exec(t.Context(), h, r)
		took := time.Since(began)
		var e *sandbox.Error
		switch {
		case took > 2*answerIn:
			broken++
			t.Errorf("verifier %d took %s: %v", i, took, err)
		case err == nil && res.TimedOut:
			late++
		case err == nil && res.ExitCode == 1 && len(res.Stdout)+len(res.Stderr) == 0:
			genuine++
		case err == nil:
			forged++
			t.Errorf("verifier %d, %v, is said to have ended with %d: %q, %q",
				i, r.Command, res.ExitCode, res.Stdout, res.Stderr)
		case errors.As(err, &e) && e.Code == sandbox.Failed && strings.Contains(err.Error(), "does not count"):
			refused++
		default:
			broken++
			t.Errorf("verifier %d: %v", i, err)
		}
	}
	t.Logf("%d results were genuine, %d timeouts, %d were refused because a program ran, %d were forged",
		genuine, late, refused, forged)
	_, counts := a.enough(t, h, id)
	met := 0
	for name, c := range counts {
		t.Logf("%s: %+v", name, c)
		met += c.attempts
		if c.successes > 0 {
			t.Errorf("%s: %d of %d attempts succeeded, first %s", name, c.successes, c.attempts, c.first)
		}
	}
	if genuine < attempts/3 || len(counts) < 4 {
		t.Errorf("of %d verifiers %d had a result, and %d kinds of forgers %d attempts: that proves nothing",
			attempts, genuine, len(counts), met)
	}
	a.recovers(t, h)
}

// execVerifier: a verifier is a command with another user. A backend without verifiers refuses it.
func execVerifier(t *testing.T, w *world, _ driver.Handle) {
	h := w.spawn(t) // in a shared sandbox, other commands would have to wait
	r, err := sandbox.ExecRequest{
		As:      sandbox.AsVerifier,
		Command: []string{"sh", "-c", "cat; id -u; pwd; ls /workspace; exit 5"},
		Stdin:   strings.NewReader("in\n"),
		Cwd:     "/data",
	}.Normalize()
	must(t, err)
	if !w.x.Capabilities().Verifier {
		_, err := w.x.Exec(t.Context(), h, r)
		wantError(t, err, sandbox.Invalid, "")
		return
	}
	uid, _, _ := strings.Cut(w.user(t, h), ":")
	n, err := strconv.Atoi(uid)
	must(t, err)
	w.sh(t, h, "touch /workspace/file; sleep 7206 >/dev/null 2>&1 &")
	res, err := w.x.Exec(t.Context(), h, r)
	must(t, err)
	want := "in\n" + strconv.Itoa(n+1) + "\n/data\nconfig.json\nfile\n"
	if string(res.Stdout) != want || len(res.Stderr) > 0 || res.ExitCode != 5 || res.TimedOut {
		t.Errorf("a verifier says %q, %q and exits with %d, not %q", res.Stdout, res.Stderr, res.ExitCode, want)
	}
	detached := named(t, "sh", "-c", "sleep 3; echo verdict; exit 6") // its caller leaves before it ends
	detached.As = sandbox.AsVerifier
	id := w.detached(t, h, detached)
	var out bytes.Buffer
	res, err = w.x.Follow(t.Context(), h, sandbox.Replay{ID: id, Stdout: &out})
	if err != nil || res.ExitCode != 6 || out.String() != "verdict\n" {
		t.Errorf("a detached one says %q, exits with %d and %v", out.String(), res.ExitCode, err)
	}
	late := named(t, "sleep", "7207")
	late.As, late.Timeout = sandbox.AsVerifier, sandbox.Duration(time.Second)
	if res := w.exec(t, h, late); !res.TimedOut || res.ExitCode != sandbox.ExitTimeout {
		t.Errorf("one out of time ended as %+v", res.ExecResult)
	}
	if n := w.alive(t, h, "sleep 7206"); n != 1 {
		t.Errorf("%d programs of the sandbox are alive after its verifiers", n)
	}
}
