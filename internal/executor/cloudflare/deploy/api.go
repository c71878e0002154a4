package deploy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// callLimit bounds one request with its retries.
	callLimit = 2 * time.Minute
	// maxAnswer bounds an answer, in bytes: the largest is a list of an account's applications.
	maxAnswer = 16 << 20
	// maxShown bounds the part of an answer that an error shows, in bytes.
	maxShown = 1 << 10
)

// transport sends requests, retries those that checkRetry allows, and turns failures into a *refusal.
type transport struct {
	retrying *retryablehttp.Client
	token    string
}

func newTransport(cfg Config) *transport {
	client := retryablehttp.NewClient() // with connections of its own
	if cfg.HTTP != nil {
		client.HTTPClient = cfg.HTTP
	}
	client.HTTPClient = pace(*client.HTTPClient, cmp.Or(cfg.Calls, DefaultCalls))
	client.RetryMax, client.RetryWaitMin, client.RetryWaitMax = 4, 500*time.Millisecond, 10*time.Second
	if cfg.Attempts > 0 {
		client.RetryMax = cfg.Attempts - 1
	}
	if cfg.WaitMin > 0 {
		client.RetryWaitMin = cfg.WaitMin
	}
	if cfg.WaitMax > 0 {
		client.RetryWaitMax = cfg.WaitMax
	}
	client.CheckRetry = checkRetry
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	client.Logger = nil
	if cfg.Logger != nil {
		client.Logger = details{cfg.Logger}
	}
	return &transport{retrying: client, token: string(cfg.Token)}
}

func (t *transport) close() { t.retrying.HTTPClient.CloseIdleConnections() }

// checkRetry retries requests that were rate-limited, and idempotent ones. It does not retry a failed request that may
// have created an object: the next deployment checks whether the object exists.
func checkRetry(ctx context.Context, answer *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if answer != nil && answer.StatusCode == http.StatusTooManyRequests {
		return !blocked(answer), nil
	}
	if method, known := methodOf(answer, err); !known || method == http.MethodPost {
		return false, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, answer, err)
}

// blocked reports whether the token made too many calls: Cloudflare then refuses all calls for too long to wait.
func blocked(answer *http.Response) bool {
	wait, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	return err == nil && time.Duration(wait)*time.Second >= callLimit/4
}

// Do implements the HTTP client of cloudflare-go.
func (t *transport) Do(r *http.Request) (*http.Response, error) {
	again, err := retryablehttp.FromRequest(r)
	if err != nil {
		return nil, err
	}
	answer, err := t.retrying.Do(again)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < 400 {
		return answer, nil
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	return nil, newRefusal(answer.StatusCode, []byte(strings.ReplaceAll(string(body), t.token, "(token)")))
}

// methodOf returns the method of a request.
func methodOf(answer *http.Response, err error) (string, bool) {
	if answer != nil && answer.Request != nil {
		return answer.Request.Method, true
	}
	var broken *url.Error
	if errors.As(err, &broken) {
		return strings.ToUpper(broken.Op), true
	}
	return "", false
}

// details logs retryablehttp's messages at level debug: the caller gets failures as errors.
type details struct{ log *slog.Logger }

func (d details) Error(msg string, kv ...any) { d.log.Debug(msg, kv...) }
func (d details) Warn(msg string, kv ...any)  { d.log.Debug(msg, kv...) }
func (d details) Info(msg string, kv ...any)  { d.log.Debug(msg, kv...) }
func (d details) Debug(msg string, kv ...any) { d.log.Debug(msg, kv...) }

// api makes the calls that cloudflare-go has no types for: /containers, and the upload of a Worker with containers.
type api struct {
	root      string // of the API
	base      string // of the account
	token     sandbox.Secret
	transport *transport
}

// call sends body as JSON, unless it is nil, and decodes the answer's result into out, unless that is nil.
func (a *api) call(ctx context.Context, method, path string, body, out any) error {
	if body == nil {
		return a.send(ctx, method, path, "", nil, out)
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return a.send(ctx, method, path, "application/json", encoded, out)
}

func (a *api) send(ctx context.Context, method, path, contentType string, body []byte, out any) error {
	var envelope struct {
		Result json.RawMessage `json:"result"`
	}
	if err := a.exchange(ctx, method, a.base+path, contentType, body, &envelope, out != nil); err != nil || out == nil {
		return err
	}
	return json.Unmarshal(envelope.Result, out)
}

// exchange sends a request and decodes the answer. The answer may be empty unless must is set.
func (a *api) exchange(ctx context.Context, method, url, contentType string, body []byte, out any, must bool) error {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+string(a.token))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := a.transport.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(out); err != nil &&
		(must || !errors.Is(err, io.EOF)) {
		return fmt.Errorf("its answer cannot be read: %w", err)
	}
	return nil
}
