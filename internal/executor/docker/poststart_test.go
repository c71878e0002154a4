package docker_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestPostStartCommandsFindAllInPlaceAndSayHowTheyFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	e, end := w.engineOn(t, filepath.Join(t.TempDir(), "ledger.db"))
	defer end()
	env := w.environment()
	env.Type, env.Resources, env.SleepMode = sandbox.TypeCustom, sandbox.DefaultResources, sandbox.SleepStop
	env.InitialData = map[string]string{"map": "gold "}
	shell := func(script string) sandbox.PostStart { return sandbox.PostStart{Command: []string{"sh", "-c", script}} }
	env.PostStart = []sandbox.PostStart{
		shell("cat /data/map /run/secrets/token > seen"), shell("id -u >> seen; test -f config.json"),
	}
	env.PostStart[1].User = "1001"
	put := func() {
		t.Helper()
		_, err := e.PutEnvironment(t.Context(), sandbox.PutEnvironment{
			ID:              w.ref.EnvironmentID,
			Owner:           "test",
			EnvironmentSpec: env,
			SecretValues:    map[string]sandbox.Secret{"token": "hunter2 "},
		})
		must(t, err)
	}
	acquire := func(agent string) (sandbox.Acquired, error) {
		return e.Acquire(t.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: w.ref.EnvironmentID, Owner: "test"})
	}
	env.PostStart[0].Command[2] += "; chmod 666 seen"
	put()
	a, err := acquire("did:plc:ann")
	must(t, err)
	for range 2 { // after a stop and a start, none of them runs again
		res, err := e.Exec(t.Context(), sandbox.LeaseRef{ID: a.Lease.ID},
			sandbox.ExecRequest{Command: []string{"cat", "seen"}})
		must(t, err)
		if got := string(res.Stdout); got != "gold hunter2 1001\n" {
			t.Errorf("the commands found %q", got)
		}
		_, err = e.Sleep(t.Context(), sandbox.LeaseRef{ID: a.Lease.ID})
		must(t, err)
	}

	env.PostStart = []sandbox.PostStart{shell("echo out; echo no such module >&2; exit 3")}
	put()
	_, err = acquire("did:plc:bob")
	if sandbox.CodeOf(err) != sandbox.Failed || sandbox.ReasonOf(err) != sandbox.ReasonPostStartFailed ||
		!strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), "no such module") {
		t.Errorf("the acquire ended with %v", err)
	}
	for _, agent := range []string{"did:plc:ann", "did:plc:bob"} {
		_, err := e.Release(t.Context(), sandbox.LeaseRef{ID: sandbox.LeaseID(agent, w.ref.EnvironmentID)})
		must(t, err)
	}
}

func TestAToolThatAnImageLacksIsNamed(t *testing.T) {
	t.Parallel()
	files := append(dockertest.BusyboxFiles(t),
		dockertest.File{Name: "bin/git", Mode: 0o755}, dockertest.File{Name: "bin/node", Mode: 0o644},
		dockertest.File{Name: "etc/ssl/cert.pem", Mode: 0o644})
	w := newWorld(t, dockertest.Keep(t, files, "ENV PATH=/bin"))
	e, end := w.engineOn(t, filepath.Join(t.TempDir(), "ledger.db"))
	defer end()
	acquire := func(agent string, tools ...string) error {
		t.Helper()
		env := w.environment()
		env.Type, env.Resources, env.BuiltinTools = sandbox.TypeCustom, sandbox.DefaultResources, tools
		_, err := e.PutEnvironment(t.Context(),
			sandbox.PutEnvironment{ID: w.ref.EnvironmentID, Owner: "test", EnvironmentSpec: env})
		must(t, err)
		_, err = e.Acquire(t.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: w.ref.EnvironmentID, Owner: "test"})
		return err
	}
	must(t, acquire("did:plc:ann", "git", "certificates"))
	_, err := e.Release(t.Context(), sandbox.LeaseRef{ID: sandbox.LeaseID("did:plc:ann", w.ref.EnvironmentID)})
	must(t, err)
	err = acquire("did:plc:bob", "git", "gh", "npm")
	if sandbox.ReasonOf(err) != sandbox.ReasonToolMissing || !strings.Contains(err.Error(), "image "+w.image+
		" lacks the program gh of gh; the program node of npm; the program npm of npm; the program npx of npm; add it") {
		t.Errorf("the acquire ended with %v", err)
	}
}
