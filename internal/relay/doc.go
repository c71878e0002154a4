// Package relay carries connections between reconcilers and the sandboxes of one ledger on one engine. The
// relay is a small program in a separate container. It starts nothing in a sandbox, so the path between a
// reconciler and a running sandbox needs no engine call.
//
//	<root>/control/relay.sock             for reconcilers; only root may enter its directory
//	<root>/sandboxes/<id>/channel.sock    for one sandbox, which sees only its own directory, read-only
//	<root>/sandboxes/<id>/end             tells process 1 to end the sandbox
//	<root>/sandboxes/<id>/passwd, group   name the sandbox's users; the sandbox sees them in its /etc
//
// A sandbox dials its socket and parks the connection. A reconciler that attaches to the sandbox gets a
// parked connection. If the control socket is a local file, it gets the descriptor, so that no byte passes
// through the relay; otherwise the relay copies bytes between the two. The directories are the relay's whole
// state: after a restart it listens in each of them. A restart breaks the connections that it copies, and both
// ends dial again.
//
// Each connection to the control socket carries one request. After an attach it carries the bytes, or its end
// means that the descriptor is no longer used. If the control socket is not on the reconciler's machine, the
// program's `connect` carries these connections, as yamux streams, over its standard input and output.
//
// # Why not docker exec for each sandbox
//
// The alternative is one `docker exec -u 0` that stays open in each sandbox. Measured on Engine 20.10.24 with
// 2 busy cores and 20 sandboxes, with a relay that copies; a lent connection costs less:
//
//	                               relay              exec for each sandbox
//	to open, once the sandbox runs 0 (it has dialed)  46 ms at p50, 91 ms at p95
//	round trip at p50              78 µs              102 µs
//	100 MiB, there and back        433 MiB/s          244 MiB/s
//	memory for each open channel   below 0.1 MiB      1.0 MiB (helper 0.6, shim 0.2, engine 0.15)
//	to connect again at p50        7 ms               52 ms
//	engine calls                   none               2 for each connection, under the container's lock
//	user namespaces of the engine  yes                yes
//	engines on other machines      one exec, shared   yes
//	gVisor                         with host-uds=open yes
package relay
