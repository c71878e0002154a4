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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxHostEntries is how many exact hosts have an address in a sandbox, of 127.1.0.1 to 127.1.0.254.
// Each costs process 1 some memory; what is more, like every *.domain, is reached by the proxy alone.
const maxHostEntries = 254

// wayOut is how a sandbox gets out: by its gateway, or by a network of its own. Its zero value is no
// way out.
type wayOut struct {
	network string // the sandbox's own, by name
	dir     string // the sandbox's directory of the gateway's volume, on the engine's host
	entries []string
	hosts   []wire.EgressHost
}

// openWayOut makes what a sandbox gets out by, before its container is made.
func (e *Executor) openWayOut(ctx context.Context, spec driver.SandboxSpec) (wayOut, error) {
	switch spec.Network {
	case sandbox.NetworkRestricted:
		return e.openGateway(ctx, spec)
	case sandbox.NetworkFull:
		name, err := e.openNetwork(ctx, spec.Handle)
		return wayOut{network: name}, err
	default:
		return wayOut{}, nil
	}
}

// openGateway tells the gateway of a sandbox: the gateway's directory for it is there before the
// sandbox's container is made, and the policy before its first program.
func (e *Executor) openGateway(ctx context.Context, spec driver.SandboxSpec) (wayOut, error) {
	ref := environmentOf(spec.Handle)
	if err := e.admit(ctx, spec); err != nil {
		return wayOut{}, err
	}
	root, err := e.egressDir(ctx, ref)
	if err != nil {
		return wayOut{}, err
	}
	w := wayOut{dir: path.Join(root, control.SandboxDir(spec.SandboxID))}
	w.entries, w.hosts = hostEntries(spec.Egress)
	return w, nil
}

// admit tells the gateway of a sandbox and of its agent. A gateway whose volume was lost is told the
// policy as well.
func (e *Executor) admit(ctx context.Context, spec driver.SandboxSpec) error {
	return e.tell(ctx, environmentOf(spec.Handle), "let sandbox "+spec.SandboxID+" out", func(ctx context.Context, c *control.Client) error {
		s, err := c.Status(ctx)
		if err == nil && !s.HasPolicy {
			err = c.Apply(ctx, control.Settings{Egress: spec.Egress, Upstream: e.gateway.Upstream})
		}
		if err == nil {
			err = c.Add(ctx, control.Sandbox{ID: spec.SandboxID, Agent: spec.AgentDID})
		}
		return err
	})
}

// closeWayOut has the gateway forget a sandbox, if its environment has a gateway.
func (e *Executor) closeWayOut(ctx context.Context, h driver.Handle) error {
	_, err := e.egressDir(ctx, environmentOf(h))
	if isCode(err, sandbox.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return e.tell(ctx, environmentOf(h), "cut sandbox "+h.SandboxID+" off", func(ctx context.Context, c *control.Client) error {
		return c.Remove(ctx, h.SandboxID)
	})
}

// keepWayOut sees to it that the gateway of a sandbox runs, if this program has dealt with it before:
// others would be asked at the cost of the engine's time, and a gateway that crashes comes back anyway.
func (e *Executor) keepWayOut(ctx context.Context, h driver.Handle) error {
	e.mu.Lock()
	_, known := e.links[environmentOf(h)]
	e.mu.Unlock()
	if !known {
		return nil
	}
	return e.askGateway(ctx, h)
}

// askGateway has the gateway of a sandbox answer, and so run.
func (e *Executor) askGateway(ctx context.Context, h driver.Handle) error {
	return e.tell(ctx, environmentOf(h), "answer", func(ctx context.Context, c *control.Client) error {
		_, err := c.Status(ctx)
		return err
	})
}

// hasWayOut reports whether a container was made with one.
func hasWayOut(c dockerapi.ContainerInspect) bool { return hasMount(c, guest.EgressDir) }

func hasMount(c dockerapi.ContainerInspect, target string) bool {
	return c.HostConfig != nil && slices.ContainsFunc(c.HostConfig.Mounts, func(m dockerapi.Mount) bool { return m.Target == target })
}

func listsWayOut(c dockerapi.ContainerSummary) bool { return lists(c, guest.EgressDir) }

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
			hosts = append(hosts, wire.EgressHost{Address: fmt.Sprintf("%s:%d", address, port), Target: fmt.Sprintf("%s:%d", host, port)})
		}
	}
	return entries, hosts
}

// apply gives a container the way out.
func (w wayOut) apply(h *dockerapi.HostConfig) {
	if w.network != "" {
		h.NetworkMode = dockerapi.NetworkMode(w.network)
	}
	if w.dir == "" {
		return
	}
	// A missing directory is an error of this kind of mount, and is not made.
	h.Mounts = append(h.Mounts, dockerapi.Mount{Type: dockerapi.MountTypeBind, Source: w.dir, Target: guest.EgressDir, ReadOnly: true})
	h.ExtraHosts = w.entries
}

// arguments are those of process 1.
func (w wayOut) arguments() ([]string, error) {
	if w.dir == "" {
		return nil, nil
	}
	b, err := json.Marshal(wire.Egress{Socket: guest.EgressDir + "/" + control.ProxySocket, Proxy: guest.ProxyAddress, Hosts: w.hosts})
	return []string{"-egress", string(b)}, err
}

// proxyEnv are the variables by which programs know the proxy.
func (w wayOut) proxyEnv() map[string]string {
	if w.dir == "" {
		return nil
	}
	env := make(map[string]string)
	for name, value := range map[string]string{
		"HTTP_PROXY": "http://" + guest.ProxyAddress, "HTTPS_PROXY": "http://" + guest.ProxyAddress, "NO_PROXY": "localhost,127.0.0.1,::1",
	} {
		env[name], env[strings.ToLower(name)] = value, value
	}
	return env
}
