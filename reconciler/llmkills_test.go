package reconciler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/gateways"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// upstream is a model that randomly answers, refuses, fails, delays or hangs up. It records each call.
type upstream struct {
	mu    sync.Mutex // guards calls
	calls map[string]told
}

// told is the upstream's own count of a call: its tokens, or nothing if it refused or hung up.
type told struct {
	status int
	tokens sandbox.LLMTokens
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	c := told{status: 200, tokens: sandbox.LLMTokens{Input: rand.Int64N(100_000), Output: rand.Int64N(10_000)}}
	switch rand.N(10) {
	case 0:
		c = told{status: 429}
	case 1:
		c = told{status: 500}
	case 2:
		c = told{} // hangs up
	}
	u.mu.Lock()
	u.calls[r.Header.Get("X-Sandbox-Call")] = c
	u.mu.Unlock()
	time.Sleep(rand.N(150 * time.Millisecond)) //nolint:forbidigo // the model's thinking time
	switch c.status {
	case 0:
		panic(http.ErrAbortHandler)
	case 200:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"c","object":"chat.completion","model":"small","choices":[],"usage":`+
			`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, c.tokens.Input, c.tokens.Output,
			c.tokens.Input+c.tokens.Output)
	default:
		http.Error(w, `{"error":{"message":"no"}}`, c.status)
	}
}

func (u *upstream) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.calls)
}

// serveModel serves a model where gateways can reach it. It returns its host and port there, and the subnet.
func serveModel(w *world, model http.Handler) (host, port, subnet string) {
	w.Helper()
	found := strings.Fields(w.docker("network", "inspect", "bridge", "--format",
		"{{with index .IPAM.Config 0}}{{.Gateway}} {{.Subnet}}{{end}}"))
	if len(found) != 2 {
		w.Fatalf("the bridge has %q", found)
	}
	l, err := net.Listen("tcp", found[0]+":0")
	if err != nil {
		w.Fatal(err)
	}
	server := &http.Server{Handler: model, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	w.Cleanup(func() { _ = server.Close(); <-done })
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		w.Fatal(err)
	}
	return found[0], port, found[1]
}

// TestCallsOfModelsOutliveWhatIsKilledUnderThem kills the reconciler and the gateway at random while a sandbox calls a
// model. The ledger has each call that the upstream received, once, with the upstream's own count if its answer
// arrived.
func TestCallsOfModelsOutliveWhatIsKilledUnderThem(t *testing.T) {
	t.Parallel()
	rounds, least := 6, 150
	if os.Getenv("SANDBOX_TEST_LONG") != "" {
		rounds, least = 60, 1000
	}
	u := &upstream{calls: make(map[string]told)}
	host, port, subnet := serveModel(&world{T: t}, u)
	w := newWorld(t, "", func(c *reconciler.Config) {
		c.Docker.Gateway = gateways.Config{Hosts: []string{"model.test:" + host}}
	})
	w.environment("thinks", func(p *sandbox.PutEnvironment) {
		p.Network, p.Egress = sandbox.NetworkRestricted, &sandbox.Egress{PrivateCIDRs: []string{subnet}}
		p.SecretValues = map[string]sandbox.Secret{"key": "sk-none"}
		p.LLM = map[string]sandbox.LLMRoute{"main": {
			API: sandbox.LLMOpenAI, Upstream: "http://model.test:" + port, Credential: "key",
			Models: map[string]sandbox.LLMModel{"small": {Input: sandbox.USD, Output: 10 * sandbox.USD}},
		}}
	})
	l := w.acquire(agent(1), "thinks")
	const callers = 4
	// BusyBox's wget uses the proxy for every address, and with a proxy always sends GET.
	w.exec(l.ID, "sh", "-c", fmt.Sprintf(`unset http_proxy HTTP_PROXY; for i in $(seq %d); do (while [ ! -e stop ]; do wget -q -O /dev/null `+
		`--header "Content-Type: application/json" --post-data '{"model":"small","max_tokens":10000,"messages":[]}' `+
		`"$OPENAI_BASE_URL/chat/completions" || sleep 0.05; done; echo > ended-$i) >/dev/null 2>&1 & done`, callers))
	for i := range rounds {
		time.Sleep(rand.N(1500 * time.Millisecond)) //nolint:forbidigo // a kill at different moments
		if i%2 == 0 {
			w.kill()
			w.start()
		} else {
			w.killGateway()
		}
	}
	w.eventually("the upstream has seen enough calls", func() bool { return u.count() >= least })
	w.exec(l.ID, "touch", "stop")
	w.eventually("all callers have ended", func() bool {
		return w.exec(l.ID, "sh", "-c", "ls | grep -c ended || true") == fmt.Sprintln(callers)
	})
	var calls map[string]sandbox.LLMCall
	w.eventually("no call runs by the ledger", func() bool {
		calls = w.llmCalls()
		for _, c := range calls {
			if c.Outcome == sandbox.LLMRunning {
				return false
			}
		}
		return len(calls) >= u.count()
	})
	w.compare(u, calls)
}

// killGateway kills the process of the gateway, which the engine then restarts. It does nothing if the gateway is just
// starting or being replaced.
func (w *world) killGateway() {
	w.Helper()
	id := w.docker("ps", "-q", "--filter", w.labelled(), "--filter", "label=io.sandbox-lease.role=gateway")
	text, err := exec.Command("docker", "inspect", "--format", "{{.State.Pid}}", id).Output()
	if id == "" || err != nil {
		return
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid > 1 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have exited meanwhile
	}
}

// llmCalls returns all recorded calls by id.
func (w *world) llmCalls() map[string]sandbox.LLMCall {
	w.Helper()
	all := make(map[string]sandbox.LLMCall)
	before := ""
	for {
		page, err := w.service.ListLLMCalls(context.Background(),
			sandbox.LLMCallQuery{EnvironmentID: "thinks", Before: before, Limit: sandbox.MaxLLMCalls})
		if err != nil {
			w.Fatal(err)
		}
		for _, c := range page {
			all[c.ID] = c
		}
		if len(page) < sandbox.MaxLLMCalls {
			return all
		}
		before = page[len(page)-1].Cursor()
	}
}

// compare compares the recorded calls with the upstream's counts, and with the sums.
func (w *world) compare(u *upstream, calls map[string]sandbox.LLMCall) {
	w.Helper()
	outcomes := make(map[sandbox.LLMOutcome]int)
	var sum sandbox.LLMUse
	for id, said := range u.calls {
		c, ok := calls[id]
		arrived := c.Outcome == sandbox.LLMCompleted && said.status == 200 && c.Tokens == said.tokens && !c.Unknown
		refused := c.Outcome == sandbox.LLMRejected && said.status >= 400 && c.Cost == 0
		brokeOff := c.Outcome == sandbox.LLMInterrupted && c.Cost > 0 && (c.Unknown || c.Tokens == said.tokens)
		if !ok || !arrived && !refused && !brokeOff {
			text, _ := json.Marshal(c)
			w.Errorf("the upstream counted %+v for call %s, and the ledger has %s", said, id, text)
		}
	}
	for id, c := range calls {
		_, seen := u.calls[id]
		if !seen && c.Outcome != sandbox.LLMUnsent && c.Outcome != sandbox.LLMInterrupted {
			w.Errorf("the upstream never received call %s, which the ledger has as %s", id, c.Outcome)
		}
		outcomes[c.Outcome]++
		sum = sum.Plus(c.Use())
	}
	w.Logf("the upstream saw %d calls; recorded are %v", len(u.calls), outcomes)
	report, err := w.service.Costs(w.Context(), sandbox.CostQuery{})
	if err != nil || report.Total.LLM != sum {
		w.Errorf("the costs have %+v, the calls %+v, %v", report.Total.LLM, sum, err)
	}
	if outcomes[sandbox.LLMCompleted] < len(calls)/3 {
		w.Errorf("too few calls were completed for a result: %v", outcomes)
	}
}
