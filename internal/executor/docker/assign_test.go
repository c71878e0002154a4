package docker_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// An engine that is reached over a network may be another machine's: its files are not ours to write.
func TestSandboxOfARemoteEngineIsAssignedThroughTheEngine(t *testing.T) {
	t.Parallel()
	w, remote := newWorld(t, dockertest.Busybox(t)), executorOver(t, dockertest.NewCable(t))
	spec := w.spec()
	pooled := spec
	pooled.LeaseID, pooled.AgentDID, pooled.Generation, pooled.Config = "", "", 0, nil
	must(t, remote.Spawn(t.Context(), pooled))
	must(t, remote.Sleep(t.Context(), spec.Handle, sandbox.SleepPause))
	for range 2 {
		must(t, remote.Assign(t.Context(), spec))
	}
	must(t, remote.Wake(t.Context(), spec.Handle))
	if got, want := w.exec(t, spec.Handle, "sh", "-c", `echo "$AGENT_DID"; cat config.json`), spec.AgentDID+"\n"+string(spec.Config); got != want {
		t.Errorf("the sandbox knows %q, want %q", got, want)
	}
}
