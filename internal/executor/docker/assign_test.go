package docker_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// spawnPooled creates a sandbox that waits for its lease, and returns the specification for that lease.
func (w *world) spawnPooled(t testing.TB) driver.SandboxSpec {
	t.Helper()
	spec := w.spec()
	waiting := spec
	waiting.LeaseID, waiting.AgentDID, waiting.Generation, waiting.Config = "", "", 0, nil
	must(t, w.x.Spawn(t.Context(), waiting))
	return spec
}

// A remote engine may be on another machine.
func TestSandboxOfARemoteEngineIsAssigned(t *testing.T) {
	t.Parallel()
	w, remote := newWorld(t, dockertest.Busybox(t)), executorOver(t, dockertest.NewCuttableProxy(t))
	spec := w.spawnPooled(t)
	must(t, remote.Sleep(t.Context(), spec.Handle, sandbox.SleepPause))
	wake(t, remote, spec.Handle)
	for range 2 {
		must(t, remote.Assign(t.Context(), spec))
	}
	if got, want := w.exec(t, spec.Handle, "sh", "-c", `echo "$AGENT_DID"; cat config.json`), spec.AgentDID+"\n"+
		string(spec.Config); got != want {
		t.Errorf("the sandbox knows %q, want %q", got, want)
	}
}

func TestAssigningARunningSandboxAsksNothingOfTheEngine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	x, p := throughProxy(t)
	must(t, x.Assign(t.Context(), w.spawnPooled(t))) // finds the relay and the engine's clock
	waiting := []driver.SandboxSpec{w.spawnPooled(t), w.spawnPooled(t), w.spawnPooled(t)}
	for _, spec := range waiting { // a guest that does not answer soon is looked for on the engine
		w.exec(t, spec.Handle, "true")
	}
	var asked atomic.Int64
	p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		asked.Add(1)
		pass(rw, r)
	})
	for _, spec := range waiting {
		must(t, x.Assign(t.Context(), spec))
		r, err := sandbox.ExecRequest{Command: []string{"sh", "-c", "echo $AGENT_DID"}}.Normalize()
		must(t, err)
		res, err := x.Exec(t.Context(), spec.Handle, r)
		must(t, err)
		if string(res.Stdout) != spec.AgentDID+"\n" {
			t.Errorf("a command is told that its agent is %q", res.Stdout)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("3 assignments made %d requests to the engine", n)
	}
}

func BenchmarkAssign(b *testing.B) {
	w := newWorld(b, dockertest.Busybox(b))
	for b.Loop() {
		b.StopTimer()
		spec := w.spawnPooled(b)
		b.StartTimer()
		must(b, w.x.Assign(b.Context(), spec))
		b.StopTimer()
		must(b, w.x.Kill(b.Context(), spec.Handle))
		b.StartTimer()
	}
}
