package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// observer forwards each observation to a function, if it has one.
type observer struct {
	began    func(route string)
	ended    func(route string, status int)
	refused  func(reason sandbox.Reason)
	received func(verdict string)
}

func (o observer) RequestBegan(route string) { call(o.began, route) }
func (o observer) RequestEnded(route string, status int, _ time.Duration) {
	if o.ended != nil {
		o.ended(route, status)
	}
}
func (o observer) RequestRefused(reason sandbox.Reason) { call(o.refused, reason) }
func (o observer) ConditionReceived(verdict string)     { call(o.received, verdict) }
func (o observer) ConditionMisspelled()                 { call(o.received, "misspelled") }

func call[V any](f func(V), v V) {
	if f != nil {
		f(v)
	}
}

// TestAnObserverGetsNothingThatAClientNames acts like a client that tries to create many series.
func TestAnObserverGetsNothingThatAClientNames(t *testing.T) {
	t.Parallel()
	const hostile = "zzz-hostile"
	var mu sync.Mutex
	told := map[string]bool{}
	tell := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		told[s] = true
	}
	w := newWorld(t, func(c *api.Config) {
		c.Observer = observer{
			began: tell, ended: func(route string, status int) { tell(fmt.Sprint(route, " ", status)) },
			refused: func(r sandbox.Reason) { tell(string(r)) }, received: tell,
		}
	})
	for _, path := range []string{
		"/" + hostile, "/v1/" + hostile, "/v1/leases/" + hostile, "/v1/leases/" + hostile + "/exec",
		"/v1/environments/" + hostile, "//v1//leases/" + hostile, "/v1/../" + hostile, "/v1/leases/" + hostile + "/",
		"/v1/events?environment_id=" + hostile, "/v1/leases/a%2F" + hostile, "/metrics/" + hostile,
		"/v1/tokens/" + hostile, "/v1/states/" + hostile, "/v1/conditions/" + hostile,
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS", "CONNECT", strings.ToUpper(hostile)} {
			r, err := http.NewRequestWithContext(t.Context(), method, w.url, strings.NewReader(`{"type":"`+hostile+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.URL.Opaque = path // unescaped, unlike Go's own form
			r.Host = hostile + ".example"
			r.Header = http.Header{
				"Authorization": {"Bearer " + w.admin},
				"Content-Type":  {"application/json"},
				"X-Request-Id":  {hostile},
			}
			resp, err := w.client.Transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body) // only the observations matter
			_ = resp.Body.Close()
		}
	}
	w.do("POST", "/v1/conditions", `{"type":"`+hostile+`"}`)
	w.do("GET", "/v1/leases", "", "Authorization", "Bearer "+hostile)
	mu.Lock()
	defer mu.Unlock()
	if len(told) < 10 || !told["token_unknown"] || !told["invalid"] {
		t.Fatalf("it received too little: %v", told)
	}
	for s := range told {
		if strings.Contains(strings.ToLower(s), hostile) {
			t.Errorf("it received %q", s)
		}
	}
}

func TestAnObserverGetsTheOutcomeOfConditionsAndWhyRequestsWereRefused(t *testing.T) {
	t.Parallel()
	told := make(chan string, 10) // the observer hears of a request after its answer
	w := newWorld(t, func(c *api.Config) {
		c.Observer = observer{
			refused:  func(r sandbox.Reason) { told <- string(r) },
			received: func(verdict string) { told <- verdict },
		}
	})
	const birth = `{"type":"agent.birth","timestamp":"2026-08-15T12:00:00Z","data":{"environment_id":"catan-7","agent_did":"did:plc:ann"}}`
	for _, step := range []struct {
		header []string
		body   string
		want   []string
	}{
		{[]string{"webhook-id", "msg_1"}, birth, []string{"unmatched"}},
		{[]string{"webhook-id", "msg_1"}, birth, []string{"duplicate"}},
		{[]string{"webhook-id", "msg_1"}, birth + " ", []string{"conflict"}},
		{nil, `{}`, []string{"invalid"}},
		{[]string{"Authorization", ""}, birth, []string{"unauthenticated", "token_missing"}},
		{[]string{"Authorization", "Bearer sbl_wrong"}, birth, []string{"unauthenticated", "token_unknown"}},
		{[]string{"Authorization", "Bearer " + w.catan}, strings.ReplaceAll(birth, "catan", "rpg"),
			[]string{"forbidden", "environment_not_allowed"}},
	} {
		w.do("POST", "/v1/conditions", step.body, step.header...)
		for _, want := range step.want {
			if got := <-told; got != want {
				t.Errorf("for %v it received %q, want %q", step.header, got, want)
			}
		}
	}
	if len(told) != 0 {
		t.Errorf("it also received %q", <-told)
	}
}
