package reconciler_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestAcquireFromAWarmPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	const lifetime = 20 * time.Second
	w.environment("catan", func(p *sandbox.PutEnvironment) {
		p.WarmPool = &sandbox.WarmPool{Size: 1}
		p.MaxLifetime = sandbox.Duration(lifetime)
	})
	w.eventually("a sandbox waits", func() bool { return w.poolReady() == 1 })
	w.environment("catan", func(p *sandbox.PutEnvironment) { // only one, so that only ann's sandbox exists
		p.WarmPool = &sandbox.WarmPool{Size: 1, Paused: true}
		p.MaxLifetime = sandbox.Duration(lifetime)
	})
	l := w.acquire(agent(0), "catan")
	if w.poolReady() != 0 || w.containers() != 1 {
		t.Fatalf("%d wait and %d containers exist: it did not come from the pool", w.poolReady(), w.containers())
	}
	if got := w.exec(l.ID, "sh", "-c", `echo "$AGENT_DID $ENVIRONMENT_ID"`); got != agent(0)+" catan\n" {
		t.Errorf("a command sees %q", got)
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(w.exec(l.ID, "cat", "/workspace/config.json")), &config); err != nil {
		t.Fatal(err)
	}
	if config["agent_did"] != agent(0) || config["lease_id"] != l.ID || config["sandbox_id"] != l.SandboxID ||
		config["generation"] != float64(1) || config["agentDid"] != agent(0) || config["environmentId"] != "catan" ||
		config["environmentType"] != "catan" {
		t.Errorf("config.json says %v", config)
	}
	ours := w.labelled()
	w.kill() // no reconciler watches it: it ends by itself
	w.eventually("the container has ended",
		func() bool { return w.docker("ps", "-q", "--filter", ours, "--filter", sandboxes) == "" })
	if early := time.Until(l.LeasedAt.Add(lifetime)); early > 0 {
		t.Errorf("it ended %s before its max_lifetime", early)
	}
	w.start()
}

// poolReady returns how many sandboxes wait in the pool of catan.
func (w *world) poolReady() int64 {
	w.Helper()
	e, err := w.service.GetEnvironment(w.Context(), "catan")
	if err != nil {
		w.Fatal(err)
	}
	return e.Pool.Ready
}
