package cloudflare_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) {
	executortest.Overlap()
	goleak.VerifyTestMain(m)
}

// patience bounds every wait; it is generous because test machines are busy.
const patience = 2 * time.Minute

// world is one Worker with a client.
type world struct {
	*testing.T
	server *cloudflaretest.Server
	worker *cloudflare.Worker
}

func TestWorker(t *testing.T) {
	server := cloudflaretest.Start(t, cloudflaretest.Config{})
	w := &world{t, server, server.Worker()}
	t.Run("Lifecycle", func(t *testing.T) { testLifecycle(w.with(t)) })
	t.Run("Exec", func(t *testing.T) { testExec(w.with(t)) })
	t.Run("Data", func(t *testing.T) { testData(w.with(t)) })
	t.Run("Observe", func(t *testing.T) { testObserve(w.with(t)) })
	t.Run("Hazards", func(t *testing.T) { testHazards(w.with(t)) })
	t.Run("Signature", func(t *testing.T) { testSignature(w.with(t)) })
}

// with returns the same world for another test.
func (w *world) with(t *testing.T) *world { return &world{t, w.server, w.worker} }

// each runs tests side by side.
func (w *world) each(tests map[string]func(*world)) {
	for name, test := range tests {
		w.Run(name, func(t *testing.T) { t.Parallel(); test(w.with(t)) })
	}
}

func (w *world) spec() driver.SandboxSpec {
	const agent = "did:plc:worker"
	return driver.SandboxSpec{
		Handle: driver.Handle{
			LedgerID: "ledgerofworker22", EnvironmentID: "worker-1", Instance: w.server.Instance,
			SandboxID: sandbox.RandomIDs(sandbox.SandboxIDLength),
		},
		LeaseID: sandbox.LeaseID(agent, "worker-1"), Generation: 3, AgentDID: agent, EnvironmentType: sandbox.TypeCustom,
		Image: "busybox", Network: sandbox.NetworkNone, Env: map[string]string{"FLAVOUR": "of the environment"},
		Deadline: time.Now().Add(time.Hour), Config: []byte(`{"seat":"red"}`),
		Version: "0.1.0",
	}
}

// spawn creates a sandbox with limits. It ends with the test.
func (w *world) spawn(l cloudflare.Limits, change ...func(*driver.SandboxSpec)) driver.Handle {
	w.Helper()
	spec := w.spec()
	for _, f := range change {
		f(&spec)
	}
	w.must(w.worker.Spawn(w.Context(), spec, l))
	return spec.Handle
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) wantError(err error, code sandbox.Code, reason sandbox.Reason) {
	w.Helper()
	if sandbox.CodeOf(err) != code || sandbox.ReasonOf(err) != reason {
		w.Errorf("error has code %q and reason %q, want %q and %q: %v",
			sandbox.CodeOf(err), sandbox.ReasonOf(err), code, reason, err)
	}
}

func (w *world) inspect(h driver.Handle) cloudflare.SandboxStatus {
	w.Helper()
	s, err := w.worker.Inspect(w.Context(), h)
	w.must(err)
	return s
}

// sh runs a script and returns its output.
func (w *world) sh(h driver.Handle, script string) string {
	w.Helper()
	r, err := sandbox.ExecRequest{Command: []string{"sh", "-c", script}}.Normalize()
	w.must(err)
	res, err := w.worker.Exec(w.Context(), h, r)
	w.must(err)
	return string(res.Stdout) + string(res.Stderr)
}

// awaitStopped waits until a container has ended without a request of this test, and returns its last period.
func (w *world) awaitStopped(h driver.Handle) (stopped cloudflare.Period) {
	w.Helper()
	testwait.Until(w, patience, "the sandbox has stopped", func() bool {
		s := w.inspect(h)
		stopped = s.Period
		return s.State == sandbox.StateStopped
	})
	return stopped
}

// ask gets the answer at a path of a test's script, which is appended to the Worker.
func (w *world) ask(path string, into any) {
	w.Helper()
	answer, err := http.Get(w.server.URL + path)
	w.must(err)
	defer answer.Body.Close()
	w.must(json.NewDecoder(answer.Body).Decode(into))
}
