package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
)

// Limits bound what sandboxes can take. Zero values take the defaults.
type Limits struct {
	// Connections of one sandbox, and of all together. Default 256 and 4096.
	Connections, ConnectionsTotal int
	// Header bounds the header of a request in bytes, HeaderTime until it is complete, or a TLS
	// hello. Default 32 KiB and 10 s.
	Header     int
	HeaderTime time.Duration
	// Idle is after how long a connection that moves nothing is closed. Default 15 minutes: a model
	// may think for long before it answers.
	Idle time.Duration
	// KeepAlive is how long a client may take until its next request. Default 2 minutes.
	KeepAlive time.Duration
	// Bytes is how many bytes one tunnel may move, both ways together. Default: no limit.
	Bytes int64
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.Connections, 256)
	orDefault(&l.ConnectionsTotal, 4096)
	orDefault(&l.Header, 32<<10)
	orDefault(&l.HeaderTime, 10*time.Second)
	orDefault(&l.Idle, 15*time.Minute)
	orDefault(&l.KeepAlive, 2*time.Minute)
	return l
}

func orDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Config says how to make a Proxy.
type Config struct {
	Dialer *egress.Dialer
	Log    *audit.Log
	Limits Limits
	// NewID issues the ids of attempts.
	NewID func() string
}

// Proxy serves the sandboxes of one environment. It refuses everything until it has a policy.
type Proxy struct {
	dialer    *egress.Dialer
	log       *audit.Log
	limits    Limits
	newID     func() string
	transport *http.Transport
	forwarder *httputil.ReverseProxy

	mu          sync.Mutex // guards what follows
	policy      *policy.Policy
	sandboxes   map[string]*box
	flows       map[*flow]struct{}
	connections int
	closed      bool
}

// New returns a proxy without sandboxes and without a policy.
func New(cfg Config) *Proxy {
	p := &Proxy{
		dialer: cfg.Dialer, log: cfg.Log, limits: cfg.Limits.withDefaults(), newID: cfg.NewID,
		sandboxes: make(map[string]*box), flows: make(map[*flow]struct{}),
	}
	p.transport = p.newTransport()
	p.forwarder = p.newForwarder()
	return p
}

// ErrClosed is returned for what comes after Close.
var ErrClosed = errors.New("the gateway's proxy is closed")

// Add serves a sandbox on a listener of its own, which it takes over and closes. A sandbox that is
// served already is an error.
func (p *Proxy) Add(sandbox, agent string, l net.Listener) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := ErrClosed
	if !p.closed {
		err = nil
	}
	if _, ok := p.sandboxes[sandbox]; ok && err == nil {
		err = fmt.Errorf("sandbox %s is served already", sandbox)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	b := newBox(p, sandbox, l)
	b.agent.Store(agent)
	p.sandboxes[sandbox] = b
	b.start()
	return nil
}

// Assign says which agent a sandbox now works for. It reports whether the sandbox is served.
func (p *Proxy) Assign(sandbox, agent string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.sandboxes[sandbox]
	if ok {
		b.agent.Store(agent)
	}
	return ok
}

// Remove cuts a sandbox off, and returns once nothing of it is left. Absent is success.
func (p *Proxy) Remove(sandbox string) {
	p.mu.Lock()
	b := p.sandboxes[sandbox]
	delete(p.sandboxes, sandbox)
	p.mu.Unlock()
	if b != nil {
		b.stop()
	}
}

// SetPolicy changes the policy for all that follows, and cuts the flows that it does not allow.
func (p *Proxy) SetPolicy(next *policy.Policy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.policy = next
	for f := range p.flows {
		if r := f.check(next); r != nil {
			f.cut(errCut)
		}
	}
}

// Status is what a proxy is doing.
type Status struct {
	HasPolicy   bool  `json:"has_policy"`
	Sandboxes   int   `json:"sandboxes"`
	Connections int   `json:"connections"` // from sandboxes
	Flows       int   `json:"flows"`       // to outside
	Dropped     int64 `json:"dropped"`     // records of the log
}

// Status returns what the proxy is doing now.
func (p *Proxy) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Status{HasPolicy: p.policy != nil, Sandboxes: len(p.sandboxes), Connections: p.connections, Flows: len(p.flows), Dropped: p.log.Dropped()}
}

// Close cuts every sandbox off, and returns once nothing is left.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	ids := make([]string, 0, len(p.sandboxes))
	for id := range p.sandboxes {
		ids = append(ids, id)
	}
	p.mu.Unlock()
	for _, id := range ids {
		p.Remove(id)
	}
}
