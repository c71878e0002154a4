// Package sandbox is the domain: what an environment, a lease, a sandbox and a
// condition are, which rules their values obey, and the codes and reasons of
// errors. Programs that use reconciler/client work with these types.
//
// Two internal packages declare the interfaces that the rest of this program is
// built around:
//
//	              service.Service                driver.Executor
//	provider ──┐                  ┌── leasing ──┬──> executor/docker
//	           ├──> sandbox <─────┤             └──> executor/cloudflare
//	HTTP API ──┘                  └── client (the same service over HTTP)
//
// It imports nothing of this module and knows no database, no Docker, no HTTP
// and no Terraform. The JSON form of its types is the wire format of the HTTP
// API: durations are Go duration strings ("24h0m0s"), money is a decimal string
// of US dollars, times are RFC 3339 in UTC.
package sandbox
