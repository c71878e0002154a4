package policy

import (
	"net/netip"
	"slices"
)

// special is a range without hosts of the public Internet.
type special struct {
	prefix netip.Prefix
	what   string
}

// specialIPv4 and specialIPv6 follow the registries of special-purpose addresses
// (iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry, read 2026-11) and of multicast
// addresses. Some ranges that the registries call globally reachable lead to other addresses or to the machine's own
// services. These are refused too.
var specialIPv4 = []special{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by a carrier (CGNAT)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, where clouds serve metadata"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("192.31.196.0/24"), "reserved for AS112"},
	{netip.MustParsePrefix("192.52.193.0/24"), "reserved for AMT"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("192.175.48.0/24"), "reserved for AS112"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
}

// Only 2000::/3 is assigned to IPv6 hosts. Ranges outside of it are listed for better log messages.
var (
	globalIPv6  = netip.MustParsePrefix("2000::/3")
	specialIPv6 = []special{
		{netip.MustParsePrefix("::/128"), "unspecified"},
		{netip.MustParsePrefix("::1/128"), "loopback"},
		{netip.MustParsePrefix("::ffff:0:0/96"), "an IPv4 address in IPv6 (mapped)"},
		{netip.MustParsePrefix("::/96"), "an IPv4 address in IPv6 (compatible)"},
		{netip.MustParsePrefix("64:ff9b::/96"), "an IPv4 address in IPv6 (NAT64)"},
		{netip.MustParsePrefix("64:ff9b:1::/48"), "an IPv4 address in IPv6 (local NAT64)"},
		{netip.MustParsePrefix("2001::/32"), "an IPv4 address in IPv6 (Teredo)"},
		{netip.MustParsePrefix("2001::/23"), "reserved for protocols"},
		{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
		{netip.MustParsePrefix("2002::/16"), "an IPv4 address in IPv6 (6to4)"},
		{netip.MustParsePrefix("2620:4f:8000::/48"), "reserved for AS112"},
		{netip.MustParsePrefix("3fff::/20"), "for documentation"},
		{netip.MustParsePrefix("fc00::/7"), "private (unique local)"},
		{netip.MustParsePrefix("fe80::/10"), "link-local"},
		{netip.MustParsePrefix("fec0::/10"), "private (site-local)"},
		{netip.MustParsePrefix("ff00::/8"), "multicast"},
	}
)

// metadata are the addresses outside of the link-local range at which clouds serve a machine's credentials and
// settings. No private CIDR allows them.
var metadata = []netip.Addr{
	netip.MustParseAddr("168.63.129.16"),   // Azure, the wire server; a public address
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
	netip.MustParseAddr("fd00:42::42"),     // Scaleway
}

// Address checks an address of an allowed name.
func (p *Policy) Address(a netip.Addr) *Refusal {
	if p == nil {
		return Refuse(NoPolicy, "the gateway has no policy yet, so nothing is allowed")
	}
	if !a.IsValid() || a.Zone() != "" {
		return Refuse(AddressRefused, "%s is not an address of the Internet", a)
	}
	if slices.Contains(metadata, a) {
		return Refuse(AddressRefused, "%s serves cloud metadata of the machine", a)
	}
	what := specialty(a)
	if what == "" || slices.ContainsFunc(p.private, func(r netip.Prefix) bool { return r.Contains(a) }) {
		return nil
	}
	return Refuse(AddressRefused,
		"%s is %s: only private ranges in the environment's egress.private_cidrs are allowed", a, what)
}

// specialty returns the special purpose of an address, "" for a host of the public Internet.
func specialty(a netip.Addr) string {
	list := specialIPv6
	if a.Is4() {
		list = specialIPv4
	}
	for _, s := range list {
		if s.prefix.Contains(a) {
			return s.what
		}
	}
	if !a.Is4() && !globalIPv6.Contains(a) {
		return "not assigned to hosts"
	}
	return ""
}
