package docker_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/gateways"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// modelWorld is an engine, a lease service on a ledger, and an upstream of models whose address looks public.
type modelWorld struct {
	*world
	engine *leasing.Service
	key    string
	host   string // this machine's address on the network of the outside, as git.test
}

// modelWorlds counts the worlds, because each needs its own range.
var modelWorlds atomic.Int32

// newModelWorld creates a world in which model.test is the outside. No sandbox may reach it directly.
func newModelWorld(t *testing.T, image string) *modelWorld {
	t.Helper()
	api := dockertest.Engine(t)
	name := "sandbox-test-" + sandbox.RandomIDs(12)
	number := 113 + modelWorlds.Add(1)
	upstream, _ := serveOutside(t, api, name, dockerapi.NetworkCreateOptions{IPAM: &dockerapi.IPAM{
		Config: []dockerapi.IPAMConfig{{Subnet: fmt.Sprintf("203.0.%d.0/24", number)}},
	}})
	host := fmt.Sprintf("203.0.%d.1", number)
	x, err := docker.New(docker.Config{
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Gateway: gateways.Config{
			Network: name, Hosts: []string{"model.test:" + upstream, "git.test:" + host},
		},
	})
	must(t, err)
	w := &modelWorld{
		host: host, world: newWorldOf(t, x, image, func(*sandbox.EnvironmentSpec) {}),
		key: "sk-" + sandbox.RandomIDs(40),
	}
	e, end := w.engineOn(t, filepath.Join(t.TempDir(), "ledger.db"))
	t.Cleanup(end)
	w.engine = e
	w.put(t, func(*sandbox.EnvironmentSpec) {})
	return w
}

// put applies the environment, with a route to model.test and network none.
func (w *modelWorld) put(t *testing.T, change func(s *sandbox.EnvironmentSpec)) {
	t.Helper()
	spec := w.environment()
	spec.Resources = sandbox.DefaultResources
	spec.LLM = map[string]sandbox.LLMRoute{"main": {
		API: sandbox.LLMOpenAI, Upstream: "http://model.test", Credential: "model_key",
		Models: map[string]sandbox.LLMModel{
			"small": {Input: sandbox.USD, Output: 10 * sandbox.USD}, "stall": {Input: sandbox.USD, Output: 10 * sandbox.USD},
		},
	}}
	change(&spec)
	_, err := w.engine.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID: w.ref.EnvironmentID, Owner: "test", EnvironmentSpec: spec,
		SecretValues: map[string]sandbox.Secret{"model_key": sandbox.Secret(w.key), "other": "of the sandbox"},
	})
	must(t, err)
}

func (w *modelWorld) acquire(t *testing.T) sandbox.Lease {
	t.Helper()
	a, err := w.engine.Acquire(t.Context(),
		sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.ref.EnvironmentID, Owner: "test"})
	must(t, err)
	return a.Lease
}

// sh runs a shell command in the lease's sandbox and returns its output.
func (w *modelWorld) sh(t *testing.T, l sandbox.Lease, line string) string {
	t.Helper()
	res, err := w.engine.Exec(t.Context(), sandbox.LeaseRef{ID: l.ID},
		sandbox.ExecRequest{Command: []string{"sh", "-c", line}})
	must(t, err)
	return string(res.Stdout) + string(res.Stderr)
}

// ask is the shell command for a call that a client makes from the variables.
func ask(model string) string {
	return fmt.Sprintf(`wget -q -O - --header "Authorization: Bearer $OPENAI_API_KEY" --header "X-Litellm-Key: mine" `+
		`--header "Content-Type: application/json" --post-data '{"model":"%s","max_tokens":10,"messages":[]}' `+
		`"$OPENAI_BASE_URL/chat/completions"`, model)
}

// calls collects the journal and returns the recorded calls, the latest first.
func (w *modelWorld) calls(t *testing.T) []sandbox.LLMCall {
	t.Helper()
	must(t, w.engine.CollectEgress(t.Context(), sandbox.Docker))
	calls, err := w.engine.ListLLMCalls(t.Context(), sandbox.LLMCallQuery{})
	must(t, err)
	return calls
}

func (w *modelWorld) gatewayName() string {
	return "sandbox-" + w.ref.LedgerID + "-env-" + w.ref.EnvironmentID + "-gateway"
}

func TestASandboxWithoutANetworkCallsAModelWithoutItsKey(t *testing.T) {
	t.Parallel()
	w := newModelWorld(t, dockertest.Busybox(t))
	l := w.acquire(t)
	sum := sha256.Sum256([]byte("Bearer " + w.key))
	want := fmt.Sprintf("key=%x lease=%s agent=did:plc:ann", sum[:8], l.ID)
	if got := w.sh(t, l, ask("small")); !strings.Contains(got, want) {
		t.Fatalf("the call answers %q, want %q", got, want)
	}
	if got := w.sh(t, l, ask("dear")); !strings.Contains(got, "403") {
		t.Errorf("a model without a price answers %q", got)
	}
	if got := w.sh(t, l, "wget -q -O - http://model.test/ 2>&1; http_proxy=http://127.0.0.1:3128 wget -q -O - "+
		"http://model.test/ 2>&1"); strings.Contains(got, "reached") {
		t.Errorf("beside its route the sandbox reaches %q", got)
	}
	calls := w.calls(t)
	if len(calls) != 1 || calls[0].Outcome != sandbox.LLMCompleted || calls[0].Cost != 1_700_000 ||
		calls[0].LeaseID != l.ID ||
		calls[0].Tokens != (sandbox.LLMTokens{Input: 1000, CachedInput: 200, Output: 50}) {
		t.Errorf("the calls are %+v", calls)
	}

	w.wantKeyNowhere(t, l)
}

// wantKeyNowhere searches for the key where sandbox code can read, and in what the engine shows, stores and logs.
func (w *modelWorld) wantKeyNowhere(t *testing.T, l sandbox.Lease) {
	t.Helper()
	half := len(w.key) / 2
	found := w.sh(t, l, fmt.Sprintf(`a=%s; b=%s; env | grep -F "$a$b"; `+
		`cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -cF "$a$b"; `+
		`find / -path /proc -prune -o -path /sys -prune -o -path /dev -prune -o -type f -exec grep -lF "$a$b" {} + 2>/dev/null; `+
		`ls /run/secrets`,
		w.key[:half], w.key[half:]))
	if found != "0\nother\n" {
		t.Errorf("a search in the sandbox finds %q", found)
	}
	gateway, err := w.api.ContainerInspect(t.Context(), w.gatewayName())
	must(t, err)
	shown := fmt.Sprintf("%+v %+v", gateway.Config, gateway.HostConfig) + logsOf(t, w.api, w.gatewayName())
	for _, m := range gateway.Mounts {
		must(t, filepath.WalkDir(m.Source, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			shown += string(content)
			return err
		}))
	}
	if !strings.Contains(shown, l.ID) { // from the sandbox's own file
		t.Error("the gateway's volume could not be searched")
	}
	for _, form := range []string{
		w.key, hex.EncodeToString([]byte(w.key)), base64.StdEncoding.EncodeToString([]byte(w.key)),
		base64.StdEncoding.EncodeToString([]byte("x-access-token:" + w.key)),
	} {
		if strings.Contains(shown, form) {
			t.Errorf("the engine shows the key as %s", form)
		}
	}
}

func TestACallThatBreaksOffIsBilled(t *testing.T) {
	t.Parallel()
	w := newModelWorld(t, dockertest.Busybox(t))
	l := w.acquire(t)
	stall := func() {
		t.Helper()
		_, err := w.engine.StartExec(t.Context(), sandbox.LeaseRef{ID: l.ID},
			sandbox.ExecRequest{Command: []string{"sh", "-c", ask("stall")}})
		must(t, err)
	}
	running := func(n int) {
		t.Helper()
		eventually(t, "a call runs", func() bool {
			calls := w.calls(t)
			return len(calls) == n && calls[0].Outcome == sandbox.LLMRunning
		})
	}
	stall()
	running(1)
	must(t, w.api.ContainerKill(t.Context(), w.gatewayName(), "SIGKILL"))
	eventually(t, "the killed gateway's call is settled", func() bool {
		wake(t, w.x, w.handleOf(l)) // it starts the gateway if the engine has not
		calls := w.calls(t)
		return len(calls) == 1 && calls[0].Outcome == sandbox.LLMInterrupted && calls[0].Unknown && calls[0].Cost > 0
	})
	if got := w.sh(t, l, ask("small")); !strings.Contains(got, "lease="+l.ID) {
		t.Errorf("after it was killed, and told the key again, a call answers %q", got)
	}
	stall()
	running(3)
	_, err := w.engine.Release(t.Context(), sandbox.LeaseRef{ID: l.ID})
	must(t, err)
	calls := w.calls(t)
	if len(calls) != 3 || calls[0].Outcome != sandbox.LLMInterrupted || !calls[0].Unknown || calls[0].Cost == 0 {
		t.Errorf("after the end of the lease the calls are %+v", calls)
	}
	must(t, w.engine.DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: w.ref.EnvironmentID}))
	report, err := w.engine.Costs(t.Context(), sandbox.CostQuery{})
	must(t, err)
	if use := report.Total.LLM; use.Calls != 3 || use.UnknownCalls != 2 ||
		use.Cost != calls[0].Cost+calls[1].Cost+calls[2].Cost {
		t.Errorf("the bill has %+v", use)
	}
}

// TestARunIsBilledWithItsCalls: a run is billed for its model calls that end, and for those that the run breaks
// off.
func TestARunIsBilledWithItsCalls(t *testing.T) {
	t.Parallel()
	w := newModelWorld(t, dockertest.Busybox(t))
	r, err := w.engine.Run(t.Context(), sandbox.RunRequest{
		EnvironmentID: w.ref.EnvironmentID, Owner: "test",
		ExecRequest: sandbox.ExecRequest{Command: []string{"sh", "-c", ask("small") + "; " + ask("small")}},
	})
	must(t, err)
	want := sandbox.LLMUse{Calls: 2, Tokens: sandbox.LLMTokens{Input: 2000, CachedInput: 400, Output: 100}, Cost: 3_400_000}
	if r.ExitCode != 0 || r.Lease.Status != sandbox.LeaseDestroyed || r.Lease.LLM != want {
		t.Errorf("the run ended with %d and has %+v: %s%s", r.ExitCode, r.Lease.LLM, r.Stdout, r.Stderr)
	}
	// If the run's timeout breaks a call off, the call costs what was reserved for it.
	stalls := sandbox.ExecRequest{Command: []string{"sh", "-c", ask("stall")}, Timeout: sandbox.Duration(5 * time.Second)}
	r, err = w.engine.Run(t.Context(),
		sandbox.RunRequest{EnvironmentID: w.ref.EnvironmentID, Owner: "test", ExecRequest: stalls})
	must(t, err)
	if use := r.Lease.LLM; !r.TimedOut || use.Calls != 1 || use.UnknownCalls != 1 || use.Cost == 0 {
		t.Errorf("the run that timed out, %t, has %+v", r.TimedOut, use)
	}
}

func (w *modelWorld) handleOf(l sandbox.Lease) driver.Handle {
	h := w.spec().Handle
	h.SandboxID = l.SandboxID
	return h
}
