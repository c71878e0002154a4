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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/confine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An environment with a restricted network or with LLM routes has a gateway: one container, of an image with only the
// gateway's program, and one volume with the gateway's data and a directory for each sandbox. A sandbox sees only its
// own directory of the volume, bound by its path on the engine's host. (volume-subpath would bind the whole volume on
// engines before 26.)

// Limits of a gateway's container. Its memory suffices for the maximum of 4096 connections.
const (
	gatewayMemory       = 256 << 20
	gatewayHeap         = "200MiB" // less than that, so that it collects garbage before the kernel kills it
	gatewayPIDs   int64 = 128
)

// gatewayStart limits the wait for a started gateway to answer.
const gatewayStart = engine.ChangeLimit

// Gateway configures how the gateways of an engine reach the Internet.
type Gateway struct {
	// Network is the engine's network for gateways; empty means the default bridge.
	Network string
	// DNS are the name servers of gateways, Hosts additional names as name:address. Empty means the engine's
	// defaults.
	DNS, Hosts []string
	// Upstream is an HTTP proxy for gateways; nil means none.
	Upstream *control.Upstream
}

// validate checks what does not need an engine. Errors: Invalid.
func (g Gateway) validate() error {
	for _, server := range g.DNS {
		if _, err := netip.ParseAddr(server); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "a name server for gateways must be an address such as 10.0.0.53, not %q",
				server)
		}
	}
	switch g.Network {
	case dockerapi.NetworkHost, dockerapi.NetworkNone:
		return sandbox.Errorf(sandbox.Invalid,
			"gateways cannot use the network %q: choose a network with Internet access that is not the host's", g.Network)
	}
	if g.Upstream == nil {
		return nil
	}
	if _, err := egress.NewUpstream(g.Upstream.URL, []byte(g.Upstream.CA)); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "the upstream proxy of gateways: %w", err)
	}
	return nil
}

// ensureGateway starts an environment's gateway and sets its rules. A gateway of another release or with
// another configuration is replaced, which ends its connections.
func (e *Executor) ensureGateway(ctx context.Context, ref driver.EnvironmentRef, rules sandbox.Egress) error {
	if err := e.startGateway(ctx, ref); err != nil {
		return err
	}
	settings := control.Settings{Egress: rules, Upstream: e.gateway.Upstream}
	want, err := settings.Hash()
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, "docker: gateway of environment %s: %w", ref.EnvironmentID, err)
	}
	return e.callGateway(ctx, ref, "set the environment's egress rules",
		func(ctx context.Context, c *control.Client) error {
			if s, err := c.Status(ctx); err != nil || s.Settings == want {
				return err
			}
			return c.Apply(ctx, settings)
		})
}

// checkProvisioned checks that an environment was provisioned, and not removed since. Errors: NotFound.
func (e *Executor) checkProvisioned(ctx context.Context, ref driver.EnvironmentRef) error {
	found, err := e.guestVolumes(ctx, ref)
	if err == nil && len(found) == 0 {
		return sandbox.Errorf(sandbox.NotFound, "docker: the engine has no environment %s", ref.EnvironmentID)
	}
	return err
}

// startGateway only starts the container.
func (e *Executor) startGateway(ctx context.Context, ref driver.EnvironmentRef) error {
	p, err := e.engine.ProgramFor(ctx, "gateway", ref.Instance, gateway.Binary)
	if err != nil {
		return err
	}
	reference := objects.GatewayImage(ref,
		objects.Hash(p.Hash, fmt.Sprint(e.gateway.Network, e.gateway.DNS, e.gateway.Hosts), p.Seccomp))
	name, labels := objects.GatewayName(ref), objects.EnvironmentLabels(ref, objects.RoleGateway)
	c, err := e.engine.Container(ctx, name)
	if err == nil {
		if err := e.engine.CheckLabels("container", name, c.Config.Labels, labels); err != nil {
			return err
		}
		if c.State.Running && c.Config.Image == reference {
			return nil
		}
		if c.Config.Image != reference {
			err = errors.Join(e.engine.RemoveContainer(ctx, c.ID), e.engine.RemoveImages(ctx, ref, objects.RoleProgram, reference))
			if err != nil {
				return err
			}
			err = e.createGateway(ctx, ref, reference, p)
		}
	} else if sandbox.CodeOf(err) == sandbox.NotFound {
		err = e.createGateway(ctx, ref, reference, p)
	}
	if err != nil && sandbox.CodeOf(err) != sandbox.Conflict { // another caller creates it
		return err
	}
	return e.engine.StartContainer(ctx, name)
}

// createGateway creates the container, with its volume and image. Errors: NotFound if the engine has no guest volume of
// the environment: its removal, which takes the gateway along, begins with those.
func (e *Executor) createGateway(ctx context.Context, ref driver.EnvironmentRef, reference string, p engine.Program) error {
	if err := e.checkProvisioned(ctx, ref); err != nil {
		return err
	}
	err := e.createGatewayParts(ctx, ref, reference, p)
	// Another caller may have removed the environment meanwhile. What was made since goes even if ctx has ended.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.ChangeLimit)
	defer cancel()
	gone := e.checkProvisioned(bounded, ref)
	if sandbox.CodeOf(gone) != sandbox.NotFound {
		return err
	}
	return errors.Join(gone, e.removeGateway(bounded, ref), e.relays.Remove(bounded, ref.LedgerID, ref.Instance))
}

func (e *Executor) createGatewayParts(
	ctx context.Context, ref driver.EnvironmentRef, reference string, p engine.Program,
) error {
	if err := e.engine.EnsureVolume(ctx, objects.EgressVolume(ref), objects.EnvironmentLabels(ref, objects.RoleEgress)); err != nil {
		return err
	}
	if err := e.ensureGatewayImage(ctx, ref, reference, p); err != nil {
		return err
	}
	_, err := e.engine.CreateContainer(ctx, "container", objects.GatewayName(ref), gatewayConfig(ref, reference), e.gatewayHost(ref, p.Seccomp))
	return err
}

func gatewayConfig(ref driver.EnvironmentRef, reference string) *dockerapi.ContainerConfig {
	return &dockerapi.ContainerConfig{
		Image:       reference,
		Labels:      objects.EnvironmentLabels(ref, objects.RoleGateway),
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
		// Not NoCopy: the engine gives the new volume the owner that the image sets, the gateway's user.
		Mounts:         []dockerapi.Mount{engine.VolumeMount(objects.EgressVolume(ref), gateway.Root, objects.EnvironmentLabels(ref, objects.RoleEgress))},
		NetworkMode:    on,
		DNS:            e.gateway.DNS,
		ExtraHosts:     e.gateway.Hosts,
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges", confine.SeccompOption + profile},
		IpcMode:        dockerapi.IPCModePrivate,
		Sysctls:        confine.Sysctls(),
		// It restarts automatically. Until then its sandboxes have no network.
		RestartPolicy: dockerapi.RestartPolicy{Name: dockerapi.RestartPolicyUnlessStopped},
		LogConfig:     dockerapi.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "10m", "max-file": "3"}},
		Resources:     dockerapi.Resources{Memory: gatewayMemory, MemorySwap: gatewayMemory, PidsLimit: &pids},
	}
}

func (e *Executor) ensureGatewayImage(ctx context.Context, ref driver.EnvironmentRef,
	reference string, p engine.Program) error {
	labels := objects.EnvironmentLabels(ref, objects.RoleProgram)
	there, err := e.engine.FindOwnImage(ctx, reference, labels)
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
		err = tw.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg,
			Name:     strings.TrimPrefix(gateway.Path, "/"),
			Mode:     0o755,
			Size:     int64(len(p.Binary)),
		})
	}
	if err == nil {
		_, err = tw.Write(p.Binary)
	}
	if err = errors.Join(err, tw.Close()); err != nil {
		return sandbox.Errorf(sandbox.Failed, "docker: pack the gateway of environment %s: %w", ref.EnvironmentID, err)
	}
	return e.engine.ImportImage(ctx, reference, labels, bytes.NewReader(layer.Bytes()))
}

// removeGateway removes an environment's gateway with its volume and images. Absent is success.
func (e *Executor) removeGateway(ctx context.Context, ref driver.EnvironmentRef) error {
	e.closeGatewayClient(ref)
	name, labels := objects.GatewayName(ref), objects.EnvironmentLabels(ref, objects.RoleGateway)
	c, err := e.engine.Container(ctx, name)
	if err == nil {
		if err = e.engine.CheckLabels("container", name, c.Config.Labels, labels); err == nil {
			err = e.engine.RemoveContainer(ctx, c.ID)
		}
	}
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	if err := e.engine.RemoveVolume(ctx, objects.EgressVolume(ref), objects.EnvironmentLabels(ref, objects.RoleEgress)); err != nil {
		return err
	}
	return e.engine.RemoveImages(ctx, ref, objects.RoleProgram, "")
}
