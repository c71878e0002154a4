package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
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

// maxHostEntries is how many exact hosts get an address in a sandbox, from 127.1.0.1 to 127.1.0.254. Each
// costs process 1 some memory. Further hosts, like every *.domain, are reached only through the proxy.
const maxHostEntries = 254

// egressPath is how a sandbox reaches the network: through its gateway, or through its own network. The zero
// value means no access.
type egressPath struct {
	network string // the sandbox's own, by name
	dir     string // the sandbox's directory in the gateway's volume, on the engine's host
	proxied bool   // programs use the gateway as their proxy; otherwise it has LLM routes only
	trusts  bool   // programs trust the gateway's authority, because it adds credentials
	entries []string
	hosts   []wire.EgressHost
}

// openEgressPath creates a sandbox's egress path, before its container is created.
func (e *Executor) openEgressPath(ctx context.Context, spec driver.SandboxSpec) (egressPath, error) {
	switch {
	case spec.UsesGateway():
		return e.openGateway(ctx, spec)
	case spec.Network == sandbox.NetworkFull:
		name, err := e.networks.Open(ctx, spec)
		return egressPath{network: name}, err
	default:
		return egressPath{}, nil
	}
}

// openGateway registers a sandbox at its gateway: the gateway's directory for it exists before the sandbox's
// container, and the policy before its first program.
func (e *Executor) openGateway(ctx context.Context, spec driver.SandboxSpec) (egressPath, error) {
	ref := objects.EnvironmentOf(spec.Handle)
	if err := e.admit(ctx, spec); err != nil {
		return egressPath{}, err
	}
	root, err := e.egressDir(ctx, ref)
	if err != nil {
		return egressPath{}, err
	}
	w := egressPath{
		dir:     path.Join(root, control.SandboxDir(spec.SandboxID)),
		proxied: spec.Network == sandbox.NetworkRestricted,
		trusts:  trusts(spec),
	}
	w.entries, w.hosts = hostEntries(spec.Egress)
	return w, nil
}

// admit registers a sandbox and its agent at the gateway. A gateway that lost its volume also gets the
// policy.
func (e *Executor) admit(ctx context.Context, spec driver.SandboxSpec) error {
	return e.callGateway(ctx, objects.EnvironmentOf(spec.Handle), "admit sandbox "+spec.SandboxID,
		func(ctx context.Context, c *control.Client) error {
			s, err := c.Status(ctx)
			if err == nil && !s.HasPolicy {
				err = c.Apply(ctx, control.Settings{Egress: spec.Egress, Upstream: e.gateway.Upstream})
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

// trusts reports whether a sandbox is created with the gateway's authority.
func trusts(spec driver.SandboxSpec) bool { return len(spec.Egress.Credentials) > 0 }

// closeEgressPath unregisters a sandbox at the gateway, if its environment has one.
func (e *Executor) closeEgressPath(ctx context.Context, h driver.Handle) error {
	_, err := e.egressDir(ctx, objects.EnvironmentOf(h))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return e.callGateway(ctx, objects.EnvironmentOf(h), "remove sandbox "+h.SandboxID,
		func(ctx context.Context, c *control.Client) error {
			return c.Remove(ctx, h.SandboxID)
		})
}

// ensureEgressPath ensures that the gateway of a sandbox runs, if this program has used it before. For others
// the check would cost engine time, and a gateway that crashes restarts anyway.
func (e *Executor) ensureEgressPath(ctx context.Context, h driver.Handle) error {
	e.mu.Lock()
	_, known := e.gatewayClients[objects.EnvironmentOf(h)]
	e.mu.Unlock()
	if !known {
		return nil
	}
	return e.askGateway(ctx, h)
}

// askGateway checks that the gateway of a sandbox answers.
func (e *Executor) askGateway(ctx context.Context, h driver.Handle) error {
	return e.callGateway(ctx, objects.EnvironmentOf(h), "answer", func(ctx context.Context, c *control.Client) error {
		_, err := c.Status(ctx)
		return err
	})
}

func hasMount(c dockerapi.ContainerInspect, target string) bool {
	return c.HostConfig != nil &&
		slices.ContainsFunc(c.HostConfig.Mounts, func(m dockerapi.Mount) bool { return m.Target == target })
}

func lists(c dockerapi.ContainerSummary, target string) bool {
	return slices.ContainsFunc(c.Mounts, func(m dockerapi.ContainerMountPoint) bool { return m.Destination == target })
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

// apply adds the egress path to a container's configuration.
func (w egressPath) apply(h *dockerapi.HostConfig) {
	if w.network != "" {
		h.NetworkMode = dockerapi.NetworkMode(w.network)
	}
	if w.dir == "" {
		return
	}
	// With this kind of mount, a missing directory is an error and is not created.
	h.Mounts = append(h.Mounts,
		dockerapi.Mount{Type: dockerapi.MountTypeBind, Source: w.dir, Target: guest.EgressDir, ReadOnly: true})
	h.ExtraHosts = w.entries
}

// arguments are the arguments for process 1.
func (w egressPath) arguments() ([]string, error) {
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

// proxyEnv are the variables that point programs to the proxy, and to the authorities that they trust.
func (w egressPath) proxyEnv() map[string]string {
	if !w.proxied {
		return nil
	}
	env := make(map[string]string)
	for name, value := range map[string]string{
		"HTTP_PROXY":  "http://" + guest.ProxyAddress,
		"HTTPS_PROXY": "http://" + guest.ProxyAddress,
		"NO_PROXY":    "localhost,127.0.0.1,::1",
	} {
		env[name], env[strings.ToLower(name)] = value, value
	}
	if w.trusts {
		// Node.js and Deno add to the authorities that they have, all others replace them.
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
