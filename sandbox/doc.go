// Package sandbox is the domain: the types of environments, leases, sandboxes and conditions, the rules for
// their values, and the codes and reasons of errors. Programs that use reconciler/client work with these types.
//
// Two internal packages declare the interfaces between the parts of this program:
//
//	              service.Service                driver.Executor
//	provider ──┐                  ┌── leasing ──┬──> executor/docker
//	           ├──> sandbox <─────┤             └──> executor/cloudflare
//	HTTP API ──┘                  └── client (the same service over HTTP)
//
// It imports no other package of this module and knows nothing of databases, Docker, HTTP or Terraform. The
// JSON form of its types is the wire format of the HTTP API: durations are Go duration strings ("24h0m0s"),
// money is a decimal string of US dollars, times are RFC 3339 in UTC.
package sandbox
