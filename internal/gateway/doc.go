// Package gateway is the one way out of a sandbox whose network is restricted. It is a program
// (cmd/gateway) that runs as the only file of a container of the environment, and its parts:
//
//	policy    which names, ports and addresses are allowed
//	egress    resolves, checks, connects; upstream proxies
//	proxy     the sandboxes' traffic
//	audit     the log of every attempt
//	control   how the gateway is told what to do
//
// # The path
//
//	 sandbox, network none                    gateway                         outside
//	┌──────────────────────────────┐         ┌──────────────────────┐
//	│ program ──> 127.0.0.1:3128 ──┼── unix ─┼─> policy by name     │
//	│   or    ──> 127.1.0.N:port ──┤  socket │   resolve, check     │
//	│  (hosts entry; the guest     │  of its │   connect ───────────┼──> the checked address
//	│   asks for the host's name)  │   own   │   SNI or Host agrees │
//	└──────────────────────────────┘         └──────────────────────┘
//
// A sandbox has no network interface but loopback, no resolver, and no capability to make either.
// Its one socket lies in a directory that is mounted read-only and shows nothing else; which socket
// is called tells who calls. A gateway that is gone, not told of the sandbox, or without a policy is
// no way out: every failure closes.
//
// # What is contained
//
//	raw addresses in any spelling     a name must be a name; what any parser reads as an address is none
//	other resolvers, DoH, DNS tunnels there is no DNS: a name that is not allowed is never asked for
//	rebinding, CNAME to private       the address that was checked is the one that is connected to
//	private and metadata addresses    refused in every form, also by a name that is allowed, unless the
//	                                  environment names their range; metadata and loopback never
//	other ports                       each rule has its ports
//	another name in TLS               the hello must name the host that was asked for; no name is refused
//	another Host in plain HTTP        each request is parsed and written anew; Host is that of the target
//	smuggling                         as above, and no two requests share a connection to outside
//	h2c and other upgrades            refused, but for web sockets
//	encrypted hello (ECH)             refused: its outer name says nothing. Browsers pad with the same
//	                                  extension (GREASE) unless ECH is turned off in them
//	UDP, QUIC, ICMP, raw sockets      there is no interface to send them on
//	another sandbox's socket          it is not mounted
//	floods, slow requests             connections, headers, hellos and idle times are bounded, a sandbox's
//	                                  share of the log too; what is dropped is counted
//
// # What is not
//
// An allowed host is trusted with all that a sandbox has. TLS is not opened, so that, within one
// server, what follows the hello is unseen: a server that serves other names on the same certificate
// or address (domain fronting, HTTP/2 connections shared by names, a second hello after a retry) can
// be asked for those, and a host on which everybody can publish can be published to. Names that
// resolve to a shared public address are told apart by name only. Timing and the order of allowed
// requests can carry information. Behind an upstream proxy the addresses are that proxy's to check.
// Server-first protocols (SSH, SMTP, databases) do not pass on any port.
package gateway
