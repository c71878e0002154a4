// Package egress connects to outside hosts. It resolves a name once and connects to exactly the addresses that the
// policy has checked. So a name that changes between the check and the connection (DNS rebinding) gains nothing.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
)

// The reasons why an allowed host is unreachable.
const (
	ResolveFailed   policy.Reason = "resolve_failed"
	ConnectFailed   policy.Reason = "connect_failed"
	UpstreamRefused policy.Reason = "upstream_refused"
)

// Failure says why an allowed host was unreachable.
type Failure struct {
	Reason policy.Reason
	Detail string
	Err    error
}

func (f *Failure) Error() string { return f.Detail }
func (f *Failure) Unwrap() error { return f.Err }

func fail(reason policy.Reason, err error, format string, args ...any) *Failure {
	return &Failure{Reason: reason, Detail: fmt.Sprintf(format, args...) + ": " + err.Error(), Err: err}
}

// Resolver is the part of net.Resolver that a Dialer uses.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

const (
	// dialTimeout limits a connection attempt, including the resolution of the name.
	dialTimeout = 15 * time.Second
	// maxAddresses limits the addresses of a name that are tried.
	maxAddresses = 4
	// headStart is the time before the next address is also tried (RFC 8305, section 5).
	headStart = 250 * time.Millisecond
)

// Dialer connects to hosts. The zero value resolves and connects as the machine does.
type Dialer struct {
	// A nil Resolver is Go's own, with the machine's name servers and hosts file.
	Resolver Resolver
	// Connect opens a connection to one address; nil means TCP.
	Connect func(ctx context.Context, to netip.AddrPort) (net.Conn, error)

	upstream atomic.Pointer[Upstream]
}

// SetUpstream sets the proxy for later connections; nil means none. The proxy resolves names, so its own
// policy must check the addresses.
func (d *Dialer) SetUpstream(u *Upstream) { d.upstream.Store(u) }

// Dial connects to an allowed host. It returns the host's address, or the zero Addr if only the upstream proxy knows
// it. Errors: *policy.Refusal if none of its addresses is allowed; *Failure.
func (d *Dialer) Dial(ctx context.Context, p *policy.Policy, host string, port uint16) (net.Conn, netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if u := d.upstream.Load(); u != nil {
		conn, err := u.tunnel(ctx, hostPort(host, port))
		return conn, netip.Addr{}, err
	}
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	allowed, refusal := permitted(p, addrs)
	if len(allowed) == 0 {
		return nil, netip.Addr{}, refusal
	}
	conn, addr, err := race(ctx, allowed, func(ctx context.Context, a netip.Addr) (net.Conn, error) {
		return d.connect(ctx, netip.AddrPortFrom(a, port))
	})
	if err != nil {
		return nil, netip.Addr{}, fail(ConnectFailed, err, "connect to %s port %d", host, port)
	}
	return conn, addr, nil
}

// permitted returns a few allowed addresses, alternating between both families. The refusal is that of the last refused
// address.
func permitted(p *policy.Policy, addrs []netip.Addr) ([]netip.Addr, *policy.Refusal) {
	var refusal *policy.Refusal
	var v6, v4 []netip.Addr
	for _, a := range addrs {
		switch r := p.Address(a); {
		case r != nil:
			refusal = r
		case a.Is4():
			v4 = append(v4, a)
		default:
			v6 = append(v6, a)
		}
	}
	var list []netip.Addr
	for i := range max(len(v4), len(v6)) {
		if i < len(v6) {
			list = append(list, v6[i])
		}
		if i < len(v4) {
			list = append(list, v4[i])
		}
	}
	return list[:min(len(list), maxAddresses)], refusal
}

func (d *Dialer) resolver() Resolver {
	if d.Resolver != nil {
		return d.Resolver
	}
	return &net.Resolver{PreferGo: true}
}

// resolve returns the addresses of both families. It resolves the name as absolute, without a search list.
func (d *Dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	var wg sync.WaitGroup
	var v4, v6 []netip.Addr
	var err4, err6 error
	wg.Go(func() { v4, err4 = d.resolver().LookupNetIP(ctx, "ip4", host+".") })
	wg.Go(func() { v6, err6 = d.resolver().LookupNetIP(ctx, "ip6", host+".") })
	wg.Wait()
	addrs := v6
	for _, a := range v4 {
		addrs = append(addrs, a.Unmap()) // net.Resolver may return IPv4 in 16 bytes
	}
	switch {
	case len(addrs) > 0:
		return addrs, nil
	case err4 != nil:
		return nil, fail(ResolveFailed, err4, "resolve %s", host)
	case err6 != nil:
		return nil, fail(ResolveFailed, err6, "resolve %s", host)
	default:
		return nil, fail(ResolveFailed, errors.New("it has no address"), "resolve %s", host)
	}
}

func (d *Dialer) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if d.Connect != nil {
		return d.Connect(ctx, to)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", to.String())
}

// race tries addresses in turn and returns the first connection. Each address has a head start over the next one. race
// closes the other connections before it returns.
func race(ctx context.Context, addrs []netip.Addr,
	dial func(context.Context, netip.Addr) (net.Conn, error)) (net.Conn, netip.Addr, error) {
	type result struct {
		conn net.Conn
		addr netip.Addr
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	results, running := make(chan result), 0
	defer func() {
		cancel()
		for range running {
			if r := <-results; r.conn != nil {
				_ = r.conn.Close() // another connection was faster
			}
		}
	}()
	next := time.NewTimer(0)
	defer next.Stop()
	var errs []error
	for len(addrs) > 0 || running > 0 {
		select {
		case <-next.C:
			if len(addrs) == 0 {
				continue
			}
			addr := addrs[0]
			addrs, running = addrs[1:], running+1
			go func() { // it ends with dial, which honours ctx
				conn, err := dial(ctx, addr)
				results <- result{conn, addr, err}
			}()
			next.Reset(headStart)
		case r := <-results:
			running--
			if r.err == nil {
				return r.conn, r.addr, nil
			}
			errs = append(errs, r.err)
			next.Reset(0)
		}
	}
	return nil, netip.Addr{}, errors.Join(errs...)
}

func hostPort(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
