// Package client is the lease service over HTTP. It calls a reconciler, and behaves like the
// service in process: errors keep their code, reason and fields, and streams stream.
//
// It retries idempotent requests after lost connections and after 429, 502, 503 and 504, a limited
// number of times, and honors Retry-After. It does not retry a command without an id, or the
// creation of an environment that must not exist. If their response is lost, the error is
// UnknownOutcome.
//
// The types of requests and responses are those of package sandbox.
package client

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config configures a client.
type Config struct {
	// URL is the URL of the reconciler, such as "https://reconciler.example.com:8080", or "unix:///run/sandbox/api.sock".
	URL string
	// Token is the bearer token.
	Token string
	// Sign sets the headers that authenticate a condition, instead of Token. A client that only delivers conditions needs
	// no token. Retries of a condition send the same headers.
	Sign   func(h http.Header, id string, body []byte) error
	Logger *slog.Logger // nil means none; the token is never logged
	// Attempts is the maximum number of attempts of an idempotent request. Zero means 5.
	Attempts int
	// WaitMin and WaitMax limit the wait between attempts. Zero means 200 ms and 10 s.
	WaitMin, WaitMax time.Duration
	// QuickTimeout limits a request that only uses the ledger, including retries. SlowTimeout limits a request that waits
	// for a backend. Zero means 1 min and 15 min.
	QuickTimeout, SlowTimeout time.Duration
	// UserAgent is sent with every request; "" means terraform-provider-sandbox.
	UserAgent string
	// TLS configures the connection to an https reconciler; nil means the authorities that this machine trusts, and no
	// client certificate.
	TLS *tls.Config
	// Proxy is the URL of the proxy to the reconciler; nil means the proxy of the environment.
	Proxy *url.URL
}

// Client is the lease service of one reconciler. It is safe for concurrent use.
type Client struct {
	base         string // without a trailing slash
	name         string // as configured, for errors
	token        string
	sign         func(h http.Header, id string, body []byte) error
	userAgent    string
	quick, slow  time.Duration
	attempts     int
	waitMin      time.Duration
	waitMax      time.Duration
	stream       *http.Client          // one attempt
	once, repeat *retryablehttp.Client // retry only requests that did not arrive; retry all
}

var _ service.Service = (*Client)(nil)

// socketHost is the host in URLs of requests to a unix socket.
const socketHost = "reconciler.sock"

// New returns a client. It does not connect. Errors: Invalid.
func New(c Config) (*Client, error) {
	base, socket, err := ParseURL(c.URL)
	if err != nil {
		return nil, err
	}
	if c.Token == "" && c.Sign == nil {
		return nil, sandbox.Errorf(sandbox.Invalid,
			"reconciler %s: no token; set it in the configuration or in SANDBOX_RECONCILER_TOKEN", c.URL)
	}
	setDefault(&c.Attempts, 5)
	setDefault(&c.WaitMin, 200*time.Millisecond)
	setDefault(&c.WaitMax, 10*time.Second)
	setDefault(&c.QuickTimeout, time.Minute)
	setDefault(&c.SlowTimeout, 15*time.Minute)
	setDefault(&c.UserAgent, "terraform-provider-sandbox")
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if base.Scheme == "http" && socket == "" && !loopback(base.Hostname()) {
		c.Logger.Warn("the reconciler's token crosses the network unencrypted: use https", "url", c.URL)
	}
	client := &Client{
		base:      strings.TrimRight(base.String(), "/"),
		name:      strings.TrimRight(c.URL, "/"),
		token:     c.Token,
		sign:      c.Sign,
		userAgent: c.UserAgent,
		quick:     c.QuickTimeout,
		slow:      c.SlowTimeout,
		attempts:  c.Attempts,
		waitMin:   c.WaitMin,
		waitMax:   c.WaitMax,
		stream: &http.Client{
			Transport: c.transport(socket),
			// A redirect would turn POST into GET, so it is an error.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	client.repeat = client.retrying(c.Logger, client.stream, retryRepeatable)
	client.once = client.retrying(c.Logger, client.stream, retryUnsent)
	return client, nil
}

// ParseURL returns the base of the URLs of a reconciler. socket is the path of a unix socket, "" for none. Errors:
// Invalid.
func ParseURL(text string) (base *url.URL, socket string, err error) {
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/") {
		socket, u = u.Path, &url.URL{Scheme: "http", Host: socketHost}
	}
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return nil, "", sandbox.Errorf(sandbox.Invalid,
			"reconciler URL %q: must be http:// or https:// and a host, or unix:///path", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, "", sandbox.Errorf(sandbox.Invalid,
			"reconciler URL of host %s: must hold no user, password, query or fragment", u.Host)
	}
	return u, socket, nil
}

// transport returns a transport to the socket, or to the URL's host if there is none.
func (c Config) transport(socket string) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	dial, proxy := dialer.DialContext, http.ProxyFromEnvironment
	if c.Proxy != nil {
		proxy = http.ProxyURL(c.Proxy)
	}
	if socket != "" {
		dial, proxy = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}, nil
	}
	return &http.Transport{
		Proxy:                 proxy,
		DialContext:           dial,
		TLSClientConfig:       c.TLS.Clone(),
		TLSHandshakeTimeout:   10 * time.Second,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   64, // Terraform works on many leases of one reconciler at once
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.stream.CloseIdleConnections()
	return nil
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c *Client) retrying(log *slog.Logger, h *http.Client, policy retryablehttp.CheckRetry) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient:   h,
		Logger:       leveled{log},
		RetryWaitMin: c.waitMin,
		RetryWaitMax: c.waitMax,
		RetryMax:     c.attempts - 1,
		CheckRetry:   policy,
		Backoff:      backoff,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// leveled logs retryablehttp's messages at debug level. The caller gets errors.
type leveled struct{ log *slog.Logger }

var _ retryablehttp.LeveledLogger = leveled{}

func (l leveled) Error(msg string, kv ...any) { l.log.Debug("reconciler client: "+msg, kv...) }
func (l leveled) Warn(msg string, kv ...any)  { l.log.Debug("reconciler client: "+msg, kv...) }
func (l leveled) Info(msg string, kv ...any)  { l.log.Debug("reconciler client: "+msg, kv...) }
func (l leveled) Debug(msg string, kv ...any) { l.log.Debug("reconciler client: "+msg, kv...) }

// retryRepeatable retries idempotent requests.
func retryRepeatable(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if err != nil {
		// The default policy does not retry permanent errors: schemes, redirects, certificates.
		retries, permanent := retryablehttp.DefaultRetryPolicy(ctx, resp, err)
		return retries && !misconfigured(err), permanent
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ctx.Err() == nil, ctx.Err()
	default:
		return false, ctx.Err()
	}
}

// retryUnsent retries a request only if the reconciler has not worked on it.
func retryUnsent(ctx context.Context, resp *http.Response, err error) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		retries, permanent := retryablehttp.DefaultRetryPolicy(ctx, resp, err)
		return retries && !wasSent(err) && !misconfigured(err), permanent
	default:
		return resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable, nil
	}
}

// backoff waits for Retry-After, at most high, or exponentially from low to high.
func backoff(low, high time.Duration, attempt int, resp *http.Response) time.Duration {
	wait := retryablehttp.DefaultBackoff(low, high, attempt, resp)
	return min(wait, high)
}
