package sandbox

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Egress lists what sandboxes may reach in an environment with a restricted network.
type Egress struct {
	// Allow lists the allowed hosts. All others are refused.
	Allow []EgressRule `json:"allow" nullable:"false" doc:"The allowed hosts; all others are refused."`
	// PrivateCIDRs are private ranges that an allowed host may be in, such as that of a self-hosted model.
	// Other private addresses are refused, whatever name resolves to them.
	PrivateCIDRs []string `json:"private_cidrs,omitempty" doc:"Private ranges that an allowed host may be in, such as that of a self-hosted model. Other private addresses are refused."`
	// Credentials are credentials by host. The gateway adds them to requests to allowed hosts.
	Credentials map[string]EgressCredential `json:"credentials,omitempty" doc:"Credentials that the gateway adds to requests to allowed hosts by TLS, by host, such as github.com. No sandbox gets them. Docker only."`
	// Authorities are PEM certificates of authorities that hosts with a credential may use, in addition to the public
	// ones.
	Authorities string `json:"authorities,omitempty" doc:"Certificates of authorities, in PEM, that hosts with a credential may have theirs from, beside the public ones, such as that of a self-hosted Git server. At most 64 KiB. Docker only."`
}

// EgressCredential is a credential that the gateway puts into a header of each request to a host. It replaces the
// sandbox's value. The gateway itself terminates the TLS of these connections.
type EgressCredential struct {
	// Secret names the secret. No sandbox gets it.
	Secret string `json:"secret" doc:"Name of the secret. No sandbox gets this secret."`
	// Header is the name of the header; empty means Authorization.
	Header string `json:"header,omitempty" doc:"Header that gets the credential. Default: Authorization."`
	// Scheme is the form of the header's value; empty means bearer in Authorization and raw in another header.
	Scheme CredentialScheme `json:"scheme,omitempty" enum:"bearer,basic,raw" doc:"bearer: the word Bearer and the secret. basic: username and the secret as the password, as git needs it. raw: the secret alone. Default: bearer in Authorization, raw in another header."`
	// Username is the user of the scheme basic.
	Username string `json:"username,omitempty" doc:"User of the scheme basic, such as x-access-token for a token of GitHub."`
}

// CredentialScheme is the form of a credential in a header.
type CredentialScheme string

// The schemes.
const (
	CredentialBearer CredentialScheme = "bearer"
	CredentialBasic  CredentialScheme = "basic"
	CredentialRaw    CredentialScheme = "raw"
)

// authorization is the default header of a credential.
const authorization = "Authorization"

// WithDefaults returns the credential with all defaults filled in.
func (c EgressCredential) WithDefaults() EgressCredential {
	orDefault(&c.Header, authorization)
	if c.Scheme == "" && c.Header != authorization {
		c.Scheme = CredentialRaw
	}
	orDefault(&c.Scheme, CredentialBearer)
	return c
}

// Value returns the header's value for a secret. It ignores space around the secret, such as the line break at the end
// of a file.
func (c EgressCredential) Value(secret Secret) Secret {
	text := strings.TrimSpace(string(secret))
	switch c = c.WithDefaults(); c.Scheme {
	case CredentialBasic:
		text = "Basic " + base64.StdEncoding.EncodeToString([]byte(c.Username+":"+text))
	case CredentialBearer:
		text = "Bearer " + text
	}
	return Secret(text)
}

// forbiddenHeaders belong to the connection or select the requested object: they must not hold a credential.
var forbiddenHeaders = []string{
	"Connection", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// credentialFields returns the problems of the credentials.
func (e Egress) credentialFields() (f []Field) {
	if len(e.Credentials) > maxEgressCredentials {
		f = append(f, Field{"egress.credentials",
			fmt.Sprintf("must be at most %d, not %d", maxEgressCredentials, len(e.Credentials))})
	}
	if e.Authorities != "" {
		if len(e.Authorities) > maxAuthoritiesBytes || !isPEM(e.Authorities) {
			f = append(f, Field{"egress.authorities",
				fmt.Sprintf("must be certificates in PEM, of at most %d bytes together", maxAuthoritiesBytes)})
		} else if len(e.Credentials) == 0 {
			f = append(f, Field{"egress.authorities", "must not be set without egress.credentials, whose hosts they are for"})
		}
	}
	for _, host := range slices.Sorted(maps.Keys(e.Credentials)) {
		name, c := fmt.Sprintf("egress.credentials[%q]", host), e.Credentials[host].WithDefaults()
		bad := func(field, problem string, args ...any) {
			f = append(f, Field{name + field, fmt.Sprintf(problem, args...)})
		}
		canonical, err := CanonicalHost(host)
		switch {
		case err != nil:
			bad("", "%s", err.Error())
		case canonical != host:
			bad("", "must be written as %s", canonical)
		case !e.allowsTLS(host):
			bad("", "must be a host that egress.allow lets sandboxes reach on a port other than 80, such as %s:443", host)
		}
		if key := textproto.CanonicalMIMEHeaderKey(c.Header); !headerName().MatchString(c.Header) ||
			slices.Contains(forbiddenHeaders, key) {
			bad(".header", "must be a header such as Authorization or Private-Token, not %q", c.Header)
		}
		switch c.Scheme {
		case CredentialBearer, CredentialBasic, CredentialRaw:
		default:
			bad(".scheme", "must be bearer, basic or raw, not %q", c.Scheme)
		}
		if isBasic := c.Scheme == CredentialBasic; isBasic != (c.Username != "") {
			bad(".username", "must be set with the scheme basic, and only then")
		}
		misplaced := func(r rune) bool { return r < ' ' || r == ':' || r == 0x7f }
		if strings.ContainsFunc(c.Username, misplaced) || len(c.Username) > 255 {
			bad(".username", "must be at most 255 characters without ':' and control characters")
		}
	}
	return f
}

// isPEM reports whether a text consists of PEM certificates and no other PEM block. The gateway parses them.
func isPEM(text string) bool {
	begin, end := strings.Count(text, "-----BEGIN CERTIFICATE-----"), strings.Count(text, "-----END CERTIFICATE-----")
	return begin > 0 && begin == end && strings.Count(text, "-----BEGIN ") == begin
}

// allowsTLS reports whether a rule allows a host on a port that may speak TLS.
func (e Egress) allowsTLS(host string) bool {
	return slices.ContainsFunc(e.Allow, func(r EgressRule) bool {
		domain, isWildcard := strings.CutPrefix(strings.ToLower(r.Host), "*")
		if isWildcard && !strings.HasSuffix(host, domain) || !isWildcard && host != domain {
			return false
		}
		return len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(p int) bool { return p != 80 })
	})
}

var headerName = pattern(`^[A-Za-z0-9!#$%&'*+.^_|~-]{1,64}$`)

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

// EgressRules returns the hosts that sandboxes may reach: none unless the network is restricted.
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
	return slices.Equal(e.PrivateCIDRs, other.PrivateCIDRs) && maps.Equal(e.Credentials, other.Credentials) &&
		e.Authorities == other.Authorities &&
		slices.EqualFunc(e.Allow, other.Allow, func(a, b EgressRule) bool {
			return a.Host == b.Host && slices.Equal(a.Ports, b.Ports)
		})
}

// Limits of an environment's egress. Each exact host takes an address of the sandbox's loopback range.
const (
	maxEgressRules = 1000
	maxEgressPorts = 32
	maxEgressCIDRs = 64
	// maxEgressCredentials equals the most secrets that an environment may have.
	maxEgressCredentials = MaxSecrets
	maxAuthoritiesBytes  = 64 << 10
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
			problem := "must have one spelling: %q is the host %q again"
			if r.Host == e.Allow[first].Host {
				problem = "must appear once, with all its ports in one rule; %q repeats the host %q"
			}
			bad(name+".host", problem, r.Host, e.Allow[first].Host)
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
	return append(f, e.credentialFields()...)
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
	if len(e.Credentials) > 0 {
		f = append(f, Field{"egress.credentials", "must not be set on Cloudflare: credentials are added on Docker only"})
	}
	if e.Authorities != "" {
		f = append(f, Field{"egress.authorities", "must not be set on Cloudflare, which adds no credentials"})
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

// hostProblem returns the problem of a rule's host, "" if it has none.
func hostProblem(host string) string {
	if scheme, rest, ok := strings.Cut(host, "://"); ok {
		bare, _, _ := strings.Cut(rest, "/")
		return fmt.Sprintf("must be a host, not a URL: write %q, without %s://", bare, scheme)
	}
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

// CanonicalHost returns the form in which names are compared: lower case, without the final dot. It rejects everything
// that a parser could read as an address, so that only a resolver decides what the result means.
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

// privateRanges contain all valid private CIDRs: RFC 1918, RFC 6598 (carriers and overlay networks) and RFC 4193.
// Loopback and link-local addresses can never be allowed.
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

// GatewayPosition is the position of a line in a log of an environment's gateway. Positions grow with the run of the
// gateway and, within a run, with the line.
type GatewayPosition struct {
	Run int64
	// Line numbers the lines of a run from 1 without gaps. A missing number is a line that was dropped before
	// it was read.
	Line int64
}

// After reports whether p comes after q.
func (p GatewayPosition) After(q GatewayPosition) bool {
	return p.Run > q.Run || p.Run == q.Run && p.Line > q.Line
}

// EgressKind is the kind of a line in a gateway's log.
type EgressKind string

// The kinds. An allowed attempt has an opened line and later a closed line with the same id. A refused or
// failed attempt has only a closed line.
const (
	EgressOpened EgressKind = "opened"
	EgressClosed EgressKind = "closed"
	// EgressDropped counts lines of a sandbox that the gateway did not log.
	EgressDropped EgressKind = "dropped"
)

// EgressVerdict is the result of an attempt.
type EgressVerdict string

// The verdicts.
const (
	EgressAllowed EgressVerdict = "allowed"
	EgressRefused EgressVerdict = "refused" // by the environment's rules, or because the protocol or name did not match
	EgressFailed  EgressVerdict = "failed"  // allowed, but the host could not be reached
)

// EgressRecord is one line of a gateway's log.
type EgressRecord struct {
	GatewayPosition
	Kind      EgressKind
	SandboxID string
	Verdict   EgressVerdict
	EgressAttempt
	// Count is the number of dropped lines.
	Count int64
}

// EgressSource names the sandbox of an event that the service read after the sandbox's last event. The event
// then belongs to the environment.
type EgressSource struct {
	SandboxID  string `json:"sandbox_id"`
	LeaseID    string `json:"lease_id,omitempty"`
	Generation int64  `json:"generation,omitempty"`
}

// EgressAttempt is the data of the events egress.allowed, closed, denied and failed.
type EgressAttempt struct {
	// Attempt is its id. An egress.closed has the id of its egress.allowed.
	Attempt  string    `json:"attempt"`
	At       time.Time `json:"at"` // by the gateway's clock
	AgentDID string    `json:"agent_did,omitempty"`
	Protocol string    `json:"protocol,omitempty"`
	Host     string    `json:"host"` // as the sandbox wrote it, if it is not a valid name
	Port     int       `json:"port,omitempty"`
	Address  string    `json:"address,omitempty"` // the address connected to
	Reason   string    `json:"reason,omitempty"`
	Detail   string    `json:"detail,omitempty"`
	// Ended: the figures below are final. If false, an egress.closed follows this egress.allowed.
	Ended         bool  `json:"ended"`
	SentBytes     int64 `json:"sent_bytes"`     // from the sandbox
	ReceivedBytes int64 `json:"received_bytes"` // to the sandbox
	DurationMS    int64 `json:"duration_ms"`
	// Of is set in events of the environment.
	Of *EgressSource `json:"of,omitempty"`
}

// EgressSummary is the data of egress.summary: it sums the attempts of a sandbox that made too many for one
// event each.
type EgressSummary struct {
	Allowed int64 `json:"allowed"` // allowed attempts
	Closed  int64 `json:"closed"`  // allowed attempts, of these or earlier ones, that ended
	Denied  int64 `json:"denied"`
	Failed  int64 `json:"failed"`
	// Unlogged is the number of lines that the gateway itself dropped, at most two for each attempt.
	Unlogged      int64     `json:"unlogged"`
	SentBytes     int64     `json:"sent_bytes"`
	ReceivedBytes int64     `json:"received_bytes"`
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	// Of is set in events of the environment.
	Of *EgressSource `json:"of,omitempty"`
}

// EgressLost is the data of egress.lost, an event of an environment: lines of its gateway's log were removed
// before the service read them.
type EgressLost struct {
	Lines int64 `json:"lines"`
}
