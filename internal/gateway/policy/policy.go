// Package policy decides what a sandbox may reach: which names on which ports, and which addresses of these names. It
// needs no DNS, network or clock.
package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Reason is a code for why an attempt was refused or failed. The values are part of the log's format.
type Reason string

// The reasons of this package.
const (
	NoPolicy       Reason = "no_policy"
	InvalidHost    Reason = "invalid_host" // not a host name, for example an address
	HostNotAllowed Reason = "host_not_allowed"
	PortNotAllowed Reason = "port_not_allowed"
	AddressRefused Reason = "address_refused"
)

// Refusal says why an attempt is refused.
type Refusal struct {
	Reason Reason
	// Detail is the text for users: the request and what to do.
	Detail string
}

func (r *Refusal) Error() string { return r.Detail }

// Refuse returns a Refusal.
func Refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// Policy is an environment's compiled egress. It is immutable and safe for concurrent use. A nil Policy
// refuses everything.
type Policy struct {
	source  sandbox.Egress
	exact   map[string][]uint16
	suffix  map[string][]uint16 // by the part after "*"
	private []netip.Prefix
}

// Compile compiles a policy. Errors: Invalid, naming each field.
func Compile(e sandbox.Egress) (*Policy, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	p := &Policy{source: e, exact: make(map[string][]uint16), suffix: make(map[string][]uint16)}
	for _, r := range e.Allow {
		host, ports := strings.ToLower(r.Host), PortsOf(r)
		if suffix, ok := strings.CutPrefix(host, "*"); ok {
			p.suffix[suffix] = ports
		} else {
			p.exact[host] = ports
		}
	}
	for _, text := range e.PrivateCIDRs {
		prefix, err := sandbox.ParsePrivateCIDR(text)
		if err != nil {
			return nil, err // impossible after Validate
		}
		p.private = append(p.private, prefix)
	}
	return p, nil
}

// PortsOf returns the ports of a valid rule.
func PortsOf(r sandbox.EgressRule) []uint16 {
	ports := r.Ports
	if len(ports) == 0 {
		ports = sandbox.DefaultEgressPorts
	}
	list := make([]uint16, len(ports))
	for i, p := range ports {
		list[i] = uint16(p)
	}
	return list
}

// Host checks a name in canonical form, and a port. The most specific rule for the name decides: an exact one before a
// wildcard, a longer wildcard before a shorter one.
func (p *Policy) Host(host string, port uint16) *Refusal {
	if p == nil {
		return Refuse(NoPolicy, "the gateway has no policy yet, so nothing is allowed")
	}
	ports, ok := p.ports(host)
	switch {
	case !ok:
		return Refuse(HostNotAllowed, "%s is not allowed: add a rule for it to the environment's egress", host)
	case !slices.Contains(ports, port):
		return Refuse(PortNotAllowed, "port %d of %s is not allowed: its rule allows %s", port, host, joinPorts(ports))
	default:
		return nil
	}
}

func (p *Policy) ports(host string) ([]uint16, bool) {
	if ports, ok := p.exact[host]; ok {
		return ports, true
	}
	for rest := host; ; {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			return nil, false
		}
		if ports, ok := p.suffix[rest[i:]]; ok && i > 0 {
			return ports, true
		}
		rest = rest[i+1:]
	}
}

func joinPorts(ports []uint16) string {
	list := make([]string, len(ports))
	for i, p := range ports {
		list[i] = fmt.Sprint(p)
	}
	return strings.Join(list, ", ")
}

// MarshalJSON writes the source of the policy.
func (p *Policy) MarshalJSON() ([]byte, error) { return json.Marshal(p.source) }
