package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxProblem limits the size of an error response, in bytes.
const maxProblem = 1 << 20

// request is one call of the API.
type request struct {
	method string
	path   string // escaped, with the query
	body   any    // sent as JSON, []byte unchanged; nil means no body
	header http.Header
	// slow calls wait for a backend.
	slow bool
	// longer is added to the deadline.
	longer time.Duration
	// harmless calls change nothing, although their method is not GET.
	harmless bool
	// once disables retries, for calls that are not idempotent.
	once bool
	// signed calls are authenticated by header, and not by the token: with a token, the reconciler reads no signature.
	signed bool
}

// call sends a request and decodes the response into out, unless out is nil.
func (c *Client) call(ctx context.Context, r request, out any) error {
	timeout := c.quick
	if r.slow {
		timeout = c.slow
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+r.longer)
	defer cancel()
	req, err := c.newRequest(ctx, r)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%s %s: %w", r.method, c.base+r.path, err)
	}
	sender := c.repeat
	if r.once {
		sender = c.once
	}
	harmless := r.harmless || r.method == http.MethodGet
	resp, err := sender.Do(req)
	if err != nil {
		return c.lost(r.method, r.path, harmless, err)
	}
	defer closeBody(resp)
	if err := c.check(resp, harmless); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return c.lost(r.method, r.path, harmless, err)
	}
	return nil
}

func (c *Client) newRequest(ctx context.Context, r request) (*retryablehttp.Request, error) {
	var body any // retryablehttp rewinds []byte
	switch b := r.body.(type) {
	case nil:
	case []byte:
		body = b
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		body = encoded
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, r.method, c.base+r.path, body)
	if err != nil {
		return nil, err
	}
	c.setHeaders(req.Request, wire.JSON)
	if r.signed {
		req.Header.Del("Authorization")
	}
	maps.Copy(req.Header, r.header)
	if body != nil {
		req.Header.Set("Content-Type", wire.JSON)
	}
	return req, nil
}

// send sends a request with a streamed body once, and returns a successful response. The caller closes its stream. wait
// limits the time until the response starts.
func (c *Client) send(ctx context.Context, wait time.Duration, method, path, contentType, accept string,
	body io.Reader) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(wait, func() { cancel(context.DeadlineExceeded) })
	resp, err := c.attempt(ctx, method, path, contentType, accept, body)
	if !timer.Stop() && err == nil { // the response came too late: its stream is already cancelled
		_ = resp.Body.Close()
		err = c.lost(method, path, method == http.MethodGet, context.DeadlineExceeded)
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	resp.Body = &streamBody{resp.Body, cancel}
	return resp, nil
}

// streamBody releases the resources of a stream on Close.
type streamBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *streamBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

func (c *Client) attempt(ctx context.Context, method, path, contentType, accept string,
	body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s %s: %w", method, c.base+path, err)
	}
	c.setHeaders(req, accept)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.stream.Do(req)
	if err != nil {
		return nil, c.lost(method, path, method == http.MethodGet, err)
	}
	if err := c.check(resp, method == http.MethodGet); err != nil {
		closeBody(resp)
		return nil, err
	}
	return resp, nil
}

func (c *Client) setHeaders(r *http.Request, accept string) {
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	r.Header.Set("User-Agent", c.userAgent)
	r.Header.Set("Accept", accept)
}

// closeBody drains a short rest, so that the connection can be reused.
func closeBody(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // after an error the connection is not reused
	_ = resp.Body.Close()
}

// endLimit limits the wait for the end of a stream after its last line. The reconciler sends it at once.
const endLimit = time.Second

// readEnd reads the end of a stream after its last line, so that the connection can be reused.
func readEnd(resp *http.Response) {
	defer time.AfterFunc(endLimit, func() { _ = resp.Body.Close() }).Stop()
	_, _ = io.Copy(io.Discard, resp.Body) // after an error the connection is not reused
}

// plainToTLS is the start of the answer of Go's HTTP server (net/http, Go 1.26) to plain HTTP on a TLS port. No status
// or header distinguishes it from another bad request.
const plainToTLS = "Client sent an HTTP request to an HTTPS server"

// check converts an error response to an error. A harmless request changes nothing.
func (c *Client) check(resp *http.Response, harmless bool) error {
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	if location := resp.Header.Get("Location"); location != "" && resp.StatusCode < 400 {
		return sandbox.Errorf(sandbox.Unavailable,
			"reconciler %s redirects to %s: use that URL if it is a reconciler", c.name, location)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err == nil && resp.StatusCode == http.StatusBadRequest && strings.HasPrefix(string(body), plainToTLS) {
		return sandbox.Errorf(sandbox.Failed, "reconciler %s serves TLS: use https:// in the URL", c.name)
	}
	var p wire.Problem
	if err := json.Unmarshal(body, &p); err == nil && p.Code != "" {
		e := p.Err()
		if p.Code == sandbox.Unauthenticated {
			e.Message = "reconciler " + c.name + " rejects the token: " + p.Detail
			if c.sign != nil && resp.Request.Header.Get("Authorization") == "" {
				e.Message = "reconciler " + c.name + " rejects the signature: check the webhook secret and the clock: " + p.Detail
			}
		}
		return e
	}
	return sandbox.Errorf(codeOf(resp, harmless),
		"reconciler %s: the response to %s %s is %s, but not from a reconciler: check the URL and proxies",
		c.name, resp.Request.Method, resp.Request.URL.Path, resp.Status)
}

// codeOf guesses the code of a response that is not from the reconciler, but from a proxy.
func codeOf(resp *http.Response, harmless bool) sandbox.Code {
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		if !harmless {
			return sandbox.UnknownOutcome // the proxy had forwarded the request
		}
		return sandbox.Unavailable
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return sandbox.Unauthenticated
	case http.StatusForbidden:
		return sandbox.Forbidden
	default:
		// Not NotFound: only a reconciler can say that an object does not exist.
		return sandbox.Unavailable
	}
}

// lost is the error of a request without a complete response.
func (c *Client) lost(method, path string, harmless bool, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // its text repeats method and URL
	}
	code, next := sandbox.UnknownOutcome, "it may have succeeded: check before you retry"
	switch {
	case misconfigured(err):
		code, next = sandbox.Failed, advice(err)
	case harmless || !wasSent(err):
		code, next = sandbox.Unavailable, advice(err)
	}
	return sandbox.Errorf(code, "reconciler %s: %s %s: %w: %s", c.name, method, path, err, next)
}

// advice returns what to try after a failed connection.
func advice(err error) string {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "its certificate is for other names: use one of them in the URL"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "its certificate is not valid at this time: renew it, or set this machine's clock"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "its certificate is not trusted here: name the file with its authority, with --ca-file on the command line, " +
			"as ca_file in the provider's reconciler block, or in the environment variable SSL_CERT_FILE"
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return "it serves plain HTTP: use http:// in the URL, or let it serve TLS with --tls-cert and --tls-key"
	}
	if alerted(err) {
		return "it broke off TLS: where it wants a client certificate, set client_certificate_file and client_key_file in " +
			"the provider's reconciler block"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "proxyconnect" {
		return "the proxy cannot be reached, or refuses: check proxy_url in the provider's reconciler block, or HTTPS_PROXY"
	}
	return "check that the reconciler runs and that the URL is right"
}

// misconfigured reports whether a connection failed because of the TLS settings of either side. A retry cannot help.
func misconfigured(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return untrusted || alerted(err) || errors.Is(err, http.ErrSchemeMismatch)
}

// alerted reports whether the other side ended the TLS handshake with an alert.
func alerted(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// wasSent reports whether a request without a response may have reached the reconciler.
func wasSent(err error) bool {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}
	if misconfigured(err) {
		return false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false
	}
	_, resolving := errors.AsType[*net.DNSError](err)
	return !resolving
}

// retryPause waits before the nth reconnection of a stream, from 0, unless ctx ends first.
func (c *Client) retryPause(ctx context.Context, n int) error {
	timer := time.NewTimer(backoff(c.waitMin, c.waitMax, n, nil))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// query builds "?a=b" from pairs, and skips empty values.
func query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}
