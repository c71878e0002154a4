package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The reasons to end an allowed flow.
const (
	PolicyChanged policy.Reason = "policy_changed"
	IdleTooLong   policy.Reason = "idle"
	ByteLimit     policy.Reason = "byte_limit"
)

var errCut = errors.New("the policy has changed and no longer allows this connection")

// flow is one attempt to reach the network: a tunnel or a request.
type flow struct {
	proxy    *Proxy
	session  *session
	ctx      context.Context
	cut      context.CancelCauseFunc
	id       string
	agent    string // at the start
	began    time.Time
	protocol audit.Protocol
	asked    string // host as the sandbox wrote it
	host     string // canonical host
	port     uint16

	sent, received atomic.Int64
	// opened means that the log has the Opened record. err is why a request was not answered. Only the flow's own
	// goroutine uses both.
	opened bool
	err    error

	addr netip.Addr // guarded by Proxy.mu
}

// begin registers and checks an attempt to reach a host, such as "github.com" or "GitHub.com.". The caller
// must end the flow, even a refused one.
func (b *session) begin(ctx context.Context, protocol audit.Protocol, host, port string) (*flow, *policy.Refusal) {
	f := &flow{
		proxy:    b.proxy,
		session:  b,
		id:       b.proxy.newID(),
		agent:    b.agentName(),
		began:    time.Now(),
		protocol: protocol,
		asked:    host,
	}
	f.ctx, f.cut = context.WithCancelCause(ctx)
	name, err := sandbox.CanonicalHost(host)
	if err != nil {
		return f, policy.Refuse(policy.InvalidHost, "%q %s", cutText(host), err)
	}
	number, ok := parsePort(port)
	if !ok {
		return f, policy.Refuse(policy.InvalidHost, "%s: %q is not a valid port", name, cutText(port))
	}
	f.host, f.port = name, number
	p := b.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.policy.Host(name, number); r != nil {
		return f, r
	}
	p.flows[f] = struct{}{}
	return f, nil
}

func cutText(s string) string { return s[:min(len(s), 260)] }

// parsePort accepts only digits.
func parsePort(text string) (uint16, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && n > 0
}

// check reports whether a policy allows the flow in its current state. The caller must hold Proxy.mu.
func (f *flow) check(p *policy.Policy) *policy.Refusal {
	if r := p.Host(f.host, f.port); r != nil {
		return r
	}
	if !f.addr.IsValid() { // not connected yet, or through an upstream proxy
		return nil
	}
	return p.Address(f.addr)
}

type dialFunc func(context.Context, *policy.Policy, string, uint16) (net.Conn, netip.Addr, error)

// dial connects the flow. It honours a policy change during the dial.
func (f *flow) dial(ctx context.Context, dial dialFunc) (net.Conn, error) {
	p := f.proxy
	p.mu.Lock()
	current := p.policy
	p.mu.Unlock()
	conn, addr, err := dial(ctx, current, f.host, f.port)
	if err != nil {
		if cause := context.Cause(f.ctx); errors.Is(cause, errCut) {
			err = cause
		}
		return nil, err
	}
	p.mu.Lock()
	f.addr = addr
	r := f.check(p.policy)
	p.mu.Unlock()
	if r != nil {
		return nil, errors.Join(r, conn.Close())
	}
	return conn, nil
}

// open logs that the flow is open.
func (f *flow) open(protocol audit.Protocol) {
	if f.opened {
		return
	}
	f.protocol, f.opened = protocol, true
	r := f.record(audit.Opened)
	r.Verdict = audit.Allowed
	f.session.log.Add(r)
}

// forget ends a flow without a log record, because others log it.
func (f *flow) forget() {
	f.cut(nil)
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	delete(f.proxy.flows, f)
}

// end ends the flow and logs the result. err is nil, a *policy.Refusal, an *egress.Failure or the cause of a cut.
func (f *flow) end(err error) {
	f.forget()
	r := f.record(audit.Closed)
	r.Sent, r.Received, r.Duration = f.sent.Load(), f.received.Load(), time.Since(f.began)
	r.Verdict, r.Reason, r.Detail = judge(err)
	if f.opened {
		r.Verdict = audit.Allowed
	}
	f.session.log.Add(r)
}

func (f *flow) record(kind audit.Kind) audit.Record {
	r := audit.Record{
		Kind: kind, Attempt: f.id, Agent: f.agent, Protocol: f.protocol, Host: f.host, Port: f.port,
	}
	if f.host == "" {
		r.Host = f.asked
	}
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	if f.addr.IsValid() {
		r.Address = f.addr.String()
	}
	return r
}

func judge(err error) (audit.Verdict, policy.Reason, string) {
	var refusal *policy.Refusal
	var failure *egress.Failure
	switch {
	case err == nil:
		return audit.Allowed, "", ""
	case errors.As(err, &refusal):
		return audit.Refused, refusal.Reason, refusal.Detail
	case errors.As(err, &failure):
		return audit.Failed, failure.Reason, failure.Detail
	case errors.Is(err, errCut):
		return audit.Refused, PolicyChanged, err.Error()
	case errors.Is(err, errIdle):
		return audit.Failed, IdleTooLong, err.Error()
	case errors.Is(err, errBytes):
		return audit.Failed, ByteLimit, err.Error()
	default:
		return audit.Failed, egress.ConnectFailed, err.Error()
	}
}
