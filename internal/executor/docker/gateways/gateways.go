// Package gateways runs the gateways of environments, through which sandboxes reach other hosts and models. It gives
// sandboxes their path to them.
package gateways

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

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

// An environment with a restricted network or with LLM routes has a gateway: a container and a volume. The image has
// only the gateway's program. The volume has the gateway's data and a directory for each sandbox. A sandbox sees only
// its own directory, bound by its path on the engine's host. (volume-subpath would bind the whole volume on engines
// before 26.)

// Gateways are the gateways on an engine.
type Gateways struct {
	engine *engine.Engine
	config Config
	// removeRelay removes the relay of an environment's ledger, unless another object on the engine needs it.
	removeRelay func(ctx context.Context, ref driver.EnvironmentRef) error

	mu      sync.Mutex // guards what follows
	clients map[driver.EnvironmentRef]*control.Client
}

// New returns the gateways on an engine. removeRelay removes the relay of an environment's ledger, unless another
// object on the engine needs it. A call uses it if the environment was removed meanwhile.
func New(e *engine.Engine, config Config,
	removeRelay func(ctx context.Context, ref driver.EnvironmentRef) error) *Gateways {
	return &Gateways{
		engine: e, config: config, removeRelay: removeRelay, clients: make(map[driver.EnvironmentRef]*control.Client),
	}
}

// Close closes the connections to gateways.
func (gs *Gateways) Close() {
	gs.mu.Lock()
	all := slices.Collect(maps.Keys(gs.clients))
	gs.mu.Unlock()
	for _, ref := range all {
		gs.disconnect(ref)
	}
}

// Limits of a gateway's container. Its memory suffices for the maximum of 4096 connections.
const (
	memory        = 256 << 20
	heap          = "200MiB" // less than memory, so that it collects garbage before the kernel kills it
	maxPIDs int64 = 128
)

// startLimit limits the wait for a started gateway to answer.
const startLimit = engine.ChangeLimit

// Config configures how the gateways of an engine reach the Internet.
type Config struct {
	// Network is the engine's network for gateways; empty means the default bridge.
	Network string
	// DNS are the name servers of gateways, Hosts additional names as name:address. Empty means the engine's defaults.
	DNS, Hosts []string
	// Upstream is an HTTP proxy for gateways; nil means none.
	Upstream *control.Upstream
}

// Validate checks all that it can without an engine. Errors: Invalid.
func (g Config) Validate() error {
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

// Ensure starts an environment's gateway and sets its rules. It replaces a gateway of another release or with another
// configuration, which ends its connections.
func (gs *Gateways) Ensure(ctx context.Context, ref driver.EnvironmentRef, rules sandbox.Egress) error {
	if err := gs.start(ctx, ref); err != nil {
		return err
	}
	settings := control.Settings{Egress: rules, Upstream: gs.config.Upstream}
	want, err := settings.Hash()
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, "docker: gateway of environment %s: %w", ref.EnvironmentID, err)
	}
	return gs.call(ctx, ref, "set the environment's egress rules",
		func(ctx context.Context, c *control.Client) error {
			if s, err := c.Status(ctx); err != nil || s.Settings == want {
				return err
			}
			return c.Apply(ctx, settings)
		})
}

// checkProvisioned checks that an environment was provisioned and not removed since. Errors: NotFound.
func (gs *Gateways) checkProvisioned(ctx context.Context, ref driver.EnvironmentRef) error {
	found, err := gs.engine.VolumesOf(ctx, ref, objects.RoleGuest)
	if err == nil && len(found) == 0 {
		return sandbox.Errorf(sandbox.NotFound, "docker: the engine has no environment %s", ref.EnvironmentID)
	}
	return err
}

// start starts the container. It sets no rules.
func (gs *Gateways) start(ctx context.Context, ref driver.EnvironmentRef) error {
	p, err := gs.engine.ProgramFor(ctx, "gateway", ref.Instance, gateway.Binary)
	if err != nil {
		return err
	}
	reference := objects.GatewayImage(ref,
		objects.Hash(p.Hash, fmt.Sprint(gs.config.Network, gs.config.DNS, gs.config.Hosts), p.Seccomp))
	name, labels := objects.GatewayName(ref), objects.EnvironmentLabels(ref, objects.RoleGateway)
	c, err := gs.engine.Container(ctx, name)
	if err == nil {
		if err := gs.engine.CheckLabels("container", name, c.Config.Labels, labels); err != nil {
			return err
		}
		if c.State.Running && c.Config.Image == reference {
			return nil
		}
		if c.Config.Image != reference {
			err = errors.Join(gs.engine.RemoveContainer(ctx, c.ID),
				gs.engine.RemoveImages(ctx, ref, objects.RoleProgram, reference))
			if err != nil {
				return err
			}
			err = gs.create(ctx, ref, reference, p)
		}
	} else if sandbox.CodeOf(err) == sandbox.NotFound {
		err = gs.create(ctx, ref, reference, p)
	}
	if err != nil && sandbox.CodeOf(err) != sandbox.Conflict { // another caller creates it
		return err
	}
	return gs.engine.StartContainer(ctx, name)
}

// create creates the container with its volume and image. Errors: NotFound if the engine has no guest volume of the
// environment. Deprovision removes those first and the gateway afterwards.
func (gs *Gateways) create(ctx context.Context, ref driver.EnvironmentRef, reference string, p engine.Program) error {
	if err := gs.checkProvisioned(ctx, ref); err != nil {
		return err
	}
	err := gs.createParts(ctx, ref, reference, p)
	// Another caller may have removed the environment meanwhile. Then remove what this call created, even if ctx has
	// ended.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.ChangeLimit)
	defer cancel()
	gone := gs.checkProvisioned(bounded, ref)
	if sandbox.CodeOf(gone) != sandbox.NotFound {
		return err
	}
	return errors.Join(gone, gs.Remove(bounded, ref), gs.removeRelay(bounded, ref))
}

func (gs *Gateways) createParts(
	ctx context.Context, ref driver.EnvironmentRef, reference string, p engine.Program,
) error {
	if err := gs.engine.EnsureVolume(ctx, objects.EgressVolume(ref), egressLabels(ref)); err != nil {
		return err
	}
	if err := gs.ensureImage(ctx, ref, reference, p); err != nil {
		return err
	}
	_, err := gs.engine.CreateContainer(ctx, "container", objects.GatewayName(ref), containerConfig(ref, reference),
		gs.hostConfig(ref, p.Seccomp))
	return err
}

// egressLabels are the labels of a gateway's volume.
func egressLabels(ref driver.EnvironmentRef) map[string]string {
	return objects.EnvironmentLabels(ref, objects.RoleEgress)
}

func containerConfig(ref driver.EnvironmentRef, reference string) *dockerapi.ContainerConfig {
	return &dockerapi.ContainerConfig{
		Image:       reference,
		Labels:      objects.EnvironmentLabels(ref, objects.RoleGateway),
		Hostname:    "gateway",
		User:        fmt.Sprintf("%d:%d", gateway.UserID, gateway.GroupID),
		Env:         []string{"GOMEMLIMIT=" + heap},
		Entrypoint:  []string{gateway.Path, "serve", "-root", gateway.Root},
		Healthcheck: &dockerapi.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
	}
}

func (gs *Gateways) hostConfig(ref driver.EnvironmentRef, profile string) *dockerapi.HostConfig {
	pids := maxPIDs
	on := dockerapi.NetworkMode(gs.config.Network)
	if on == "" {
		on = dockerapi.NetworkBridge
	}
	return &dockerapi.HostConfig{
		// Not NoCopy: the engine gives the new volume the owner in the image, the gateway's user.
		Mounts:         []dockerapi.Mount{engine.VolumeMount(objects.EgressVolume(ref), gateway.Root, egressLabels(ref))},
		NetworkMode:    on,
		DNS:            gs.config.DNS,
		ExtraHosts:     gs.config.Hosts,
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges", confine.SeccompOption + profile},
		IpcMode:        dockerapi.IPCModePrivate,
		Sysctls:        confine.Sysctls(),
		// It restarts automatically. Until then its sandboxes have no network.
		RestartPolicy: dockerapi.RestartPolicy{Name: dockerapi.RestartPolicyUnlessStopped},
		LogConfig:     dockerapi.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "10m", "max-file": "3"}},
		Resources:     dockerapi.Resources{Memory: memory, MemorySwap: memory, PidsLimit: &pids},
	}
}

// ensureImage creates the image unless the engine has it.
func (gs *Gateways) ensureImage(ctx context.Context, ref driver.EnvironmentRef,
	reference string, p engine.Program) error {
	return gs.engine.EnsureProgramImage(ctx, engine.ProgramImage{
		Reference: reference, Labels: objects.EnvironmentLabels(ref, objects.RoleProgram),
		Of: "gateway of environment " + ref.EnvironmentID, Path: gateway.Path, Mode: 0o755,
		Root: gateway.Root, UserID: gateway.UserID, GroupID: gateway.GroupID,
	}, p)
}

// Remove removes an environment's gateway with its volume and images. An absent gateway is success.
func (gs *Gateways) Remove(ctx context.Context, ref driver.EnvironmentRef) error {
	gs.disconnect(ref)
	name, labels := objects.GatewayName(ref), objects.EnvironmentLabels(ref, objects.RoleGateway)
	c, err := gs.engine.Container(ctx, name)
	if err == nil {
		if err = gs.engine.CheckLabels("container", name, c.Config.Labels, labels); err == nil {
			err = gs.engine.RemoveContainer(ctx, c.ID)
		}
	}
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	if err := gs.engine.RemoveVolume(ctx, objects.EgressVolume(ref), egressLabels(ref)); err != nil {
		return err
	}
	return gs.engine.RemoveImages(ctx, ref, objects.RoleProgram, "")
}
