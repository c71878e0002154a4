// Package policy decides what a sandbox may reach: which names on which ports, and which of the
// addresses that a name resolves to. It needs no DNS, no network and no clock.
package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Reason says for programs why something was refused or failed. The values are part of the log's format.
type Reason string

// The reasons of this package.
const (
	NoPolicy       Reason = "no_policy"
	InvalidHost    Reason = "invalid_host" // no host name; addresses included
	HostNotAllowed Reason = "host_not_allowed"
	PortNotAllowed Reason = "port_not_allowed"
	AddressRefused Reason = "address_refused"
)

// Refusal is why something is refused.
type Refusal struct {
	Reason Reason
	// Detail is for people. It says what was asked for and what to do.
	Detail string
}

func (r *Refusal) Error() string { return r.Detail }

// Refuse makes a Refusal.
func Refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// Policy is an environment's egress in the form that is asked. It does not change, and is safe for
// concurrent use. A nil Policy refuses everything.
type Policy struct {
	source  sandbox.Egress
	exact   map[string][]uint16
	suffix  map[string][]uint16 // by what follows the "*"
	private []netip.Prefix
}

// Compile makes a policy. Errors: Invalid, naming each field.
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
			return nil, err // Validate has seen to it
		}
		p.private = append(p.private, prefix)
	}
	return p, nil
}

// PortsOf returns the ports that a valid rule allows.
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

// Host checks a name, in its canonical form, and a port. The most particular rule for the name
// decides: an exact one before a wildcard, a longer wildcard before a shorter one.
func (p *Policy) Host(host string, port uint16) *Refusal {
	if p == nil {
		return Refuse(NoPolicy, "the gateway has no policy yet: nothing is allowed")
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

// MarshalJSON writes what the policy was made of.
func (p *Policy) MarshalJSON() ([]byte, error) { return json.Marshal(p.source) }
