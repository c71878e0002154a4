package policy_test

import (
	"net/netip"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func compile(t testing.TB, e sandbox.Egress) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(e)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func reasonOf(r *policy.Refusal) policy.Reason {
	if r == nil {
		return ""
	}
	return r.Reason
}

func TestOnlyNamedHostsAndPortsAreAllowed(t *testing.T) {
	t.Parallel()
	p := compile(t, sandbox.Egress{Allow: []sandbox.EgressRule{
		{Host: "GitHub.com"},
		{Host: "model.internal", Ports: []int{8080}},
		{Host: "*.example.com"},
		{Host: "*.deep.example.com", Ports: []int{8443}},
		{Host: "api.deep.example.com", Ports: []int{9443}},
	}})
	for _, row := range []struct {
		host string
		port uint16
		want policy.Reason
	}{
		{"github.com", 443, ""},
		{"github.com", 80, ""},
		{"github.com", 22, policy.PortNotAllowed},
		{"api.github.com", 443, policy.HostNotAllowed},
		{"evilgithub.com", 443, policy.HostNotAllowed},
		{"github.com.evil.com", 443, policy.HostNotAllowed},
		{"github.co", 443, policy.HostNotAllowed},
		{"model.internal", 8080, ""},
		{"model.internal", 443, policy.PortNotAllowed},
		{"example.com", 443, policy.HostNotAllowed},
		{"a.example.com", 443, ""},
		{"a.b.example.com", 443, ""},
		{"aexample.com", 443, policy.HostNotAllowed},
		{"a.example.com.evil.net", 443, policy.HostNotAllowed},
		{"x.deep.example.com", 8443, ""},
		{"x.deep.example.com", 443, policy.PortNotAllowed},
		{"deep.example.com", 443, ""},
		{"api.deep.example.com", 9443, ""},
		{"api.deep.example.com", 8443, policy.PortNotAllowed},
		{"com", 443, policy.HostNotAllowed},
		{"", 443, policy.HostNotAllowed},
	} {
		if got := reasonOf(p.Host(row.host, row.port)); got != row.want {
			t.Errorf("%s:%d: %q, want %q", row.host, row.port, got, row.want)
		}
	}
}

func TestWithoutAPolicyNothingIsAllowed(t *testing.T) {
	t.Parallel()
	var p *policy.Policy
	if got := reasonOf(p.Host("github.com", 443)); got != policy.NoPolicy {
		t.Errorf("a host: %q", got)
	}
	if got := reasonOf(p.Address(netip.MustParseAddr("140.82.121.3"))); got != policy.NoPolicy {
		t.Errorf("an address: %q", got)
	}
	if got := reasonOf(compile(t, sandbox.Egress{}).Host("github.com", 443)); got != policy.HostNotAllowed {
		t.Errorf("an empty policy: %q", got)
	}
}

func TestOnlyPublicAddressesAreReached(t *testing.T) {
	t.Parallel()
	p := compile(t, sandbox.DefaultEgress())
	for _, text := range []string{
		"140.82.121.3", "1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.0",
		"169.253.255.255", "192.0.1.1", "198.17.255.255", "198.20.0.1", "223.255.255.255", "11.0.0.0", "126.255.255.255",
		"128.0.0.0", "2606:4700:4700::1111", "2a00:1450:4001::1", "2003::1",
	} {
		if r := p.Address(netip.MustParseAddr(text)); r != nil {
			t.Errorf("%s is refused: %s", text, r)
		}
	}
	for _, text := range refused {
		if r := p.Address(netip.MustParseAddr(text)); reasonOf(r) != policy.AddressRefused {
			t.Errorf("%s: %v", text, r)
		}
	}
	if p.Address(netip.Addr{}) == nil {
		t.Error("no address at all is allowed")
	}
}

// refused has the edges of every range, and every form of IPv6 that can hide an IPv4 address.
var refused = []string{
	"0.0.0.0", "0.1.2.3", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1", "127.255.255.255",
	"169.254.0.0", "169.254.169.254", "169.254.170.2", "172.16.0.0", "172.17.0.1", "172.31.255.255",
	"192.0.0.8", "192.0.0.192",
	"192.0.2.1", "192.88.99.1", "192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255", "198.51.100.1",
	"203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16", "100.100.100.200",
	"::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:8.8.8.8", "::127.0.0.1", "::ffff:0:127.0.0.1",
	"64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:53aa:64c::1", "2001:10::1",
	"2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254",
	"fdff::1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "ff02::1", "ffff::1", "1fff::1", "4000::1",
}

func TestAPrivateRangeIsReachedOnlyWhereItIsNamed(t *testing.T) {
	t.Parallel()
	p := compile(t, sandbox.Egress{PrivateCIDRs: []string{"10.20.0.0/16", "100.64.0.0/10", "fd00::/8"}})
	for text, want := range map[string]policy.Reason{
		"10.20.0.1": "", "10.20.255.255": "", "10.21.0.1": policy.AddressRefused, "192.168.0.1": policy.AddressRefused,
		"100.64.3.4": "", "fd12::1": "", "fc00::1": policy.AddressRefused,
		"::ffff:10.20.0.1": policy.AddressRefused, "64:ff9b::10.20.0.1": policy.AddressRefused,
		"2002:a14:1::": policy.AddressRefused,
		"127.0.0.1":    policy.AddressRefused, "169.254.169.254": policy.AddressRefused,
		// Metadata addresses stay closed within an allowed range.
		"100.100.100.200": policy.AddressRefused, "fd00:ec2::254": policy.AddressRefused,
		"fd20:ce::254": policy.AddressRefused,
	} {
		if got := reasonOf(p.Address(netip.MustParseAddr(text))); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// FuzzAddress compares with the standard library, and hides each refused IPv4 address in every form of IPv6.
func FuzzAddress(f *testing.F) {
	for _, text := range append([]string{"8.8.8.8", "2606:4700::1"}, refused...) {
		f.Add(text)
	}
	p, err := policy.Compile(sandbox.Egress{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return
		}
		if r := p.Address(a); r == nil && (!a.IsGlobalUnicast() || a.IsPrivate() || a.Is4In6() || a.Zone() != "") {
			t.Errorf("%s is reached", a)
		}
		if !a.Is4() {
			return
		}
		for form, hidden := range hide(a.As4()) {
			if r := p.Address(hidden); r == nil {
				t.Errorf("%s is reached as %s (%s)", a, hidden, form)
			}
		}
	})
}

func hide(v4 [4]byte) map[string]netip.Addr {
	embed := func(prefix string, at int) netip.Addr {
		b := netip.MustParseAddr(prefix).As16()
		copy(b[at:], v4[:])
		return netip.AddrFrom16(b)
	}
	teredo := netip.MustParseAddr("2001::").As16()
	for i, b := range v4 {
		teredo[12+i] = ^b
	}
	return map[string]netip.Addr{
		"mapped": embed("::ffff:0:0", 12), "compatible": embed("::", 12), "translated": embed("::ffff:0:0:0", 12),
		"NAT64": embed("64:ff9b::", 12), "local NAT64": embed("64:ff9b:1::", 12),
		"6to4": embed("2002::", 2), "Teredo": netip.AddrFrom16(teredo),
	}
}
