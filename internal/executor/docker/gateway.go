package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An environment whose network is restricted has a gateway: one container, of an image with nothing
// but the gateway's program, and one volume with what the gateway keeps and a directory for each
// sandbox. Of the volume a sandbox sees its own directory only, bound by its place on the engine's
// host. (volume-subpath would bind the whole volume on engines before 26.)

// Bounds of a gateway's container. Its memory holds the 4096 connections that it takes at most.
const (
	gatewayMemory       = 256 << 20
	gatewayHeap         = "200MiB" // below that, so that it collects garbage before the kernel ends it
	gatewayPIDs   int64 = 128
)

// gatewayStart bounds the wait until a gateway that has been started can be told what to do.
const gatewayStart = changeLimit

// Gateway says what the gateways of an engine need to get out themselves.
type Gateway struct {
	// Network is the engine's network that gateways are on; empty means the engine's default bridge.
	Network string
	// DNS are the servers that gateways ask, Hosts are names that those do not know, as name:address.
	// Empty means what the engine gives every container.
	DNS, Hosts []string
	// Upstream is an HTTP proxy that gateways go through; nil is none.
	Upstream *control.Upstream
}

// validate checks what can be known without an engine. Errors: Invalid.
func (g Gateway) validate() error {
	for _, server := range g.DNS {
		if _, err := netip.ParseAddr(server); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "a name server of gateways must be an address such as 10.0.0.53, not %q", server)
		}
	}
	switch g.Network {
	case dockerapi.NetworkHost, dockerapi.NetworkNone:
		return sandbox.Errorf(sandbox.Invalid, "gateways cannot be on the network %q: name a network that leads out and is not the host's", g.Network)
	}
	if g.Upstream == nil {
		return nil
	}
	if _, err := egress.NewUpstream(g.Upstream.URL, []byte(g.Upstream.CA)); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "the proxy of gateways: %w", err)
	}
	return nil
}

// ensureGateway makes an environment's gateway run, and let out what the rules say. A gateway of another release or
// with other needs is replaced, which ends the connections through it.
func (e *Executor) ensureGateway(ctx context.Context, ref driver.EnvironmentRef, rules sandbox.Egress) error {
	if err := e.startGateway(ctx, ref); err != nil {
		return err
	}
	settings := control.Settings{Egress: rules, Upstream: e.gateway.Upstream}
	want, err := settings.Hash()
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, "docker: gateway of environment %s: %w", ref.EnvironmentID, err)
	}
	return e.tell(ctx, ref, "allow what the environment allows", func(ctx context.Context, c *control.Client) error {
		if s, err := c.Status(ctx); err != nil || s.Settings == want {
			return err
		}
		return c.Apply(ctx, settings)
	})
}

// startGateway makes the container run, and nothing else.
func (e *Executor) startGateway(ctx context.Context, ref driver.EnvironmentRef) error {
	p, err := e.programFor(ctx, "gateway", ref.Instance, gateway.Binary)
	if err != nil {
		return err
	}
	reference := gatewayImage(ref, shortHash(p.hash, fmt.Sprint(e.gateway.Network, e.gateway.DNS, e.gateway.Hosts), p.seccomp))
	name, labels := gatewayName(ref), environmentLabels(ref, roleGateway)
	c, err := e.lookUp(ctx, name)
	if err == nil {
		if err := e.checkLabels("container", name, c.Config.Labels, labels); err != nil {
			return err
		}
		if c.State.Running && c.Config.Image == reference {
			return nil
		}
		if c.Config.Image != reference {
			err = errors.Join(e.removeContainer(ctx, c.ID), e.removeImages(ctx, ref, roleProgram, reference))
			if err != nil {
				return err
			}
			err = e.createGateway(ctx, ref, reference, p)
		}
	} else if isCode(err, sandbox.NotFound) {
		err = e.createGateway(ctx, ref, reference, p)
	}
	if err != nil && !isCode(err, sandbox.Conflict) { // another caller makes it
		return err
	}
	return e.do(ctx, change("start container", name, sandbox.ReasonStartFailed), func(ctx context.Context) error {
		return e.api.ContainerStart(ctx, name, dockerapi.StartOptions{})
	})
}

func (e *Executor) createGateway(ctx context.Context, ref driver.EnvironmentRef, reference string, p program) error {
	if err := e.ensureVolume(ctx, egressVolume(ref), environmentLabels(ref, roleEgress)); err != nil {
		return err
	}
	if err := e.ensureGatewayImage(ctx, ref, reference, p); err != nil {
		return err
	}
	return e.do(ctx, change("create container", gatewayName(ref), sandbox.ReasonCreationFailed), func(ctx context.Context) error {
		_, err := e.api.ContainerCreate(ctx, gatewayConfig(ref, reference), e.gatewayHost(ref, p.seccomp), nil, nil, gatewayName(ref))
		return err
	})
}

func gatewayConfig(ref driver.EnvironmentRef, reference string) *dockerapi.ContainerConfig {
	return &dockerapi.ContainerConfig{
		Image:       reference,
		Labels:      environmentLabels(ref, roleGateway),
		Hostname:    "gateway",
		User:        fmt.Sprintf("%d:%d", gateway.UserID, gateway.GroupID),
		Env:         []string{"GOMEMLIMIT=" + gatewayHeap},
		Entrypoint:  []string{gateway.Path, "serve", "-root", gateway.Root},
		Healthcheck: &dockerapi.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
	}
}

func (e *Executor) gatewayHost(ref driver.EnvironmentRef, profile string) *dockerapi.HostConfig {
	pids := gatewayPIDs
	on := dockerapi.NetworkMode(e.gateway.Network)
	if on == "" {
		on = dockerapi.NetworkBridge
	}
	return &dockerapi.HostConfig{
		// Not NoCopy: the engine gives the new volume to the gateway's user, as the image has it.
		Mounts:         []dockerapi.Mount{volumeMount(egressVolume(ref), gateway.Root, environmentLabels(ref, roleEgress))},
		NetworkMode:    on,
		DNS:            e.gateway.DNS,
		ExtraHosts:     e.gateway.Hosts,
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges", seccompOption + profile},
		IpcMode:        dockerapi.IPCModePrivate,
		Sysctls:        sysctls(),
		// It comes back by itself; until then its sandboxes are cut off.
		RestartPolicy: dockerapi.RestartPolicy{Name: dockerapi.RestartPolicyUnlessStopped},
		LogConfig:     dockerapi.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "10m", "max-file": "3"}},
		Resources:     dockerapi.Resources{Memory: gatewayMemory, MemorySwap: gatewayMemory, PidsLimit: &pids},
	}
}

func (e *Executor) ensureGatewayImage(ctx context.Context, ref driver.EnvironmentRef, reference string, p program) error {
	labels := environmentLabels(ref, roleProgram)
	there, err := e.findOwnImage(ctx, reference, labels)
	if there || err != nil {
		return err
	}
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	for dir := gateway.Root; dir != "/" && err == nil; dir = path.Dir(dir) {
		h := tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755}
		if dir == gateway.Root {
			h.Uid, h.Gid = gateway.UserID, gateway.GroupID
		}
		err = tw.WriteHeader(&h)
	}
	if err == nil {
		err = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(gateway.Path, "/"), Mode: 0o755, Size: int64(len(p.binary))})
	}
	if err == nil {
		_, err = tw.Write(p.binary)
	}
	if err = errors.Join(err, tw.Close()); err != nil {
		return sandbox.Errorf(sandbox.Failed, "docker: pack the gateway of environment %s: %w", ref.EnvironmentID, err)
	}
	return e.importImage(ctx, reference, labels, bytes.NewReader(layer.Bytes()))
}

// removeGateway removes an environment's gateway and all that it has; absent is success.
func (e *Executor) removeGateway(ctx context.Context, ref driver.EnvironmentRef) error {
	e.hangUp(ref)
	name, labels := gatewayName(ref), environmentLabels(ref, roleGateway)
	c, err := e.lookUp(ctx, name)
	if err == nil {
		if err = e.checkLabels("container", name, c.Config.Labels, labels); err == nil {
			err = e.removeContainer(ctx, c.ID)
		}
	}
	if err != nil && !isCode(err, sandbox.NotFound) {
		return err
	}
	if err := e.removeVolume(ctx, egressVolume(ref), environmentLabels(ref, roleEgress)); err != nil {
		return err
	}
	return e.removeImages(ctx, ref, roleProgram, "")
}
