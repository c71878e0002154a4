package sandbox

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Egress is what sandboxes may reach in an environment with a restricted network.
type Egress struct {
	// Allow lists the allowed hosts. All others are refused.
	Allow []EgressRule `json:"allow" nullable:"false" doc:"The allowed hosts; all others are refused."`
	// PrivateCIDRs are private ranges that an allowed host may be in, such as that of a self-hosted model.
	// Other private addresses are refused, whatever name resolves to them.
	PrivateCIDRs []string `json:"private_cidrs,omitempty" doc:"Private ranges that an allowed host may be in, such as that of a self-hosted model. Other private addresses are refused."`
}

// EgressRule allows one host, or all subdomains of a domain.
type EgressRule struct {
	// Host is a name such as api.github.com, or *.example.com for all subdomains of example.com, without
	// example.com itself.
	Host string `json:"host" doc:"A name such as api.github.com, or *.example.com for all subdomains of example.com, without example.com itself."`
	// Ports are 1 to 65535; empty means DefaultEgressPorts.
	Ports []int `json:"ports,omitempty" doc:"Default: 443 and 80."`
}

// DefaultEgressPorts are the ports of a rule that names none.
var DefaultEgressPorts = []int{443, 80}

// DefaultEgress is the default of an environment: hosts to read code from, but no package registries, because
// installing a package runs its code.
func DefaultEgress() Egress {
	return Egress{Allow: []EgressRule{
		{Host: "github.com"}, {Host: "api.github.com"}, {Host: "raw.githubusercontent.com"}, {Host: "cdn.jsdelivr.net"},
	}}
}

// EgressRules returns what sandboxes may reach: nothing unless the network is restricted.
func (s EnvironmentSpec) EgressRules() Egress {
	switch {
	case s.Network != NetworkRestricted:
		return Egress{}
	case s.Egress == nil:
		return DefaultEgress()
	default:
		return *s.Egress
	}
}

// Equal reports whether e and other list the same rules in the same order.
func (e Egress) Equal(other Egress) bool {
	return slices.Equal(e.PrivateCIDRs, other.PrivateCIDRs) &&
		slices.EqualFunc(e.Allow, other.Allow, func(a, b EgressRule) bool {
			return a.Host == b.Host && slices.Equal(a.Ports, b.Ports)
		})
}

// Limits of an environment's egress. Each exact host takes an address of the sandbox's loopback range.
const (
	maxEgressRules = 1000
	maxEgressPorts = 32
	maxEgressCIDRs = 64
)

// Validate checks all rules. Errors: Invalid, naming each field below egress.
func (e Egress) Validate() error { return InvalidFields("egress", e.fields()) }

func (e Egress) fields() []Field {
	var f []Field
	bad := func(name, problem string, args ...any) { f = append(f, Field{name, fmt.Sprintf(problem, args...)}) }
	if len(e.Allow) > maxEgressRules {
		bad("egress.allow", "must have at most %d rules, not %d", maxEgressRules, len(e.Allow))
	}
	seen := make(map[string]int)
	for i, r := range e.Allow {
		name := fmt.Sprintf("egress.allow[%d]", i)
		if problem := hostProblem(r.Host); problem != "" {
			bad(name+".host", "%s, not %q", problem, r.Host)
		} else if first, ok := seen[strings.ToLower(r.Host)]; ok {
			bad(name+".host", "must appear once, with all its ports in one rule; %q repeats the host %q", r.Host,
				e.Allow[first].Host)
		} else {
			seen[strings.ToLower(r.Host)] = i
		}
		f = append(f, portFields(name+".ports", r.Ports)...)
	}
	if len(e.PrivateCIDRs) > maxEgressCIDRs {
		bad("egress.private_cidrs", "must have at most %d ranges, not %d", maxEgressCIDRs, len(e.PrivateCIDRs))
	}
	for i, text := range e.PrivateCIDRs {
		if _, err := ParsePrivateCIDR(text); err != nil {
			bad(fmt.Sprintf("egress.private_cidrs[%d]", i), "%s", err.Error())
		}
	}
	return f
}

// unsupportedOnCloudflare returns the fields that Cloudflare's outbound interception cannot provide. It handles
// only HTTP on port 80 and HTTPS on port 443, and a Worker connects only to public addresses
// (developers.cloudflare.com/containers/configuration/outbound-traffic, read 2026-11).
func (e Egress) unsupportedOnCloudflare() []Field {
	var f []Field
	for i, r := range e.Allow {
		for j, p := range r.Ports {
			if !slices.Contains(DefaultEgressPorts, p) {
				f = append(f, Field{fmt.Sprintf("egress.allow[%d].ports[%d]", i, j), fmt.Sprintf(
					"must be 443 (HTTPS) or 80 (HTTP) on Cloudflare, not %d: "+
						"a restricted sandbox there can use no other port and no raw TCP", p)})
			}
		}
	}
	if len(e.PrivateCIDRs) > 0 {
		f = append(f, Field{"egress.private_cidrs", "must not be set on Cloudflare, which cannot reach private ranges"})
	}
	return f
}

func portFields(name string, ports []int) []Field {
	var f []Field
	if len(ports) > maxEgressPorts {
		f = append(f, Field{name, fmt.Sprintf("must have at most %d ports, not %d", maxEgressPorts, len(ports))})
	}
	for i, p := range ports {
		switch {
		case p < 1 || p > 65535:
			f = append(f, Field{fmt.Sprintf("%s[%d]", name, i), fmt.Sprintf("must be between 1 and 65535, not %d", p)})
		case slices.Contains(ports[:i], p):
			f = append(f, Field{fmt.Sprintf("%s[%d]", name, i), fmt.Sprintf("duplicates %d", p)})
		}
	}
	return f
}

// hostProblem returns what is wrong with the host of a rule, "" if nothing is.
func hostProblem(host string) string {
	name, wildcard := strings.CutPrefix(host, "*.")
	canonical, err := CanonicalHost(name)
	switch {
	case strings.Contains(name, "*"):
		return "may contain a wildcard only as the whole first label, as in *.example.com"
	case err != nil:
		return err.Error()
	case canonical != strings.ToLower(name):
		return "must not end with a dot"
	case wildcard && !strings.Contains(canonical, "."):
		return "must have at least two labels after the wildcard, as in *.example.com: a wildcard for a whole " +
			"top-level domain restricts nothing"
	default:
		return ""
	}
}

// CanonicalHost returns the form in which names are compared: lower case, without the root's dot. It rejects
// everything that any parser could read as an address, so that only a resolver decides what the result means.
func CanonicalHost(host string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "" || len(name) > 253 {
		return "", fmt.Errorf("must be a host name of 1 to 253 characters")
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if err := checkLabel(label); err != nil {
			return "", err
		}
	}
	// The URL standard's rule: a name whose last label is a number is an IPv4 address, in one of many forms.
	last := labels[len(labels)-1]
	if strings.Trim(last, "0123456789") == "" ||
		strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "" {
		return "", fmt.Errorf(
			"must be a host name, not an address: rules match names, so give the address a name in your DNS")
	}
	return name, nil
}

func checkLabel(label string) error {
	switch {
	case label == "" || len(label) > 63:
		return fmt.Errorf("must be a host name whose labels have 1 to 63 characters")
	case strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return checkCharacters(label)
	case label[0] == '-' || label[len(label)-1] == '-':
		return fmt.Errorf("must be a host name whose labels neither begin nor end with '-'")
	default:
		return nil
	}
}

func checkCharacters(label string) error {
	for _, r := range label {
		switch {
		case r >= 0x80:
			return fmt.Errorf("must be a host name in ASCII: write an international name in its xn-- form")
		case !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_", r):
			return fmt.Errorf("must be a host name of letters, digits, '-', '_' and '.', without %s", strconv.QuoteRune(r))
		}
	}
	return nil
}

// privateRanges contain all valid private CIDRs: RFC 1918, RFC 6598 (shared by carriers, used by overlay
// networks) and RFC 4193. Loopback and link-local addresses can never be allowed.
var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"),
}

// ParsePrivateCIDR parses a range of private addresses.
func ParsePrivateCIDR(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("must be a range such as 10.20.0.0/16, not %q", text)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("must start at the first address of its range (%s), not %q", p.Masked(), text)
	}
	for _, r := range privateRanges {
		if r.Contains(p.Addr()) && p.Bits() >= r.Bits() {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("must be within 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10 or "+
		"fc00::/7, not %q: public addresses need no range; loopback, link-local and metadata addresses are never allowed",
		text)
}
