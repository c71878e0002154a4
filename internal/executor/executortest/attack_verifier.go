package executortest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// verdicts are commands whose exit code is 1 unless code of the sandbox has a part in it.
var verdicts = []sandbox.ExecRequest{
	{Command: []string{"/bin/false"}},
	{Command: []string{"false"}},
	{Command: []string{"/bin/false"}},
	// Whether a file is another one after a while.
	{Command: []string{"sh", "-c", `a=$(cat answer); sleep 0.03; b=$(cat answer); [ -n "$a" ] && [ "$a" != "$b" ]`}},
	{Command: []string{"/bin/false"}},
	// A shell that reads what it is to do at its start.
	{Command: []string{"sh", "-lc", "/bin/false"}},
	{Command: []string{"/bin/false"}},
	// What blocks its reader.
	{Command: []string{"sh", "-c", "cat fifo; exit 1"}, Timeout: sandbox.Duration(time.Second)},
	{Command: []string{"/bin/false"}},
	{Command: []string{"sh", "-c", "cat leased; exit 1"}, Timeout: sandbox.Duration(time.Second)},
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
	for i := range a.attempts {
		if broken > 3 {
			break // it hangs: more attempts say nothing new
		}
		r := verdicts[i%len(verdicts)]
		r.As = sandbox.AsVerifier
		r.Timeout = max(r.Timeout, sandbox.Duration(time.Second))
		r, err := r.Normalize()
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
	if genuine < a.attempts/3 || len(counts) < 4 {
		t.Errorf("of %d verifiers %d had a result, and %d kinds of forgers %d attempts: that proves nothing", a.attempts, genuine, len(counts), met)
	}
	a.recovers(t, h)
}
