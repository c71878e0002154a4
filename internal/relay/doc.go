// Package relay carries connections between reconcilers and the sandboxes of one ledger on one engine. The relay is a
// small program in a container of its own: it starts nothing in a sandbox, so no call of the engine is between a
// reconciler and a sandbox that runs.
//
//	<root>/control/relay.sock             for reconcilers; its directory is root's alone
//	<root>/sandboxes/<id>/channel.sock    for one sandbox, which sees its own directory only, read-only
//	<root>/sandboxes/<id>/end             says that the sandbox must end; process 1 looks for it
//	<root>/sandboxes/<id>/passwd, group   name the sandbox's users; the sandbox sees them in its /etc
//
// A sandbox dials its socket and parks the connection. A reconciler that attaches to the sandbox gets a parked
// connection: its descriptor where the control socket is a file, so that no byte passes through the relay; else the relay
// copies bytes between the two. The directories are the relay's whole state: a relay that starts again listens in each.
// Connections that it copies break then, and both ends dial again.
//
// Each connection to the control socket carries one request. After an attach it carries the bytes, or its end says that
// the descriptor is not used any more. Where the control socket is no file of the reconciler's machine, the program's
// `connect` carries these connections, as streams of yamux, over its standard input and output.
//
// # Why not a command of the engine for each sandbox
//
// The alternative is one `docker exec -u 0` that stays open in each sandbox. Measured on Engine 20.10.24 with 2 busy
// cores and 20 sandboxes, with a relay that copies; a connection that it lends costs less:
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
