package deploy

import (
	"fmt"
	"net/http"
	"time"

	"golang.org/x/time/rate"
)

// Cloudflare blocks a token for five minutes after 1,200 calls in five minutes
// (developers.cloudflare.com/fundamentals/api/reference/limits, read 2026-11). This also affects Terraform and other
// programs that share the token. So a process makes at most DefaultCalls: half of them as a burst, the others at an
// even pace. The other programs can use the rest of the 1,200.
const (
	DefaultCalls = 1000
	callWindow   = 5 * time.Minute
)

// paced sends requests at the pace that the API allows.
type paced struct {
	to    http.RoundTripper
	limit *rate.Limiter
}

// pace returns a client that delays requests, so that it makes at most calls requests in five minutes.
func pace(client http.Client, calls int) *http.Client {
	to := client.Transport
	if to == nil {
		to = http.DefaultTransport
	}
	atOnce := max(1, calls/2)
	client.Transport = &paced{to, rate.NewLimiter(rate.Limit(float64(atOnce)/callWindow.Seconds()), atOnce)}
	return &client
}

// RoundTrip implements http.RoundTripper.
func (p *paced) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := p.limit.Wait(r.Context()); err != nil {
		return nil, fmt.Errorf("this process has many calls to make and paces them; wait for its turn: %w", err)
	}
	return p.to.RoundTrip(r)
}

// CloseIdleConnections is called by http.Client.
func (p *paced) CloseIdleConnections() {
	if c, ok := p.to.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
