package executortest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// tricked are commands whose exit code is 1 unless code of the sandbox has a part in it.
var tricked = []sandbox.ExecRequest{
	// Whether a file is another one after a while.
	{Command: []string{"sh", "-c", `a=$(cat answer); sleep 0.03; b=$(cat answer); [ -n "$a" ] && [ "$a" != "$b" ]`}},
	// A program of the image that the workspace has another of.
	{Command: []string{"false"}},
	{Command: []string{"sh", "-c", `a=$(cat answer); sleep 0.1; b=$(cat answer); [ -n "$a" ] && [ "$a" != "$b" ]`}},
	// A shell that reads what it is to do at its start.
	{Command: []string{"sh", "-lc", "/bin/false"}},
	// What blocks its reader.
	{Command: []string{"sh", "-c", "cat fifo; exit 1"}, Timeout: sandbox.Duration(300 * time.Millisecond)},
	{Command: []string{"sh", "-c", "cat leased; exit 1"}, Timeout: sandbox.Duration(300 * time.Millisecond)},
}

// verdict is the command of an attempt: /bin/false twice, then one that is tricked.
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

// forgeVerdicts asks for verifiers while programs of the sandbox do all they can to run beside them, to trace and to signal
// them, and to change what they read. A verifier may fail with an error. It never has another result than its own.
func forgeVerdicts(t *testing.T, a *attacks) {
	if !a.x.Capabilities().Verifier {
		t.Skip("the backend runs no verifiers")
	}
	h := a.attacked(t)
	id := a.start(t, h, "forge", enoughFile)
	var forged, genuine, late, refused, broken int
	attempts := a.attempts * 3 / 2
	for i := range attempts {
		if broken > 3 {
			break // it hangs: more attempts say nothing new
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
			t.Errorf("verifier %d, %v, is said to have ended with %d: %q, %q", i, r.Command, res.ExitCode, res.Stdout, res.Stderr)
		case errors.As(err, &e) && e.Code == sandbox.Failed && strings.Contains(err.Error(), "does not count"):
			refused++
		default:
			broken++
			t.Errorf("verifier %d: %v", i, err)
		}
	}
	t.Logf("%d results were genuine, %d timeouts, %d were refused because a program ran, %d were forged", genuine, late, refused, forged)
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
		t.Errorf("of %d verifiers %d had a result, and %d kinds of forgers %d attempts: that proves nothing", attempts, genuine, len(counts), met)
	}
	a.recovers(t, h)
}
