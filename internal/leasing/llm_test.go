package leasing_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const modelKey = "sk-hunter2-that-no-sandbox-may-hold"

// withModel gives an environment one route, at 1 and 10 dollars for a million tokens.
func withModel(p *sandbox.PutEnvironment) {
	p.SecretValues = map[string]sandbox.Secret{"model_key": modelKey, "token": secretValue}
	p.LLM = map[string]sandbox.LLMRoute{"main": {
		API: sandbox.LLMOpenAI, Credential: "model_key",
		Models: map[string]sandbox.LLMModel{"small": {Input: sandbox.USD, Output: 10 * sandbox.USD}},
	}}
}

// called is a call that has used a million input tokens, for a dollar.
func (w *world) called(id string, l sandbox.Lease, outcome sandbox.LLMOutcome) sandbox.LLMCall {
	c := sandbox.LLMCall{ID: id, LeaseID: l.ID, Generation: l.Generation, SandboxID: l.SandboxID, AgentDID: l.AgentDID,
		Route: "main", Model: "small", StartedAt: w.now(), Outcome: outcome, Cost: sandbox.USD}
	if outcome != sandbox.LLMRunning {
		c.EndedAt, c.Status, c.Tokens = w.now().Add(time.Second), 200, sandbox.LLMTokens{Input: 1_000_000}
	}
	return c
}

func TestAModelsKeyIsAtTheGatewayAndInNoSandbox(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withModel)
		ref := w.gatewayRef()
		if s := w.backend.LLMSettings(ref); s == nil || s.Routes["main"].Key != modelKey || s.Account != "test" {
			w.Fatalf("after its creation the gateway has %+v", s)
		}
		l := w.acquire(ann)
		if got := w.backend.Secrets(l.SandboxID); len(got) != 1 || got["token"] != secretValue {
			w.Errorf("the sandbox has the secrets %v", got)
		}
		w.backend.RestartGateway(ref)
		w.acquire(bob)
		if s := w.backend.LLMSettings(ref); s == nil || s.Routes["main"].Key != modelKey {
			w.Errorf("after its start and an acquire the gateway has %+v", s)
		}
		w.backend.RestartGateway(ref)
		w.collectEgress()
		if s := w.backend.LLMSettings(ref); s == nil || s.Routes["main"].Key != modelKey {
			w.Errorf("after its start and a pass the gateway has %+v", s)
		}
		w.wantNotInLedger(modelKey)
	})
}

// TestASecretThatBecomesAKeyLeavesTheSandboxes also checks that a secret that stops being a key comes to the sandboxes.
func TestASecretThatBecomesAKeyLeavesTheSandboxes(t *testing.T) {
	inWorld(t, func(w *world) {
		plain := func(p *sandbox.PutEnvironment) { withModel(p); p.LLM = nil }
		again := func(p *sandbox.PutEnvironment) {
			withModel(p)
			p.SecretValues = nil
			p.Secrets = []string{"model_key", "token"}
		}
		w.environment(plain)
		l := w.acquire(ann)
		for _, step := range []struct {
			change func(p *sandbox.PutEnvironment)
			want   sandbox.Secret
		}{{again, ""}, {func(p *sandbox.PutEnvironment) { again(p); p.LLM = nil }, modelKey}, {again, ""}} {
			w.environment(step.change)
			w.exec(l.ID, "echo")
			if got := w.backend.Secrets(l.SandboxID)["model_key"]; got != step.want {
				w.Errorf("the sandbox has %q as the key, want %q", string(got), string(step.want))
			}
		}
	})
}

// TestCredentialsOfHostsAreAtTheGatewayAndInNoSandbox checks the credentials in the gateway's form, through every
// change.
func TestCredentialsOfHostsAreAtTheGatewayAndInNoSandbox(t *testing.T) {
	inWorld(t, func(w *world) {
		with := func(value string, credentials map[string]sandbox.EgressCredential) func(p *sandbox.PutEnvironment) {
			return func(p *sandbox.PutEnvironment) {
				p.SecretValues = map[string]sandbox.Secret{"git": sandbox.Secret(value), "npm": "npm-hunter2", "token": secretValue}
				p.Network, p.Egress = sandbox.NetworkRestricted, &sandbox.Egress{
					Allow:       []sandbox.EgressRule{{Host: "github.com"}, {Host: "*.npm.test"}},
					Credentials: credentials,
				}
			}
		}
		both := map[string]sandbox.EgressCredential{
			"github.com":        {Secret: "git", Scheme: sandbox.CredentialBasic, Username: "x-access-token"},
			"registry.npm.test": {Secret: "npm"},
		}
		ref := w.gatewayRef()
		want := func(when string, want map[string]driver.Credential) {
			w.Helper()
			if got := w.backend.Credentials(ref); !maps.Equal(got, want) {
				w.Errorf("%s the gateway has %#v, want %#v", when, got, want)
			}
		}
		w.environment(with("git-hunter2\n", both))
		first := map[string]driver.Credential{
			"github.com":        {Header: "Authorization", Value: "Basic eC1hY2Nlc3MtdG9rZW46Z2l0LWh1bnRlcjI="},
			"registry.npm.test": {Header: "Authorization", Value: "Bearer npm-hunter2"},
		}
		want("after its creation", first)
		l := w.acquire(ann)
		if got := w.backend.Secrets(l.SandboxID); len(got) != 1 || got["token"] != secretValue {
			w.Errorf("the sandbox has the secrets %v", got)
		}
		w.backend.RestartGateway(ref)
		w.collectEgress()
		want("after its start and a pass", first)
		w.backend.RestartGateway(ref)
		w.acquire(bob)
		want("after its start and an acquire", first)
		w.environment(with("rotated", map[string]sandbox.EgressCredential{"github.com": {Secret: "git", Header: "Private-Token"}}))
		want("after a change", map[string]driver.Credential{"github.com": {Header: "Private-Token", Value: "rotated"}})
		w.exec(l.ID, "echo")
		if got := w.backend.Secrets(l.SandboxID); len(got) != 2 || got["npm"] != "npm-hunter2" {
			w.Errorf("after a change the sandbox has the secrets %v", got)
		}
		w.environment(with("rotated", nil))
		want("without credentials", map[string]driver.Credential{})
		w.wantNotInLedger("hunter2")
	})
}

func TestEachCallOfAModelIsBilledOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withModel)
		l, ref := w.acquire(ann), w.gatewayRef()
		running := w.called("c-1", l, sandbox.LLMRunning)
		w.backend.LogLLM(ref, running)
		w.collectEgress()
		calls, err := w.engine.ListLLMCalls(w.Context(), sandbox.LLMCallQuery{LeaseID: l.ID})
		if err != nil || len(calls) != 1 || calls[0].Outcome != sandbox.LLMRunning || calls[0].EnvironmentID != game {
			w.Fatalf("while it runs there are %+v, %v", calls, err)
		}
		unknown := w.called("c-2", l, sandbox.LLMInterrupted)
		unknown.Unknown, unknown.Tokens = true, sandbox.LLMTokens{}
		w.backend.LogLLM(ref, w.called("c-1", l, sandbox.LLMCompleted), w.called("c-2", l, sandbox.LLMRunning), unknown)
		for range 3 {
			w.collectEgress()
		}
		w.close()
		w.open()
		w.collectEgress()
		w.wantLLMEvents(l.ID, "llm.completed c-1", "llm.interrupted c-2")
		report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
		if err != nil {
			w.Fatal(err)
		}
		want := sandbox.LLMUse{Calls: 2, Tokens: sandbox.LLMTokens{Input: 1_000_000}, Cost: 2 * sandbox.USD, UnknownCalls: 1,
			Unknown: sandbox.USD}
		if len(report.Rows) != 1 || report.Rows[0].LLM != want || report.Total.LLM != want ||
			report.Total.Total != report.Total.Gross+2*sandbox.USD {
			w.Errorf("the costs are %+v, of %+v", report.Total, report.Rows)
		}
		if l, err = w.engine.GetLease(w.Context(), l.ID); err != nil || l.LLM != want {
			w.Errorf("the lease shows %+v, %v", l.LLM, err)
		}
	})
}

// TestCostsOfCallsAgreeHoweverTheyAreCut compares costs by hour, by day, and in total.
func TestCostsOfCallsAgreeHoweverTheyAreCut(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withModel, func(p *sandbox.PutEnvironment) { p.TTL = sandbox.Duration(90 * 24 * time.Hour) })
		l, ref := w.acquire(ann), w.gatewayRef()
		begin := w.now()
		const calls = 100
		for i := range calls {
			w.backend.LogLLM(ref, w.called("c-"+strings.Repeat("i", i+1), l, sandbox.LLMCompleted))
			time.Sleep(47 * time.Minute)
		}
		w.collectEgress()
		total := func(q sandbox.CostQuery) (n int64) {
			w.Helper()
			report, err := w.engine.Costs(w.Context(), q)
			if err != nil {
				w.Fatal(err)
			}
			for _, r := range report.Rows {
				n += r.LLM.Calls
			}
			if n != report.Total.LLM.Calls {
				w.Errorf("%+v: rows have %d calls, the total %d", q, n, report.Total.LLM.Calls)
			}
			return n
		}
		for _, by := range []sandbox.CostGroup{sandbox.CostByLease, sandbox.CostByDay, sandbox.CostByMonth, sandbox.CostByAgent} {
			if n := total(sandbox.CostQuery{GroupBy: by}); n != calls {
				w.Errorf("by %s there are %d calls", by, n)
			}
		}
		var sum int64
		for from := begin.Add(-time.Minute); from.Before(w.now()); from = from.Add(7 * time.Hour) {
			sum += total(sandbox.CostQuery{From: from, To: from.Add(7 * time.Hour)})
		}
		if sum != calls {
			w.Errorf("in steps of 7 h there are %d calls", sum)
		}
	})
}

func TestCallsOfModelsCountInTheBudget(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withModel, func(p *sandbox.PutEnvironment) {
			p.Budget = &sandbox.Budget{Monthly: 100 * sandbox.USD}
			p.TTL = sandbox.Duration(time.Hour)
		})
		l, ref := w.acquire(ann), w.gatewayRef()
		most := func() sandbox.NanoUSD {
			w.Helper()
			w.collectEgress()
			s := w.backend.LLMSettings(ref)
			if s == nil || s.Cap == nil {
				w.Fatalf("the gateway knows no budget: %+v", s)
			}
			return *s.Cap
		}
		before := most()
		if before >= 100*sandbox.USD || before < 99*sandbox.USD {
			w.Errorf("beside a sandbox calls may cost %s", before)
		}
		w.backend.LogLLM(ref, w.called("c-1", l, sandbox.LLMCompleted), w.called("c-2", l, sandbox.LLMRunning))
		if after := most(); after != before { // the gateway's own sum has the cost of calls
			w.Errorf("after two calls they may cost %s together, and before %s", after, before)
		}
		if s := w.backend.LLMSettings(ref); s.Recorded["main"].Cost != sandbox.USD || s.Recorded["main"].Calls != 1 {
			w.Errorf("the gateway learns of %+v", s.Recorded)
		}
		env, err := w.engine.GetEnvironment(w.Context(), game)
		if err != nil || env.BudgetUse.Spent < sandbox.USD || env.BudgetUse.Reserved < sandbox.USD ||
			env.BudgetUse.LLM != sandbox.USD {
			w.Errorf("the budget's use is %+v, %v", env.BudgetUse, err)
		}
		dear := w.called("c-3", l, sandbox.LLMCompleted)
		dear.Cost = 99 * sandbox.USD
		w.backend.LogLLM(ref, dear)
		w.collectEgress()
		_, err = w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: bob, EnvironmentID: game, Owner: "test"})
		w.wantCode(err, sandbox.BudgetExceeded)
	})
}

func TestALongJournalDoesNotKeepTheBudgetFromTheGateway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withModel, func(p *sandbox.PutEnvironment) {
			p.Budget = &sandbox.Budget{Monthly: 100 * sandbox.USD}
			p.TTL = sandbox.Duration(time.Hour)
		})
		w.acquire(ann)
		ref := w.gatewayRef()
		w.backend.RestartGateway(ref)
		w.backend.Hang(fake.OpLLMCalls) // as reading a journal that grows faster than the ledger records it
		if err := w.engine.CollectEgress(w.Context(), sandbox.Docker); err == nil {
			w.Error("the journal was read to its end")
		}
		if s := w.backend.LLMSettings(ref); s == nil || s.Cap == nil {
			w.Errorf("the gateway has %+v", s)
		}
	})
}

// TestNoCallIsLostWithItsEnvironment: the journal of the gateway is recorded before the environment is removed.
func TestNoCallIsLostWithItsEnvironment(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withModel)
		l, ref := w.acquire(ann), w.gatewayRef()
		w.backend.LogLLM(ref, w.called("c-1", l, sandbox.LLMRunning))
		w.collectEgress()
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
			w.Fatal(err)
		}
		w.backend.LogLLM(ref, w.called("c-2", l, sandbox.LLMCompleted))
		away := sandbox.Errorf(sandbox.Unavailable, "the gateway is away")
		w.backend.Fail(fake.OpLLMCalls, away)
		err := w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game})
		w.wantCode(err, sandbox.Unavailable)
		w.backend.Fail(fake.OpLLMCalls, nil)
		if err := w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game}); err != nil {
			w.Fatal(err)
		}
		report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
		// The end of c-1 was never journalled, so it costs the reserved amount.
		want := sandbox.LLMUse{Calls: 2, Tokens: sandbox.LLMTokens{Input: 1_000_000}, Cost: 2 * sandbox.USD, UnknownCalls: 1,
			Unknown: sandbox.USD}
		if err != nil || report.Total.LLM != want {
			w.Errorf("the costs are %+v, %v", report.Total.LLM, err)
		}
		w.wantLLMEvents("", "llm.completed c-2", "llm.interrupted c-1")
		// An environment that is created again under the name begins a new journal.
		w.environment(withModel)
		w.backend.LogLLM(ref, w.called("c-9", w.acquire(ann), sandbox.LLMCompleted))
		w.collectEgress()
		if report, err = w.engine.Costs(w.Context(), sandbox.CostQuery{}); err != nil || report.Total.LLM.Calls != 3 {
			w.Errorf("with another life's call the costs are %+v, %v", report.Total.LLM, err)
		}
	})
}

func TestARouteThatIsTakenAwayIsGoneAtTheGateway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withModel)
		l, ref := w.acquire(ann), w.gatewayRef()
		w.environment(func(p *sandbox.PutEnvironment) { withModel(p); p.LLM = nil })
		if s := w.backend.LLMSettings(ref); s == nil || len(s.Routes) > 0 {
			w.Errorf("the gateway has %+v", s)
		}
		w.backend.LogLLM(ref, w.called("c-1", l, sandbox.LLMCompleted)) // it was under way
		w.collectEgress()
		if report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{}); err != nil || report.Total.LLM.Calls != 1 {
			w.Errorf("the costs are %+v, %v", report.Total.LLM, err)
		}
		w.backend.LogLLM(ref, w.called("c-2", l, sandbox.LLMCompleted))
		if err := w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game, Force: true}); err != nil {
			w.Fatal(err)
		}
		if report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{}); err != nil || report.Total.LLM.Calls != 2 {
			w.Errorf("after its end the costs are %+v, %v", report.Total.LLM, err)
		}
	})
}

// wantLLMEvents compares the events of calls. Those of sandboxes that are gone have no lease.
func (w *world) wantLLMEvents(leaseID string, want ...string) {
	w.Helper()
	events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{EnvironmentID: game, Type: "llm.*"})
	if err != nil {
		w.Fatal(err)
	}
	var got []string
	for _, e := range events {
		var c sandbox.LLMCall
		if err := json.Unmarshal(e.Data, &c); err != nil || c.LeaseID == "" || e.LeaseID != leaseID {
			w.Errorf("event %+v has call %+v, %v", e, c, err)
		}
		got = append(got, string(e.Type)+" "+c.ID)
	}
	if !slices.Equal(got, want) {
		w.Errorf("the events are %q, want %q", got, want)
	}
}

func (w *world) wantCode(err error, want sandbox.Code) {
	w.Helper()
	if sandbox.CodeOf(err) != want {
		w.Errorf("the error has code %q, want %q: %v", sandbox.CodeOf(err), want, err)
	}
}
