package cloudflare

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/helper"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// readLimit bounds a request that changes nothing, changeLimit any other: the Worker allows 60 s for a start and 50 s
	// for a stop. Calls for one sandbox wait for each other, and a save or a restore of a large /data takes up to 10 min.
	// The outcome of a longer call is unknown, and a repetition waits on.
	readLimit   = 30 * time.Second
	changeLimit = 3 * time.Minute
	// maxAnswer bounds a JSON answer, in bytes.
	maxAnswer = 4 << 20
)

// WorkerConfig says where a Worker is.
type WorkerConfig struct {
	// URL is the Worker's address, such as https://catan-7.example.workers.dev.
	URL string
	// Key signs requests. It is the Worker's secret SIGNING_KEY.
	Key sandbox.Secret
	// keys replaces Key; nil means a keyring with only Key.
	keys *keyring
	// HTTP carries the requests; nil means a client of its own. It must have no timeout.
	HTTP *http.Client
	// Now returns the time for signatures; nil means time.Now.
	Now func() time.Time
}

// Worker is a client of the Worker of one environment, or of several that share it. It is safe for concurrent use.
type Worker struct {
	helper.Guests
	base     string
	signer   signer
	http     *http.Client
	sessions *sessions
}

// NewWorker returns a client of a Worker. It does not connect. Errors: Invalid.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, sandbox.Errorf(sandbox.Invalid, "cloudflare: the Worker's address %q is not an http or https URL",
			cfg.URL)
	}
	if cfg.keys == nil && cfg.Key != "" {
		cfg.keys = newKeyring([]sandbox.Secret{cfg.Key})
	}
	if cfg.keys == nil || cfg.keys.size() == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "cloudflare: Worker %s: there is no key to sign requests with", cfg.URL)
	}
	if cfg.HTTP == nil {
		cfg.HTTP = newClient()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	w := &Worker{base: strings.TrimSuffix(cfg.URL, "/"), signer: signer{cfg.keys, cfg.Now}, http: cfg.HTTP}
	w.Guests = helper.New(sandbox.Cloudflare, w.help)
	w.sessions = newSessions(w.openSession)
	return w, nil
}

// newClient returns a client without a timeout of its own: each request has its deadline.
func newClient() *http.Client {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{Transport: &http.Transport{
		DialContext:         dialer.DialContext,
		Proxy:               http.ProxyFromEnvironment,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
	}}
}

// Close ends the operations in progress in sandboxes, and closes idle connections.
func (w *Worker) Close() error {
	w.sessions.close()
	w.http.CloseIdleConnections()
	return nil
}

// instance is a Worker's answer about itself.
type instance struct {
	Instance string `json:"instance"`
	Keys     string `json:"keys"`
	// Image and Prepared are its variables, "" from a Worker of an earlier release.
	Image    string `json:"image"`
	Prepared string `json:"prepared"`
	// Policy is "" under PolicyDefault.
	Policy SchedulingPolicy `json:"policy"`
	// Images are the names of the images that starts may choose (Deployment.Images).
	Images []string `json:"images"`
}

// Instance returns the id of the account that the Worker was deployed for. Errors: Unavailable.
func (w *Worker) Instance(ctx context.Context) (string, error) {
	answer, err := w.introduce(ctx)
	return answer.Instance, err
}

func (w *Worker) introduce(ctx context.Context) (answer instance, err error) {
	err = w.call(ctx, request{method: http.MethodGet, path: "/v1/instance", what: "ask who answers"}, &answer)
	if err == nil {
		w.signer.keys.prefer(answer.Keys)
	}
	return answer, err
}

// request is one call to the Worker.
type request struct {
	method, path string
	body         any
	// what describes the call and its object, for errors.
	what string
}

func (r request) changes() bool { return r.method != http.MethodGet }

// onSandbox returns a request about a sandbox: worker/src/index.ts lists the methods and verbs.
func onSandbox(h driver.Handle, method, verb, what string) request {
	path := "/v1/instances/" + url.PathEscape(h.Instance) + "/ledgers/" + url.PathEscape(h.LedgerID) + "/sandboxes/" +
		url.PathEscape(h.SandboxID)
	if verb != "" {
		path += "/" + verb
	}
	return request{method: method, path: path, what: "sandbox " + h.SandboxID + ": " + what}
}

// call sends a request and reads its answer into out, which may be nil.
func (w *Worker) call(ctx context.Context, r request, out any) error {
	limit := readLimit
	if r.changes() {
		limit = changeLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return sandbox.Errorf(sandbox.Internal, "cloudflare: %s: %w", r.what, err)
		}
	}
	answer, err := w.send(ctx, r, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(out); err != nil {
		return lost(r, fmt.Errorf("its answer cannot be read: %w", err))
	}
	return nil
}

// send sends a request and returns its successful answer.
func (w *Worker) send(ctx context.Context, r request, body []byte) (*http.Response, error) {
	return signed(w, func() (*http.Response, error) { return w.sendOnce(ctx, r, body) })
}

// signed calls try, which signs and sends a request. It retries with each other key while the Worker refuses the
// signature.
func signed[T any](w *Worker, try func() (T, error)) (answer T, err error) {
	for range w.signer.keys.size() {
		key := w.signer.keys.current()
		answer, err = try()
		if _, refused := errors.AsType[*refusedError](err); !refused {
			return answer, err
		}
		w.signer.keys.refused(key)
	}
	return answer, err
}

func (w *Worker) sendOnce(ctx context.Context, r request, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, w.base+r.path, bytes.NewReader(body))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "cloudflare: %s: %w", r.what, err)
	}
	w.signer.signBody(req, body)
	answer, err := w.http.Do(req)
	if err != nil {
		return nil, lost(r, err)
	}
	if answer.StatusCode != http.StatusOK {
		err := refusal(r, answer)
		return nil, errors.Join(err, answer.Body.Close())
	}
	return answer, nil
}

// lost returns the error of a request without an answer.
func lost(r request, err error) error {
	code := sandbox.Unavailable
	if r.changes() {
		code = sandbox.UnknownOutcome
	}
	return sandbox.Errorf(code, "cloudflare: %s: the Worker did not answer: %w", r.what, err)
}

// codes are the error codes that a Worker may answer with.
var codes = map[sandbox.Code]bool{
	sandbox.Invalid: true, sandbox.NotFound: true, sandbox.Conflict: true, sandbox.CapacityExceeded: true,
	sandbox.Unavailable: true, sandbox.UnknownOutcome: true, sandbox.Failed: true, sandbox.Internal: true,
}

// refusedError is the error of a request whose signature the Worker does not accept.
type refusedError struct{ said string }

func (e *refusedError) Error() string {
	return "the Worker refused the signature: was it deployed with another key, or is this machine's clock wrong? (" +
		e.said + ")"
}

// refusal returns the error of an answer that reports a failure.
func refusal(r request, answer *http.Response) error {
	var f struct {
		Code    sandbox.Code   `json:"code"`
		Reason  sandbox.Reason `json:"reason"`
		Message string         `json:"message"`
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return lost(r, err)
	}
	unreadable := json.Unmarshal(body, &f)
	switch {
	case unreadable == nil && f.Code == sandbox.Unauthenticated:
		return sandbox.Errorf(sandbox.Unavailable, "cloudflare: %s: %w", r.what, &refusedError{f.Message})
	case unreadable == nil && codes[f.Code]:
		return sandbox.Errorf(f.Code, "cloudflare: %s: %s", r.what, f.Message).WithReason(f.Reason)
	default: // the platform itself answers, in HTML
		return lost(r, errors.New("the platform answered instead, with "+cmp.Or(answer.Status, "no status")))
	}
}
