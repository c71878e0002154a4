package api_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
)

func (w *world) wantLimited(a answer, retryAfter string) {
	w.Helper()
	if p := w.wantProblem(a, 429, sandbox.CapacityExceeded); p.Reason != sandbox.ReasonRateLimited || a.Header.Get("Retry-After") != retryAfter {
		w.Errorf("it says %s, and to come back after %s s, want %s", a.body, a.Header.Get("Retry-After"), retryAfter)
	}
}

func TestAnAddressThatFailsTooOftenIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Limits = api.Limits{Failures: 3} })
	token := string(w.issue(sandbox.CreateToken{Name: "ops", Scopes: []sandbox.Scope{sandbox.ScopeRead}}).Text)
	ask := func(token string) answer {
		return w.do("GET", "/v1/environments", "", "Authorization", "Bearer "+token)
	}
	forged := func() answer {
		other, err := webhook.ParseSecret(webhook.NewSecret())
		if err != nil {
			t.Fatal(err)
		}
		body := w.condition("game.finished", `{"environment_id":"catan-7"}`)
		r := w.signed("m", body)
		if err := other.Sign(r.Header, "m", w.Now(), []byte(body)); err != nil {
			t.Fatal(err)
		}
		return w.send(r)
	}
	w.wantProblem(ask(webhook.NewToken()), 401, sandbox.Unauthenticated)
	w.wantProblem(forged(), 401, sandbox.Unauthenticated)
	w.wantProblem(ask(webhook.NewToken()), 401, sandbox.Unauthenticated)
	w.wantLimited(ask(webhook.NewToken()), "20")
	w.wantLimited(forged(), "20")
	w.wantLimited(ask(token), "20")
	if a := w.do("GET", "/v1/environments", ""); a.StatusCode != 200 {
		t.Errorf("a token of the file is answered with %d", a.StatusCode)
	}
	if a := w.do("GET", "/livez", "", "Authorization", ""); a.StatusCode != 200 {
		t.Errorf("a probe is answered with %d", a.StatusCode)
	}
	w.Pass(20 * time.Second)
	if a := ask(token); a.StatusCode != 200 {
		t.Errorf("when it has come back, its token is answered with %d", a.StatusCode)
	}
}

func TestRequestsAreLimited(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]api.Limits{"per token": {PerToken: 1}, "per address": {PerAddress: 1}} {
		w := newWorld(t, func(c *api.Config) { c.Limits = limits })
		ask := func(token string) answer {
			return w.do("GET", "/v1/environments", "", "Authorization", "Bearer "+token)
		}
		for range 2 {
			if a := ask(w.admin); a.StatusCode != 200 {
				t.Errorf("%s: within the limit, a request is answered with %d", name, a.StatusCode)
			}
		}
		w.wantLimited(ask(w.admin), "1")
		if a := ask(w.catan); (a.StatusCode == 200) != (limits.PerAddress == 0) {
			t.Errorf("%s: another token is answered with %d", name, a.StatusCode)
		}
		w.Pass(time.Second)
		if a := ask(w.admin); a.StatusCode != 200 {
			t.Errorf("%s: a second later it is answered with %d", name, a.StatusCode)
		}
	}
}
