// Package networks creates and removes the bridge of each sandbox with network full.
package networks

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A sandbox with network full has its own bridge, with a subnet from a configured pool. The engine's default pools are
// used up after some thirty networks. All subnets share one prefix, so the host's operator writes firewall rules only
// once. Engines isolate their bridges from each other.

// DefaultPool provides the subnets of sandboxes with network full: 4096, in a part of 10.0.0.0/8 that neither engines
// nor common routers assign by default.
var DefaultPool = netip.MustParsePrefix("10.213.0.0/16")

// The size of one subnet, and the largest pool.
const (
	// subnetBits leaves 13 addresses besides the bridge's. A /29 is the smallest subnet that all engines accept.
	subnetBits  = 28
	maxPoolBits = 12 // 65,536 subnets
)

// Networks are the networks of sandboxes on an engine.
type Networks struct {
	engine *engine.Engine
	pool   netip.Prefix // of subnets
	// creating holds an element while this program creates a network.
	creating chan struct{}
}

// New returns the networks of an engine, with subnets from pool, as CheckPool returned it.
func New(e *engine.Engine, pool netip.Prefix) *Networks {
	return &Networks{engine: e, pool: pool, creating: make(chan struct{}, 1)}
}

// subnetTries limits the attempts to find a subnet. Another caller, or a network that the engine does not list, may
// have taken it.
const subnetTries = 64

// createdElsewherePause is the pause before the next attempt while another caller creates the same network.
const createdElsewherePause = 200 * time.Millisecond

// ParsePool parses a pool for Config. Errors: Invalid.
func ParsePool(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, sandbox.Errorf(sandbox.Invalid, "the network pool must be an IPv4 range, such as %s, not %q",
			DefaultPool, text)
	}
	return CheckPool(p)
}

// CheckPool returns the pool to use: DefaultPool for the zero value. Errors: Invalid.
func CheckPool(p netip.Prefix) (netip.Prefix, error) {
	if p == (netip.Prefix{}) {
		return DefaultPool, nil
	}
	if !p.IsValid() || !p.Addr().Is4() || p.Bits() < maxPoolBits || p.Bits() > subnetBits {
		return p, sandbox.Errorf(sandbox.Invalid, "the network pool must be an IPv4 range of /%d to /%d, such as %s, not %s",
			maxPoolBits, subnetBits, DefaultPool, p)
	}
	return p.Masked(), nil
}

// Open finds or creates the network of a sandbox, and returns its name. The engine refuses a subnet that overlaps
// another, so callers on any machine may try concurrently. This program creates one network at a time: the engine does
// so anyway, and before 25.0 it can give one name to two concurrent callers. Errors: CapacityExceeded if the pool is
// used up.
func (ns *Networks) Open(ctx context.Context, spec driver.SandboxSpec) (string, error) {
	h := spec.Handle
	select {
	case ns.creating <- struct{}{}:
		defer func() { <-ns.creating }()
	case <-ctx.Done():
		return "", sandbox.Errorf(sandbox.Unavailable, "docker: sandbox %s: wait for the creation of other networks: %w",
			h.SandboxID, ctx.Err())
	}
	name, labels := objects.NetworkName(h), objects.WithLeaseLabels(objects.HandleLabels(h, objects.RoleNetwork), spec)
	refused := make(map[netip.Prefix]error)
	var last error
	for range subnetTries {
		all, err := engine.Fetch(ctx, ns.engine, engine.Read("list networks for", name),
			func(ctx context.Context) ([]dockerapi.NetworkSummary, error) {
				return ns.engine.API.NetworkList(ctx, dockerapi.NetworkListOptions{})
			})
		if err != nil {
			return "", err
		}
		for _, n := range all {
			if n.Name == name {
				return name, ns.engine.CheckLabels("network", name, n.Labels, labels)
			}
		}
		subnet, ok := freeSubnet(ns.pool, taken(all, refused))
		if !ok {
			return "", ns.usedUp(h, refused)
		}
		last = ns.create(ctx, name, subnet, labels)
		switch {
		case last == nil:
			return name, nil
		case cerrdefs.IsPermissionDenied(last): // another caller was faster, or the engine uses the subnet for something else
			refused[subnet] = last
		case sandbox.CodeOf(last) != sandbox.Conflict:
			return "", last
		default: // another caller creates this network: it is listed soon
			select {
			case <-time.After(createdElsewherePause):
			case <-ctx.Done():
				return "", createdElsewhere(h, last, ctx.Err())
			}
		}
	}
	if sandbox.CodeOf(last) == sandbox.Conflict {
		return "", createdElsewhere(h, last)
	}
	return "", ns.usedUp(h, refused)
}

// usedUp is the error for a pool without a free subnet. refused has the engine's answers about subnets that no listed
// network uses.
func (ns *Networks) usedUp(h driver.Handle, refused map[netip.Prefix]error) error {
	err := sandbox.Errorf(sandbox.CapacityExceeded, "docker: sandbox %s: the pool %s has no free subnet on engine "+
		"%s; it has room for %d sandboxes with network full; end some, or set a larger pool (sandbox serve "+
		"--network-pool, or docker.network_pool of the provider)",
		h.SandboxID, ns.pool, h.Instance, subnetsOf(ns.pool))
	if len(refused) == 0 {
		return err
	}
	return sandbox.Errorf(sandbox.CapacityExceeded, "%w: %w", err, errors.Join(slices.Collect(maps.Values(refused))...))
}

// createdElsewhere is the error for a network that another caller creates and the engine does not list in time.
func createdElsewhere(h driver.Handle, causes ...error) error {
	return sandbox.Errorf(sandbox.Unavailable, "docker: sandbox %s: another caller creates its network, which the engine "+
		"does not list yet (retry): %w", h.SandboxID, errors.Join(causes...))
}

func (ns *Networks) create(ctx context.Context, name string, subnet netip.Prefix,
	labels map[string]string) error {
	noIPv6 := false // a public address would be reachable from the sandbox
	r := engine.Change("create network", name, sandbox.ReasonCreationFailed)
	return ns.engine.Do(ctx, r, func(ctx context.Context) error {
		_, err := ns.engine.API.NetworkCreate(ctx, name, dockerapi.NetworkCreateOptions{
			Driver: "bridge", EnableIPv6: &noIPv6, Labels: labels,
			IPAM: &dockerapi.IPAM{Driver: "default", Config: []dockerapi.IPAMConfig{{Subnet: subnet.String()}}},
			// No other container belongs on this network. The option also isolates one that is attached anyway.
			Options: map[string]string{"com.docker.network.bridge.enable_icc": "false"},
		})
		return err
	})
}

// taken lists the subnets of networks, and the refused ones.
func taken(all []dockerapi.NetworkSummary, refused map[netip.Prefix]error) []netip.Prefix {
	var used []netip.Prefix
	for _, n := range all {
		for _, c := range n.IPAM.Config {
			if p, err := netip.ParsePrefix(c.Subnet); err == nil {
				used = append(used, p.Masked())
			}
		}
	}
	for p := range refused {
		used = append(used, p)
	}
	return used
}

func subnetsOf(pool netip.Prefix) int { return 1 << (subnetBits - pool.Bits()) }

// freeSubnet returns a random subnet of the pool that overlaps no used one. Concurrent callers rarely get the same one.
func freeSubnet(pool netip.Prefix, used []netip.Prefix) (netip.Prefix, bool) {
	n := subnetsOf(pool)
	busy := make([]bool, n)
	for _, u := range used {
		if !u.Overlaps(pool) {
			continue
		}
		first, count := 0, n // u contains the whole pool
		if u.Bits() > pool.Bits() {
			first, count = int(number(u.Addr())-number(pool.Addr()))>>(32-subnetBits), max(1, 1<<max(0, subnetBits-u.Bits()))
		}
		for i := first; i < first+count; i++ {
			busy[i] = true
		}
	}
	start := rand.IntN(n)
	for i := range n {
		if at := (start + i) % n; !busy[at] {
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], number(pool.Addr())+uint32(at)<<(32-subnetBits))
			return netip.PrefixFrom(netip.AddrFrom4(b), subnetBits), true
		}
	}
	return netip.Prefix{}, false
}

func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// List lists networks by label. Two concurrent programs may have created two networks for one sandbox.
func (ns *Networks) List(ctx context.Context, labels map[string]string) ([]dockerapi.NetworkSummary, error) {
	return engine.Fetch(ctx, ns.engine, engine.Read("list networks of ledger", labels[objects.LabelLedger]),
		func(ctx context.Context) ([]dockerapi.NetworkSummary, error) {
			return ns.engine.API.NetworkList(ctx, dockerapi.NetworkListOptions{Filters: objects.Filter(labels)})
		})
}

// Remove removes the networks with all of these labels, and returns nil once they are gone.
func (ns *Networks) Remove(ctx context.Context, labels map[string]string) error {
	found, err := ns.List(ctx, labels)
	if err != nil {
		return err
	}
	for _, n := range found {
		// A network stays in use for a moment after its container is gone.
		unused := "nothing uses network " + n.Name
		err := engine.Await(ctx, unused, engine.RemovalLimit, func(ctx context.Context) (bool, error) {
			err := ns.TryRemove(ctx, n)
			if sandbox.CodeOf(err) == sandbox.Conflict {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TryRemove removes a network. An absent network is success. Errors: Conflict while it is in use.
func (ns *Networks) TryRemove(ctx context.Context, n dockerapi.NetworkSummary) error {
	r := engine.Change("remove network", n.Name, sandbox.ReasonRemovalFailed)
	r.Late = true
	err := ns.engine.Do(ctx, r, func(ctx context.Context) error { return ns.engine.API.NetworkRemove(ctx, n.ID) })
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return nil
	case cerrdefs.IsPermissionDenied(err): // the engine's code for a network in use
		return sandbox.Errorf(sandbox.Conflict, "docker: network %s is in use: %w", n.Name, err)
	}
	return err
}
