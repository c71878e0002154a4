package api_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// failing is a service whose GetEnvironment fails, or panics with a value that is not an error.
type failing struct {
	service.Service
	err   error
	panic any
}

func (f failing) GetEnvironment(context.Context, string) (sandbox.Environment, error) {
	if f.panic != nil {
		panic(f.panic)
	}
	return sandbox.Environment{}, f.err
}

// fails returns the answer to a request whose service fails.
func (w *world) fails(err error) answer { return w.answerOf(failing{err: err}) }

func (w *world) answerOf(service service.Service) answer {
	w.Helper()
	text := access.NewToken()
	token, err := access.MakeToken("a", text)
	if err != nil {
		w.Fatal(err)
	}
	handler, err := api.New(api.Config{
		Service: service,
		Tokens:  []access.Token{token},
		IDs:     func(int) string { return "request-1" },
	})
	if err != nil {
		w.Fatal(err)
	}
	r := httptest.NewRequestWithContext(w.Context(), http.MethodGet, "/v1/environments/catan-7", nil)
	r.Header.Set("Authorization", "Bearer "+text)
	recorded := httptest.NewRecorder()
	handler.ServeHTTP(recorded, r)
	resp := recorded.Result()
	resp.Request = r
	return answer{resp, recorded.Body.String()}
}

func TestProblemGolden(t *testing.T) {
	t.Parallel()
	w := &world{T: t}
	a := w.fails(&sandbox.Error{
		Code:    sandbox.Conflict,
		Reason:  sandbox.ReasonOtherSettings,
		Message: "lease a::b lives with other settings",
		Fields:  []sandbox.Field{{Name: "settings.ttl", Problem: "is 1h0m0s"}},
		Err:     errors.New("a secret cause"),
	})
	const golden = `{"type":"urn:sandbox-lease:problem:conflict","title":"The object's state forbids the request","status":409,` +
		`"detail":"lease a::b lives with other settings","code":"conflict","reason":"other_settings","fields":[{"name":"settings.ttl","problem":"is 1h0m0s"}],"request_id":"request-1"}`
	if got := strings.TrimSpace(a.body); got != golden || a.StatusCode != 409 {
		t.Errorf("%d\n%s\nwant\n%s", a.StatusCode, got, golden)
	}
	if got := a.Header.Get("X-Request-Id"); got != "request-1" {
		t.Errorf("the request id is %q", got)
	}
}

func TestErrorsWithoutACodeAreNotShown(t *testing.T) {
	t.Parallel()
	w := &world{T: t}
	p := w.wantProblem(w.fails(errors.New("password is hunter2")), 500, sandbox.Internal)
	if strings.Contains(p.Detail, "hunter2") {
		t.Errorf("the reply says %s", p.Detail)
	}
	w.wantProblem(w.fails(context.DeadlineExceeded), 504, sandbox.Timeout)
}

func TestPanicIsA500(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Service = failing{Service: c.Service, panic: "hunter2"} })
	a := w.do("GET", "/v1/environments/catan-7", "")
	if p := w.wantProblem(a, 500, sandbox.Internal); strings.Contains(a.body, "hunter2") {
		t.Errorf("the reply says %s", p.Detail)
	}
	log := w.log.String()
	if !strings.Contains(log, a.Header.Get("X-Request-Id")) || !strings.Contains(log, "goroutine") ||
		!strings.Contains(log, "hunter2") {
		t.Errorf("the log does not help to find it: %s", log)
	}
	if a := w.do("GET", "/v1/ledger", ""); a.StatusCode != 200 {
		t.Errorf("afterwards the server answers %d", a.StatusCode)
	}
}

func TestLogNamesTheCallerAndNoSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	w.do("POST", annIn+"/exec", `{"command":["echo","hunter2"],"env":{"PASSWORD":"hunter2"},"stdin":"hunter2"}`)
	w.do("GET", "/v1/ledger", "", "Authorization", "Bearer hunter2hunter2hunter2hunter2")
	w.send(w.signed("m", w.condition("game.finished", `{"environment_id":"catan-7","reason":"hunter2"}`)))
	stale := w.signed("m", w.condition("game.finished", `{"environment_id":"catan-7"}`),
		func(h http.Header) { h.Set("webhook-timestamp", "1") })
	w.send(stale)
	log := w.log.String()
	for _, secret := range []string{w.admin, w.catan, "hunter2", "v1,"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %s: %s", secret, log)
		}
	}
	for _, fact := range []string{"token:admin", w.secret.Source(), `"status":202`, `"status":401`, "behind this clock", annIn} {
		if !strings.Contains(log, fact) {
			t.Errorf("the log does not say %s: %s", fact, log)
		}
	}
}
