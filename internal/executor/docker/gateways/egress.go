package gateways

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxHostEntries limits the exact hosts that get an address in a sandbox, from 127.1.0.1 to 127.1.0.254. Each costs
// process 1 some memory. The proxy alone reaches further hosts, and every *.domain.
const maxHostEntries = 254

// Path is how a sandbox reaches its gateway. The zero value means that it does not.
type Path struct {
	dir     string // the sandbox's directory in the gateway's volume, on the engine's host
	proxied bool   // programs use the gateway as their proxy; otherwise it only has LLM routes
	trusts  bool   // programs trust the gateway's authority, because it adds credentials
	entries []string
	hosts   []wire.EgressHost
}

// Open registers a sandbox at its gateway: its directory in the gateway's volume exists before its container, and its
// policy before its first program.
func (gs *Gateways) Open(ctx context.Context, spec driver.SandboxSpec) (Path, error) {
	ref := objects.EnvironmentOf(spec.Handle)
	if err := gs.Admit(ctx, spec); err != nil {
		return Path{}, err
	}
	root, err := gs.volumeDir(ctx, ref)
	if err != nil {
		return Path{}, err
	}
	w := Path{
		dir:     path.Join(root, control.SandboxDir(spec.SandboxID)),
		proxied: spec.Network == sandbox.NetworkRestricted,
		trusts:  trusts(spec),
	}
	w.entries, w.hosts = hostEntries(spec.Egress)
	return w, nil
}

// Admit registers a sandbox and its agent at the gateway. A gateway that has lost its volume gets the policy
// first.
func (gs *Gateways) Admit(ctx context.Context, spec driver.SandboxSpec) error {
	return gs.call(ctx, objects.EnvironmentOf(spec.Handle), "admit sandbox "+spec.SandboxID,
		func(ctx context.Context, c *control.Client) error {
			s, err := c.Status(ctx)
			if err == nil && !s.HasPolicy {
				err = c.Apply(ctx, control.Settings{Egress: spec.Egress, Upstream: gs.config.Upstream})
			}
			if err == nil {
				err = c.Add(ctx, control.Sandbox{
					ID: spec.SandboxID, Agent: spec.AgentDID, Lease: spec.LeaseID, Generation: spec.Generation,
					Trusts: trusts(spec),
				})
			}
			return err
		})
}

// trusts reports whether a sandbox trusts the gateway's authority.
func trusts(spec driver.SandboxSpec) bool { return len(spec.Egress.Credentials) > 0 }

// Leave unregisters a sandbox at the gateway if its environment has one.
func (gs *Gateways) Leave(ctx context.Context, h driver.Handle) error {
	_, err := gs.volumeDir(ctx, objects.EnvironmentOf(h))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return gs.call(ctx, objects.EnvironmentOf(h), "remove sandbox "+h.SandboxID,
		func(ctx context.Context, c *control.Client) error {
			return c.Remove(ctx, h.SandboxID)
		})
}

// EnsureKnown ensures that the gateway of a sandbox runs, if this program has used it before. For other gateways the
// check would cost engine time. A crashed gateway restarts anyway.
func (gs *Gateways) EnsureKnown(ctx context.Context, h driver.Handle) error {
	gs.mu.Lock()
	_, known := gs.clients[objects.EnvironmentOf(h)]
	gs.mu.Unlock()
	if !known {
		return nil
	}
	return gs.Ask(ctx, h)
}

// Ask checks that the gateway of a sandbox answers.
func (gs *Gateways) Ask(ctx context.Context, h driver.Handle) error {
	return gs.call(ctx, objects.EnvironmentOf(h), "answer", func(ctx context.Context, c *control.Client) error {
		_, err := c.Status(ctx)
		return err
	})
}

// hostEntries gives each exact host an address in the sandbox.
func hostEntries(e sandbox.Egress) (entries []string, hosts []wire.EgressHost) {
	for _, r := range e.Allow {
		if strings.HasPrefix(r.Host, "*") || len(entries) == maxHostEntries {
			continue
		}
		host, address := strings.ToLower(r.Host), fmt.Sprintf("127.1.0.%d", len(entries)+1)
		entries = append(entries, host+":"+address)
		ports := r.Ports
		if len(ports) == 0 {
			ports = sandbox.DefaultEgressPorts
		}
		for _, port := range ports {
			hosts = append(hosts,
				wire.EgressHost{Address: fmt.Sprintf("%s:%d", address, port), Target: fmt.Sprintf("%s:%d", host, port)})
		}
	}
	return entries, hosts
}

// Apply adds the egress path to a container's configuration.
func (w Path) Apply(h *dockerapi.HostConfig) {
	if w.dir == "" {
		return
	}
	// With this kind of mount, the engine reports a missing directory instead of creating it.
	h.Mounts = append(h.Mounts,
		dockerapi.Mount{Type: dockerapi.MountTypeBind, Source: w.dir, Target: guest.EgressDir, ReadOnly: true})
	h.ExtraHosts = w.entries
}

// Arguments are the arguments for process 1.
func (w Path) Arguments() ([]string, error) {
	if w.dir == "" {
		return nil, nil
	}
	b, err := json.Marshal(wire.Egress{
		Socket: guest.EgressDir + "/" + control.ProxySocket,
		Proxy:  guest.ProxyAddress,
		Hosts:  w.hosts,
	})
	return []string{"-egress", string(b)}, err
}

// Variables point programs to the proxy and to the authorities that they trust.
func (w Path) Variables() map[string]string {
	if !w.proxied {
		return nil
	}
	return ProxyVariables(w.trusts)
}

// ProxyVariables point programs to the proxy of their sandbox. trusts means that they also trust the gateway's
// authority.
func ProxyVariables(trusts bool) map[string]string {
	env := make(map[string]string)
	for name, value := range map[string]string{
		"HTTP_PROXY":  "http://" + guest.ProxyAddress,
		"HTTPS_PROXY": "http://" + guest.ProxyAddress,
		"NO_PROXY":    "localhost,127.0.0.1,::1",
	} {
		env[name], env[strings.ToLower(name)] = value, value
	}
	if trusts {
		// Node.js and Deno add these authorities to their own; all other programs replace theirs.
		for _, name := range []string{"NODE_EXTRA_CA_CERTS", "DENO_CERT"} {
			env[name] = guest.EgressDir + "/" + credential.CertificateFile
		}
		for _, name := range []string{
			"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",
		} {
			env[name] = guest.EgressDir + "/" + credential.BundleFile
		}
	}
	return env
}
