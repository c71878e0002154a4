// Package gateway is the only path to the network for sandboxes with a restricted network. It is a program
// (cmd/gateway), the only file in a container of the environment, and these parts:
//
//	policy    which names, ports and addresses are allowed
//	egress    resolves, checks, connects; upstream proxies
//	proxy     the sandboxes' traffic
//	llm       the sandboxes' LLM calls: adds the key, enforces limits, records each call
//	audit     the log of every attempt
//	segments  the files of both logs
//	control   the gateway's control interface
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
// A sandbox has no network interface except loopback, no resolver, and no capability to create either. Its
// only socket is in a directory that is mounted read-only and contains nothing else. The socket identifies
// the sandbox. A gateway that is down, does not know the sandbox, or has no policy forwards nothing: it fails
// closed.
//
// An LLM call uses the same socket, as plain HTTP to http://127.0.0.1:3128/llm/<route>:
//
//	 sandbox                                 gateway                         outside
//	┌──────────────────────────────┐         ┌──────────────────────┐
//	│ client, no key               │         │   route, model,      │
//	│        ──> 127.0.0.1:3128 ───┼── unix ─┼─> limits; journal    │
//	│            /llm/<route>/v1/… │  socket │   add the key, TLS ──┼──> the route's upstream
//	│        <── answer, unchanged │         │   read the usage     │
//	└──────────────────────────────┘         └──────────────────────┘
//
// The journal records a call before the upstream gets it, with the most that it can cost. At the call's end, the
// upstream's counts replace that amount. Without counts, the amount stays. So a killed gateway loses no call, and no
// call is free. Keys are in memory only: a gateway that restarts refuses LLM calls until it gets the routes again.
//
// # What is contained
//
//	raw addresses in any spelling     only names are allowed; text that any parser reads as an address is refused
//	other resolvers, DoH, DNS tunnels there is no DNS: a name that is not allowed is never resolved
//	rebinding, CNAME to private       the gateway connects to exactly the address that it checked
//	private and metadata addresses    refused in every form, also for an allowed name, unless the
//	                                  environment allows their range; metadata and loopback always
//	other ports                       each rule has its ports
//	another name in TLS               the hello must name the requested host; a hello without a name is refused
//	another Host in plain HTTP        each request is parsed and rewritten; Host is the target's
//	smuggling                         as above, and no two requests share an outside connection
//	h2c and other upgrades            refused, except web sockets
//	encrypted hello (ECH)             refused: its outer name proves nothing. Browsers pad with the same
//	                                  extension (GREASE) unless ECH is disabled in them
//	UDP, QUIC, ICMP, raw sockets      there is no interface to send them
//	another sandbox's socket          it is not mounted
//	the key of an LLM upstream        no sandbox has it. It is in no file, log, answer or error of the gateway,
//	                                  whose memory is closed to debuggers and core dumps
//	LLM calls without a price         only models with prices, and only requests whose tokens alone set the price
//	another account, other headers    the gateway writes the headers that identify a call; only a few
//	                                  harmless headers of the sandbox pass
//	another model by a second key     the upstream gets the object that was checked, encoded again
//	LLM spending                      limits of lease, month and budget count what running calls can still use;
//	                                  the call that reaches a limit can exceed it, and no other
//	floods, slow requests             connections, headers, hellos, idle times and a sandbox's share of
//	                                  the log are limited; drops are counted
//
// # What is not
//
// An allowed host is trusted with all data of a sandbox. TLS is not decrypted, so the gateway cannot see what
// follows the hello. A server that serves other names with the same certificate or address (domain fronting,
// HTTP/2 connections shared by names, a second hello after a retry) can be asked for those names. Sandboxes
// can publish data on an allowed host that accepts it from anyone. Names that resolve to a shared public address are
// distinguished only by name. Timing and the order of allowed requests can carry information. Behind an
// upstream proxy, that proxy must check addresses. Server-first protocols (SSH, SMTP, databases) do not work
// on any port.
//
// An LLM upstream sees all of a call's content, and the ids of its lease, environment, agent and account. The gateway
// trusts its counts of tokens, and does not search a successful answer for the key. A route's host need not be in
// the environment's egress. A call that broke off counts with the most that it can cost, which is usually more than
// the upstream bills.
package gateway
