// Package relays runs the relays of ledgers, which carry connections to sandboxes. It also connects to them.
package relays

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/confine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A ledger has one relay on each engine: a container of an image with only the guest's program, and a volume with a
// directory for each sandbox. A sandbox sees only its own directory, bound by its path on the engine's host. The relay
// has no network. It runs as root with only the capability CHOWN, to give each socket to process 1 of its sandbox. With
// user namespaces, it is the namespace's root.

// Limits of a relay's container. It has at most 24 connections for each of 4096 sandboxes. Idle connections
// have no buffers.
const (
	memory        = 256 << 20
	heap          = "200MiB" // less than memory, so that it collects garbage before the kernel kills it
	maxPIDs int64 = 128
)

// Relays are the relays on an engine.
type Relays struct {
	engine *engine.Engine

	mu      sync.Mutex // guards what follows
	clients map[ref]*client
}

// New returns the relays on an engine.
func New(e *engine.Engine) *Relays {
	return &Relays{engine: e, clients: make(map[ref]*client)}
}

// Close closes the connections to relays.
func (rs *Relays) Close() {
	rs.mu.Lock()
	all := slices.Collect(maps.Keys(rs.clients))
	rs.mu.Unlock()
	for _, r := range all {
		rs.leave(r)
	}
}

// ref names the relay of a ledger on an engine.
type ref struct{ ledgerID, instance string }

func refOf(h driver.Handle) ref { return ref{h.LedgerID, h.Instance} }

func (r ref) name() string { return objects.RelayName(r.ledgerID) }

func (r ref) volume() string { return objects.ChannelsVolume(r.ledgerID) }

// image is named by content, like a template.
func (r ref) image(p engine.Program) string { return r.name() + ":" + p.Hash }

func (r ref) labels(of objects.Role) map[string]string {
	return objects.LedgerLabels(r.ledgerID, r.instance, of)
}

// check rejects ids that cannot be part of a name.
func (r ref) check() error {
	return objects.CheckLedger(r.ledgerID, r.instance)
}

// ensure starts a ledger's relay. It keeps a running one. Otherwise reconcilers of two releases would replace it in
// turn.
func (rs *Relays) ensure(ctx context.Context, r ref) error {
	c, err := rs.lookUp(ctx, r)
	switch {
	case err == nil && (c.State.Paused || c.State.Restarting): // the engine may wait a minute before it restarts one
		err = rs.engine.RemoveContainer(ctx, c.ID) // its volume keeps its state
	case err == nil && c.State.Running:
		return nil
	case sandbox.CodeOf(err) == sandbox.NotFound:
		err = nil
	}
	if err != nil {
		return err
	}
	return rs.start(ctx, r)
}

// answerLimit is how long a relay may take to answer: a millisecond plus the delay of a busy machine.
const answerLimit = 4 * time.Second

// revive repairs a relay that did not answer. If it runs and still does not answer, revive replaces it. Connections
// that it lent continue without it, and sessions on others reconnect. Errors: NotFound if the engine has nothing else
// of the ledger, because the removal of its last environment also removed the relay.
func (rs *Relays) revive(ctx context.Context, r ref) error {
	c, err := rs.lookUp(ctx, r)
	if err == nil && c.State.Running && !c.State.Paused && !c.State.Restarting {
		if err := rs.clientOf(r).Probe(ctx, answerLimit); !errors.Is(err, relay.ErrSilent) {
			return nil // it answers, has just started, or its engine does not answer
		}
		rs.engine.Log.Warn("docker: replacing a relay that runs but does not answer", "ledger", r.ledgerID, "container", c.ID)
		if err := rs.engine.RemoveContainer(ctx, c.ID); err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return err
		}
	}
	used, err := rs.hasOthers(ctx, r)
	if err != nil {
		return err
	}
	if !used {
		return sandbox.Errorf(sandbox.NotFound, "docker: the engine has no sandbox or environment of ledger %s", r.ledgerID)
	}
	if err := rs.ensure(ctx, r); err != nil {
		return err
	}
	return rs.Remove(ctx, r.ledgerID, r.instance) // only if another replica removed the last environment meanwhile
}

// Renew ensures that this release's relay runs for a ledger. If it replaces another one, carriers break and their
// sessions continue.
func (rs *Relays) Renew(ctx context.Context, ledgerID, instance string) error {
	r := ref{ledgerID, instance}
	p, err := rs.engine.GuestFor(ctx, r.instance)
	if err != nil {
		return err
	}
	c, err := rs.lookUp(ctx, r)
	if err == nil && c.Config.Image != r.image(p) {
		if err = rs.engine.RemoveContainer(ctx, c.ID); err == nil {
			err = rs.removeImages(ctx, r, r.image(p))
		}
	}
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	return rs.ensure(ctx, r)
}

// lookUp inspects the container. Errors: as for Container and CheckLabels of the engine.
func (rs *Relays) lookUp(ctx context.Context, r ref) (dockerapi.ContainerInspect, error) {
	if err := r.check(); err != nil {
		return dockerapi.ContainerInspect{}, err
	}
	c, err := rs.engine.Container(ctx, r.name())
	if err == nil {
		err = rs.engine.CheckLabels("container", r.name(), c.Config.Labels, r.labels(objects.RoleRelay))
	}
	return c, err
}

// start creates the container if needed, and starts it.
func (rs *Relays) start(ctx context.Context, r ref) error {
	return engine.Await(ctx, "container "+r.name()+" runs", sharedLimit, func(ctx context.Context) (bool, error) {
		err := rs.tryStart(ctx, r)
		// Another caller removed it, or has reserved the name but not created the container yet.
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return false, nil
		}
		return err == nil, err
	})
}

// sharedLimit limits the creation of a container that several callers create and remove.
const sharedLimit = 30 * time.Second

// tryStart is one attempt of start. Errors: NotFound if it fell between two steps of another caller.
func (rs *Relays) tryStart(ctx context.Context, r ref) error {
	p, err := rs.engine.GuestFor(ctx, r.instance)
	if err != nil {
		return err
	}
	if err := rs.engine.Confirm(ctx, r.instance); err != nil { // never create objects on another engine
		return err
	}
	if err := rs.engine.EnsureVolume(ctx, r.volume(), r.labels(objects.RoleChannels)); err != nil {
		return err
	}
	if err := rs.ensureImage(ctx, r, p); err != nil {
		return err
	}
	_, err = rs.engine.CreateContainer(ctx, "container", r.name(), config(r, p), hostConfig(r, p.Seccomp))
	if err != nil && sandbox.CodeOf(err) != sandbox.Conflict { // it exists, or another caller creates it
		return err
	}
	return rs.engine.StartContainer(ctx, r.name())
}

func config(r ref, p engine.Program) *dockerapi.ContainerConfig {
	return &dockerapi.ContainerConfig{
		Image:       r.image(p),
		Labels:      r.labels(objects.RoleRelay),
		Hostname:    "relay",
		User:        "0:0",
		Env:         []string{"GOMEMLIMIT=" + heap},
		Entrypoint:  []string{relay.Path, "relay", "serve", "-root", relay.Root},
		Healthcheck: &dockerapi.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
	}
}

func hostConfig(r ref, profile string) *dockerapi.HostConfig {
	pids, noInit := maxPIDs, false
	channels := engine.VolumeMount(r.volume(), relay.Root, r.labels(objects.RoleChannels))
	channels.VolumeOptions.NoCopy = true // the image must not change the owner of its directories
	return &dockerapi.HostConfig{
		Mounts:         []dockerapi.Mount{channels},
		NetworkMode:    dockerapi.NetworkNone,
		Init:           &noInit,
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		CapAdd:         []string{"CHOWN"},
		SecurityOpt:    []string{"no-new-privileges", confine.SeccompOption + profile},
		IpcMode:        dockerapi.IPCModePrivate,
		Sysctls:        confine.Sysctls(),
		// It restarts with the engine. Until then no sandbox is reachable, but sandboxes keep running. If it ended for
		// another reason, the first use starts it.
		RestartPolicy: dockerapi.RestartPolicy{Name: dockerapi.RestartPolicyUnlessStopped},
		LogConfig:     dockerapi.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}},
		Resources: dockerapi.Resources{Memory: memory, MemorySwap: memory, PidsLimit: &pids,
			Ulimits: []*dockerapi.Ulimit{{Name: "core"}}}, // open files: the engine refuses more than its own limit
	}
}

// ensureImage creates the image unless the engine has it.
func (rs *Relays) ensureImage(ctx context.Context, r ref, p engine.Program) error {
	return rs.engine.EnsureProgramImage(ctx, engine.ProgramImage{
		Reference: r.image(p), Labels: r.labels(objects.RoleRelayCode), Of: "relay of ledger " + r.ledgerID,
		Path: relay.Path, Mode: engine.GuestMode, Root: relay.Root,
	}, p)
}

// Remove removes a ledger's relay with its volume and images, unless the engine has, or meanwhile gets, other objects
// of the ledger.
func (rs *Relays) Remove(ctx context.Context, ledgerID, instance string) error {
	r := ref{ledgerID, instance}
	return engine.Await(ctx, "the relay of ledger "+ledgerID+" is removed", engine.RemovalLimit,
		func(ctx context.Context) (bool, error) {
			if used, err := rs.hasOthers(ctx, r); used || err != nil {
				return used, err
			}
			return rs.tryRemove(ctx, r)
		})
}

// tryRemove is one attempt of Remove. It returns false if a relay still uses the volume or the images: the relay is
// still ending, or another environment has just started it.
func (rs *Relays) tryRemove(ctx context.Context, r ref) (bool, error) {
	rs.leave(r)
	c, err := rs.lookUp(ctx, r)
	if err == nil {
		err = rs.engine.RemoveContainer(ctx, c.ID)
	}
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return false, err
	}
	_, err = rs.engine.Volume(ctx, r.volume(), r.labels(objects.RoleChannels))
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return false, err
	}
	if err == nil {
		err = rs.engine.TryRemoveVolume(ctx, r.volume())
	}
	if err == nil || sandbox.CodeOf(err) == sandbox.NotFound {
		err = rs.removeImages(ctx, r, "")
	}
	if sandbox.CodeOf(err) == sandbox.Conflict {
		return false, nil
	}
	return err == nil, err
}

// hasOthers reports whether the engine has objects of a ledger besides its relay and its witness. An environment always
// has a volume or an image there, and a sandbox a container.
func (rs *Relays) hasOthers(ctx context.Context, r ref) (bool, error) {
	f := objects.Filter(map[string]string{objects.LabelProvider: objects.ProviderName, objects.LabelLedger: r.ledgerID})
	containers, err := rs.engine.ListContainers(ctx, "containers of ledger", r.ledgerID, f)
	if err != nil {
		return false, err
	}
	volumes, err := rs.engine.ListVolumes(ctx, "volumes of ledger", r.ledgerID, f)
	if err != nil {
		return false, err
	}
	images, err := rs.engine.ListImages(ctx, "images of ledger", r.ledgerID, f)
	if err != nil {
		return false, err
	}
	others := false
	for _, c := range containers {
		others = others || !objects.OfLedger(c.Labels)
	}
	for _, v := range volumes {
		others = others || !objects.OfLedger(v.Labels)
	}
	for _, i := range images {
		others = others || !objects.OfLedger(i.Labels)
	}
	return others, nil
}

// removeImages removes the images of a ledger's relay except one.
func (rs *Relays) removeImages(ctx context.Context, r ref, keep string) error {
	return rs.engine.RemoveLabelled(ctx, "the relay of ledger "+r.ledgerID, r.labels(objects.RoleRelayCode), keep)
}
