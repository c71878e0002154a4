package reconciler_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestNothingRunsAsRootInASandboxWhoseEnvironmentRefusesRoot requests user 0 in a real sandbox in every possible way,
// and audits its processes.
func TestNothingRunsAsRootInASandboxWhoseEnvironmentRefusesRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	lease := w.acquire(agent(1), "catan")
	ref, command := sandbox.LeaseRef{ID: lease.ID}, []string{"id", "-u"}
	for _, user := range []string{"0", "0:0", "1000:0", "root", "root:root"} {
		_, exec := w.service.Exec(t.Context(), ref, sandbox.ExecRequest{Command: command, User: user})
		_, detached := w.service.StartExec(t.Context(), ref, sandbox.ExecRequest{Command: command, User: user})
		_, process := w.service.StartProcess(t.Context(), ref,
			sandbox.ProcessSpec{Name: "as-root", Command: []string{"sleep", "60"}, User: user})
		_, session := w.service.CreateSession(t.Context(), ref, sandbox.CreateSession{ID: "as-root", User: user})
		for what, err := range map[string]error{
			"exec":          exec,
			"detached exec": detached,
			"process":       process,
			"session":       session,
		} {
			e, ok := errors.AsType[*sandbox.Error](err)
			if !ok || e.Code != sandbox.Invalid || len(e.Fields) != 1 || e.Fields[0].Name != "user" {
				t.Errorf("%s as %q: %v", what, user, err)
			}
		}
	}
	res, err := w.service.Exec(t.Context(), ref, sandbox.ExecRequest{User: "1001", Command: []string{"sh", "-c",
		`id -u; id -g; for p in /proc/[0-9]*; do stat -c %u $p 2>/dev/null; done | sort -u`}})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(res.Stdout)); len(got) < 3 || got[0] != "1001" || got[1] != "1001" ||
		strings.Contains("\n"+string(res.Stdout), "\n0\n") {
		t.Errorf("another user that is not root, and the owners of all processes, are %q", got)
	}

	res, err = w.service.Exec(t.Context(), ref,
		sandbox.ExecRequest{As: sandbox.AsVerifier, Command: []string{"sh", "-c", "id -u; echo $HOME; exit 7"}})
	if err != nil {
		t.Fatal(err)
	}
	own, err := w.service.Exec(t.Context(), ref, sandbox.ExecRequest{Command: command})
	if err != nil {
		t.Fatal(err)
	}
	id, _ := strconv.Atoi(strings.TrimSpace(string(own.Stdout)))
	if got := string(res.Stdout); res.ExitCode != 7 || !strings.HasPrefix(got, strconv.Itoa(id+1)+"\n/tmp/verifier-") {
		t.Errorf("as verifier, in a sandbox of user %d: %q, exit code %d, %s", id, got, res.ExitCode, res.Stderr)
	}

	w.environment("rooted", func(p *sandbox.PutEnvironment) { p.Confinement.AllowRoot = true })
	ref = sandbox.LeaseRef{ID: w.acquire(agent(1), "rooted").ID}
	res, err = w.service.Exec(t.Context(), ref, sandbox.ExecRequest{User: "0", Command: command})
	if err != nil || string(res.Stdout) != "0\n" {
		t.Errorf("as root, which the environment allows: %q, %v", res.Stdout, err)
	}
}
