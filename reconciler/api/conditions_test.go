package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// signed returns a condition signed now. change may break it.
func (w *world) signed(id, body string, change ...func(h http.Header)) *http.Request {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.url+"/v1/conditions", strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if err := w.secret.Sign(r.Header, id, w.Now(), []byte(body)); err != nil {
		w.Fatal(err)
	}
	for _, f := range change {
		f(r.Header)
	}
	return r
}

// condition returns the body of a condition that happens now.
func (w *world) condition(kind, data string) string {
	return fmt.Sprintf(`{"type":%q,"timestamp":%q,"data":%s}`, kind, w.Now().Format(time.RFC3339Nano), data)
}

// unchanged checks that ann's lease has not changed and that the game continues.
func (w *world) unchanged(before int) {
	w.Helper()
	l := want[sandbox.Lease](w, w.do("GET", annIn, ""), 200)
	if l.Status != sandbox.LeaseActive {
		w.Errorf("ann's lease is %s", l.Status)
	}
	if after := w.events(); after != before {
		w.Errorf("%d events were written", after-before)
	}
}

func (w *world) events() int {
	w.Helper()
	all, err := w.Service.ListEvents(w.Context(), sandbox.EventFilter{})
	if err != nil {
		w.Fatal(err)
	}
	return len(all)
}

func TestConditionIsAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	body := w.condition("game.finished", `{"environment_id":"catan-7"}`)
	a := w.send(w.signed("msg-1", body))
	if got := want[sandbox.Receipt](w, a,
		202); got != (sandbox.Receipt{ID: "msg-1", Status: sandbox.DeliveryApplied, Matched: 1}) {
		t.Errorf("the receipt is %s", a.body)
	}
	if a.body != `{"id":"msg-1","status":"applied","duplicate":false,"matched":1}` {
		t.Errorf("the receipt is %s", a.body)
	}
	if got := want[sandbox.Receipt](w, w.send(w.signed("msg-1", body)), 202); !got.Duplicate || got.Matched != 1 ||
		got.Status != sandbox.DeliveryApplied {
		t.Errorf("the second receipt is %+v", got)
	}
	w.wantProblem(w.send(w.signed("msg-1", w.condition("game.paused", `{"environment_id":"catan-7"}`))),
		409, sandbox.Conflict)
	w.Advance(time.Second)
	if l := want[sandbox.Lease](w, w.do("GET", annIn, ""), 200); l.Status != sandbox.LeaseDestroyed ||
		l.EndReason != "game.finished" {
		t.Errorf("the lease is %s: %s", l.Status, l.EndReason)
	}
	w.wantProblem(w.do("POST", "/v1/leases", `{"agent_did":"did:plc:ann","environment_id":"catan-7"}`), 409,
		sandbox.EnvironmentEnded)
	want[sandbox.Environment](w, w.do("POST", "/v1/environments/catan-7/reopen", ""), 200)
	want[sandbox.Acquired](w, w.do("POST", "/v1/leases", `{"agent_did":"did:plc:ann","environment_id":"catan-7"}`), 201)
}

func TestConditionThatEndsNothingIsAcceptedToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.condition("game.finished", `{"environment_id":"catan-7"}`)
	w.Advance(time.Second)
	w.game()
	if got := want[sandbox.Receipt](w, w.send(w.signed("a", old)), 202); got.Status != sandbox.DeliveryStale ||
		got.Matched != 0 {
		t.Errorf("older than the lease: %+v", got)
	}
	if got := want[sandbox.Receipt](w, w.send(w.signed("b", w.condition("game.finished", `{"environment_id":"nowhere"}`))),
		202); got.Status != sandbox.DeliveryUnmatched {
		t.Errorf("for no environment: %+v", got)
	}
	if l := want[sandbox.Lease](w, w.do("GET", annIn, ""), 200); l.Status != sandbox.LeaseActive {
		t.Errorf("ann's lease is %s", l.Status)
	}
}

func TestConditionIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	before := w.events()
	good := w.condition("game.finished", `{"environment_id":"catan-7"}`)
	secretless, err := webhook.ParseSecret(webhook.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	header := func(name, value string) func(http.Header) {
		return func(h http.Header) { h.Set(name, value) }
	}
	without := func(name string) func(http.Header) { return func(h http.Header) { h.Del(name) } }
	signedAt := func(key webhook.Secret, off time.Duration) func(http.Header) {
		return func(h http.Header) {
			if err := key.Sign(h, "m", w.Now().Add(off), []byte(good)); err != nil {
				t.Error(err)
			}
		}
	}
	unauthenticated := map[string]*http.Request{
		"another secret":   w.signed("m", good, signedAt(secretless, 0)),
		"old timestamp":    w.signed("m", good, signedAt(w.secret, -6*time.Minute)),
		"future timestamp": w.signed("m", good, signedAt(w.secret, 6*time.Minute)),
		"other id":         w.signed("m", good, header("webhook-id", "n")),
		"no id":            w.signed("m", good, without("webhook-id")),
		"no signature":     w.signed("m", good, without("webhook-signature")),
		"no timestamp":     w.signed("m", good, without("webhook-timestamp")),
		"wrong token":      w.signed("m", good, header("Authorization", "Bearer "+access.NewToken())),
		"empty token":      w.signed("m", good, header("Authorization", "Bearer ")),
		"wrong and not JSON": w.signed("m", "no", header("webhook-signature", "v1,AAAA"),
			header("Content-Type", "text/plain")),
	}
	bodies := map[string]bool{} // of signed messages
	for name, r := range unauthenticated {
		r.Header.Set("X-Request-Id", "the-same")
		a := w.send(r)
		if r.Header.Get("Authorization") == "" && r.Header.Get("webhook-signature") != "" {
			bodies[a.body] = true
		}
		if a.StatusCode != 401 {
			t.Errorf("%s: %d %s", name, a.StatusCode, a.body)
		}
	}
	if len(bodies) != 1 {
		t.Errorf("401 says different things: %v", bodies)
	}
	w.wantNoCredential(good)
	large := `{"type":"` + strings.Repeat("x", 65<<10) + `"}`
	for name, c := range map[string]struct {
		request *http.Request
		status  int
		code    sandbox.Code
		fields  []string
	}{
		"65 KiB":                {w.signed("m", large), 413, sandbox.Invalid, nil},
		"65 KiB with no length": {chunked(w.signed("m", large)), 413, sandbox.Invalid, nil},
		"content type":          {w.signed("m", good, header("Content-Type", "text/json")), 415, sandbox.Invalid, nil},
		"no content type":       {w.signed("m", good, without("Content-Type")), 415, sandbox.Invalid, nil},
		"not JSON":              {w.signed("m", "game over"), 422, sandbox.Invalid, []string{"body"}},
		"unknown field": {w.signed("m", w.condition("game.finished", `{"environment_id":"catan-7","winner":"ann"}`)),
			422, sandbox.Invalid, []string{"data.winner"}},
		"death without an agent": {w.signed("m", w.condition("agent.death", `{"environment_id":"catan-7"}`)), 422,
			sandbox.Invalid, []string{"data.agent_did"}},
		"happened in the future": {
			w.signed("m", `{"type":"game.finished","timestamp":"2036-01-01T00:00:00Z","data":{"environment_id":"catan-7"}}`),
			422, sandbox.Invalid, []string{"timestamp"},
		},
		"a token's other game": {w.signed("m", w.condition("game.finished", `{"environment_id":"rpg-1"}`),
			header("Authorization", "Bearer "+w.catan)), 403, sandbox.Forbidden, nil},
		"a token's id with a dot": {w.signed("m", good, header("Authorization", "Bearer "+w.catan),
			header("webhook-id", "a.b")), 422, sandbox.Invalid, []string{"webhook-id"}},
	} {
		t.Run(name, func(t *testing.T) {
			sub := *w
			sub.T = t
			sub.wantProblem(sub.send(c.request), c.status, c.code, c.fields...)
		})
	}
	w.unchanged(before)
}

// wantNoCredential sends a condition without credentials.
func (w *world) wantNoCredential(body string) {
	w.Helper()
	r := w.signed("m", body, func(h http.Header) { h.Del("webhook-signature") })
	p := w.wantProblem(w.send(r), 401, sandbox.Unauthenticated)
	if p.Reason != sandbox.ReasonTokenMissing || !strings.Contains(p.Detail, "Authorization: Bearer") ||
		!strings.Contains(p.Detail, "webhook-signature") {
		w.Errorf("it is refused with %+v", p)
	}
	if log := w.log.String(); !strings.Contains(log, "Webhook-Signature are missing") {
		w.Errorf("the log does not say why: %s", log)
	}
}

// chunked hides a request's length.
func chunked(r *http.Request) *http.Request {
	r.ContentLength = -1
	return r
}

func TestConditionByToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	body := w.condition("game.finished", `{"environment_id":"catan-7"}`)
	first := want[sandbox.Receipt](w, w.do("POST", "/v1/conditions", body, "Authorization", "Bearer "+w.catan), 202)
	if first.Status != sandbox.DeliveryApplied || !strings.HasPrefix(first.ID, "sha256-") {
		t.Errorf("the receipt is %+v", first)
	}
	// Without an id, a message with the same content is a duplicate.
	if second := want[sandbox.Receipt](w, w.do("POST", "/v1/conditions", body, "Authorization", "Bearer "+w.catan),
		202); !second.Duplicate || second.ID != first.ID {
		t.Errorf("the second receipt is %+v", second)
	}
	if third := want[sandbox.Receipt](w, w.do("POST", "/v1/conditions", body, "Webhook-Id", "m-1"),
		202); third.Duplicate || third.ID != "m-1" {
		t.Errorf("the third receipt is %+v", third)
	}
}

// deliverer is a service with a Deliver of the test.
type deliverer struct {
	service.Service
	deliver func(ctx context.Context, d sandbox.Delivery) (sandbox.Receipt, error)
}

func (d deliverer) Deliver(ctx context.Context, delivery sandbox.Delivery) (sandbox.Receipt, error) {
	return d.deliver(ctx, delivery)
}

func TestConditionIsPutOffWhenTooManyWait(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(c *api.Config) {
		c.MaxConditions = 1
		c.Service = deliverer{c.Service, func(context.Context, sandbox.Delivery) (sandbox.Receipt, error) {
			entered <- struct{}{}
			<-leave
			return sandbox.Receipt{ID: "m"}, nil
		}}
	})
	body := w.condition("game.finished", `{"environment_id":"catan-7"}`)
	first := w.signed("m", body)
	done := make(chan answer)
	go func() { done <- w.send(first) }()
	<-entered
	a := w.send(w.signed("n", body))
	w.wantProblem(a, 429, sandbox.CapacityExceeded)
	if a.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
	}
	close(leave)
	want[sandbox.Receipt](w, <-done, 202)
}

func TestConditionIsPutOffWhenTheLedgerIsAway(t *testing.T) {
	t.Parallel()
	for name, deliver := range map[string]func(context.Context, sandbox.Delivery) (sandbox.Receipt, error){
		"away": func(context.Context, sandbox.Delivery) (sandbox.Receipt, error) {
			return sandbox.Receipt{}, sandbox.Errorf(sandbox.Unavailable, "the disk is full")
		},
		"slow": func(ctx context.Context, _ sandbox.Delivery) (sandbox.Receipt, error) {
			<-ctx.Done()
			return sandbox.Receipt{}, ctx.Err()
		},
		"lost": func(context.Context, sandbox.Delivery) (sandbox.Receipt, error) {
			return sandbox.Receipt{}, sandbox.Errorf(sandbox.UnknownOutcome, "the connection broke")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *api.Config) {
				c.Service, c.ConditionTimeout = deliverer{c.Service, deliver}, 50*time.Millisecond
			})
			a := w.send(w.signed("m", w.condition("game.finished", `{"environment_id":"catan-7"}`)))
			w.wantProblem(a, 503, sandbox.Unavailable)
			if a.Header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
			}
		})
	}
}

func TestASenderThatHangsUpDoesNotUndoItsCondition(t *testing.T) {
	t.Parallel()
	entered, gone, kept := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	w := newWorld(t, func(c *api.Config) {
		c.Service = deliverer{c.Service, func(ctx context.Context, _ sandbox.Delivery) (sandbox.Receipt, error) {
			close(entered)
			<-gone
			select { // the request's context ends now; this one must not
			case <-ctx.Done():
				kept <- ctx.Err()
			case <-time.After(200 * time.Millisecond):
				kept <- nil
			}
			return sandbox.Receipt{}, nil
		}}
	})
	ctx, hangUp := context.WithCancel(t.Context())
	r := w.signed("m", w.condition("game.finished", `{"environment_id":"catan-7"}`)).WithContext(ctx)
	failed := make(chan error, 1)
	go func() {
		resp, err := w.client.Do(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	<-entered
	hangUp()
	if err := <-failed; err == nil {
		t.Fatal("the sender did not hang up")
	}
	close(gone)
	if err := <-kept; err != nil {
		t.Errorf("the transaction was cut: %v", err)
	}
}
