package proxy

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
)

// Limits limit what sandboxes can use. Zero values mean the defaults.
type Limits struct {
	// Connections is the limit for each sandbox, ConnectionsTotal that for all sandboxes together. Default 256 and 4096.
	Connections, ConnectionsTotal int
	// Brokered limits the connections of each sandbox whose TLS ends here, BrokeredTotal those of all sandboxes together.
	// Each takes memory for two TLS connections. Default 64 and 512.
	Brokered, BrokeredTotal int
	// Header limits the header of a request in bytes. HeaderTime limits the time until a header or TLS hello is complete.
	// Default 32 KiB and 10 s.
	Header     int
	HeaderTime time.Duration
	// Idle is how long a connection may be idle. Default 15 minutes: a model may think for a long time before it answers.
	Idle time.Duration
	// KeepAlive is how long a client may wait before its next request. Default 2 minutes.
	KeepAlive time.Duration
	// Bytes limits the bytes through one tunnel, in both directions together. Default: no limit.
	Bytes int64
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.Connections, 256)
	orDefault(&l.ConnectionsTotal, 4096)
	orDefault(&l.Brokered, 64)
	orDefault(&l.BrokeredTotal, 512)
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

// Config configures a Proxy.
type Config struct {
	Dialer *egress.Dialer
	Log    *audit.Log
	Limits Limits
	// NewID returns new ids for attempts.
	NewID func() string
	// LLM serves LLM calls; nil refuses them.
	LLM LLM
	// Credentials are added to requests of sandboxes that trust the gateway's authority; nil means none.
	Credentials Credentials
	// Roots are the authorities of hosts with a credential; nil means the machine's.
	Roots *x509.CertPool
}

// LLM serves the requests of sandboxes whose path begins with llm.Prefix.
type LLM interface {
	Serve(w http.ResponseWriter, r *http.Request, c llm.Caller)
}

// Proxy serves the sandboxes of one environment. It refuses everything until it has a policy.
type Proxy struct {
	dialer      *egress.Dialer
	log         *audit.Log
	limits      Limits
	newID       func() string
	llm         LLM
	credentials Credentials
	roots       atomic.Pointer[x509.CertPool]
	transport   *http.Transport
	forwarder   *httputil.ReverseProxy

	mu          sync.Mutex // guards what follows
	policy      *policy.Policy
	sandboxes   map[string]*session
	flows       map[*flow]struct{}
	connections int
	tunnels     int // tunnels whose TLS ends here
	closed      bool
}

// New returns a proxy without sandboxes and without a policy.
func New(cfg Config) *Proxy {
	p := &Proxy{
		dialer: cfg.Dialer, log: cfg.Log, limits: cfg.Limits.withDefaults(), newID: cfg.NewID, llm: cfg.LLM,
		credentials: cfg.Credentials,
		sandboxes:   make(map[string]*session), flows: make(map[*flow]struct{}),
	}
	p.roots.Store(cfg.Roots)
	p.transport = p.newTransport()
	p.forwarder = p.newForwarder()
	return p
}

// ErrClosed is the error of calls after Close.
var ErrClosed = errors.New("the gateway's proxy is closed")

// Sandbox is a sandbox that the proxy serves.
type Sandbox struct {
	llm.Caller
	// Trusts means that its programs trust the gateway's authority. Its requests to a host with a credential get the
	// credential.
	Trusts bool
}

// Add serves a sandbox on its own listener, which it takes over and closes. A sandbox that is already served is an
// error.
func (p *Proxy) Add(s Sandbox, l net.Listener) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := ErrClosed
	if !p.closed {
		err = nil
	}
	if _, ok := p.sandboxes[s.Sandbox]; ok && err == nil {
		err = fmt.Errorf("sandbox %s is already served", s.Sandbox)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	b := newSession(p, s.Sandbox, l)
	b.assign(s)
	p.sandboxes[s.Sandbox] = b
	b.start()
	return nil
}

// Assign sets the agent and the lease of a sandbox. It reports whether the sandbox is served.
func (p *Proxy) Assign(s Sandbox) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.sandboxes[s.Sandbox]
	if ok {
		b.assign(s)
	}
	return ok
}

// Remove cuts a sandbox off. It returns once all its connections are closed and all its LLM calls are recorded. An
// absent sandbox is success.
func (p *Proxy) Remove(sandbox string) {
	p.mu.Lock()
	b := p.sandboxes[sandbox]
	delete(p.sandboxes, sandbox)
	p.mu.Unlock()
	if b != nil {
		b.stop()
	}
}

// SetPolicy sets the policy and cuts the flows that it does not allow.
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

// SetRoots sets the authorities of hosts with a credential for later connections; nil means the machine's.
func (p *Proxy) SetRoots(roots *x509.CertPool) { p.roots.Store(roots) }

// Status is the state of a proxy.
type Status struct {
	HasPolicy   bool  `json:"has_policy"`
	Sandboxes   int   `json:"sandboxes"`
	Connections int   `json:"connections"` // connections from sandboxes
	Flows       int   `json:"flows"`       // connections to outside
	Dropped     int64 `json:"dropped"`     // dropped log records
}

// Status returns the proxy's current state.
func (p *Proxy) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Status{
		HasPolicy:   p.policy != nil,
		Sandboxes:   len(p.sandboxes),
		Connections: p.connections,
		Flows:       len(p.flows),
		Dropped:     p.log.Dropped(),
	}
}

// Close cuts all sandboxes off. It returns once all connections are closed.
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
