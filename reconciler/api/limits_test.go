package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (w *world) wantLimited(a answer, retryAfter string) {
	w.Helper()
	if p := w.wantProblem(a, 429, sandbox.CapacityExceeded); p.Reason != sandbox.ReasonRateLimited ||
		a.Header.Get("Retry-After") != retryAfter {
		w.Errorf("it says %s, and to come back after %s s, want %s", a.body, a.Header.Get("Retry-After"), retryAfter)
	}
}

func TestFailuresOfAnAddressArePutOffAndNoValidCredential(t *testing.T) {
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
	w.wantProblem(ask(access.NewToken()), 401, sandbox.Unauthenticated)
	w.wantProblem(forged(), 401, sandbox.Unauthenticated)
	w.wantProblem(ask(access.NewToken()), 401, sandbox.Unauthenticated)
	w.wantLimited(ask(access.NewToken()), "20")
	w.wantLimited(forged(), "20")
	for _, good := range []string{token, w.admin} {
		if a := ask(good); a.StatusCode != 200 {
			t.Errorf("after failures of its address, a good token is answered with %d", a.StatusCode)
		}
	}
	if a := w.send(w.signed("m-1", w.condition("game.finished", `{"environment_id":"catan-7"}`))); a.StatusCode != 202 {
		t.Errorf("after failures of its address, a signed condition is answered with %d", a.StatusCode)
	}
	if a := w.do("GET", "/livez", "", "Authorization", ""); a.StatusCode != 200 {
		t.Errorf("a probe is answered with %d", a.StatusCode)
	}
	w.Pass(20 * time.Second)
	w.wantProblem(ask(access.NewToken()), 401, sandbox.Unauthenticated)
}

// TestStormsOfConditionsAreNotLimited ends a game: from one address with one secret, and with one token.
func TestStormsOfConditionsAreNotLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Limits = api.Limits{PerToken: 1, PerAddress: 1, Failures: 1} })
	storm := func(of string) (limited int) {
		for i := range 5 {
			body := w.condition("game.finished", `{"environment_id":"catan-7"}`)
			byToken := w.signed(fmt.Sprint(of, "-token-", i), body, func(h http.Header) {
				h.Del(webhook.HeaderSignature)
				h.Set("Authorization", "Bearer "+w.admin)
			})
			for _, r := range []*http.Request{w.signed(fmt.Sprint(of, "-secret-", i), body), byToken} {
				if w.send(r).StatusCode == 429 {
					limited++
				}
			}
		}
		return limited
	}
	if n := storm("peace"); n != 0 {
		t.Errorf("%d of 10 conditions were refused", n)
	}
	w.wantProblem(w.do("GET", "/v1/environments", "", "Authorization", "Bearer "+access.NewToken()), 401,
		sandbox.Unauthenticated)
	if n := storm("attack"); n == 0 {
		t.Error("from an address that has failed too often, conditions are not limited")
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
