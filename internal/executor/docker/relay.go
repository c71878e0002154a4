package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/confine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A ledger has one relay on each engine: a container of an image with only the guest's program, and a volume
// with a directory for each sandbox. A sandbox sees only its own directory of the volume, bound by its path
// on the engine's host. The relay has no network. It runs as root with only the capability CHOWN, to give
// each socket to process 1 of its sandbox. With user namespaces, this is the namespace's root.

// Limits of a relay's container. It has at most 24 connections for each of 4096 sandboxes. Idle connections
// have no buffers.
const (
	relayMemory       = 256 << 20
	relayHeap         = "200MiB" // less than that, so that it collects garbage before the kernel kills it
	relayPIDs   int64 = 128
)

// relayRef names the relay of a ledger on an engine.
type relayRef struct{ ledgerID, instance string }

func relayOf(h driver.Handle) relayRef { return relayRef{h.LedgerID, h.Instance} }

func (r relayRef) name() string { return objects.RelayName(r.ledgerID) }

func (r relayRef) volume() string { return objects.ChannelsVolume(r.ledgerID) }

// image is named by content, like a template.
func (r relayRef) image(p engine.Program) string { return r.name() + ":" + p.Hash }

func (r relayRef) labels(of objects.Role) map[string]string {
	return objects.LedgerLabels(r.ledgerID, r.instance, of)
}

// check rejects ids that cannot be part of a name.
func (r relayRef) check() error {
	return objects.CheckLedger(r.ledgerID, r.instance)
}

// ensureRelay starts a ledger's relay. It keeps a running one: otherwise reconcilers of two releases would
// replace it in turn.
func (e *Executor) ensureRelay(ctx context.Context, r relayRef) error {
	c, err := e.lookUpRelay(ctx, r)
	switch {
	case err == nil && (c.State.Paused || c.State.Restarting): // the engine may wait for a minute before it restarts one
		err = e.engine.RemoveContainer(ctx, c.ID) // its state is kept in its volume
	case err == nil && c.State.Running:
		return nil
	case sandbox.CodeOf(err) == sandbox.NotFound:
		err = nil
	}
	if err != nil {
		return err
	}
	return e.startRelay(ctx, r)
}

// relayAnswer is how long a relay may take to answer: a millisecond, plus the delay of a busy machine.
const relayAnswer = 4 * time.Second

// reviveRelay repairs a relay that did not answer. It replaces one that runs and still does not answer:
// connections that the relay lent continue without it, and sessions on others reconnect. Errors: NotFound if the
// engine has nothing else of the ledger, as its last environment took the relay along.
func (e *Executor) reviveRelay(ctx context.Context, r relayRef) error {
	c, err := e.lookUpRelay(ctx, r)
	if err == nil && c.State.Running && !c.State.Paused && !c.State.Restarting {
		if err := e.relayClientOf(r).Probe(ctx, relayAnswer); !errors.Is(err, relay.ErrSilent) {
			return nil // it answers, has just started, or its engine does not answer
		}
		e.engine.Log.Warn("docker: replacing a relay that runs but does not answer", "ledger", r.ledgerID, "container", c.ID)
		if err := e.engine.RemoveContainer(ctx, c.ID); err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return err
		}
	}
	used, err := e.hasOthers(ctx, r)
	if err != nil {
		return err
	}
	if !used {
		return sandbox.Errorf(sandbox.NotFound, "docker: the engine has no sandbox or environment of ledger %s", r.ledgerID)
	}
	if err := e.ensureRelay(ctx, r); err != nil {
		return err
	}
	return e.removeRelay(ctx, r) // only if another replica has removed the last environment meanwhile
}

// renewRelay makes this release's relay run for a ledger. If it replaces another one, carriers break and
// their sessions continue.
func (e *Executor) renewRelay(ctx context.Context, r relayRef) error {
	p, err := e.engine.GuestFor(ctx, r.instance)
	if err != nil {
		return err
	}
	c, err := e.lookUpRelay(ctx, r)
	if err == nil && c.Config.Image != r.image(p) {
		if err = e.engine.RemoveContainer(ctx, c.ID); err == nil {
			err = e.removeRelayImages(ctx, r, r.image(p))
		}
	}
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	return e.ensureRelay(ctx, r)
}

// lookUpRelay inspects the container. Errors: as lookUp, and as checkLabels.
func (e *Executor) lookUpRelay(ctx context.Context, r relayRef) (dockerapi.ContainerInspect, error) {
	if err := r.check(); err != nil {
		return dockerapi.ContainerInspect{}, err
	}
	c, err := e.engine.Container(ctx, r.name())
	if err == nil {
		err = e.engine.CheckLabels("container", r.name(), c.Config.Labels, r.labels(objects.RoleRelay))
	}
	return c, err
}

// startRelay creates the container if needed, and starts it.
func (e *Executor) startRelay(ctx context.Context, r relayRef) error {
	return engine.Await(ctx, "container "+r.name()+" runs", sharedLimit, func(ctx context.Context) (bool, error) {
		err := e.tryRelay(ctx, r)
		if sandbox.CodeOf(err) == sandbox.NotFound { // another caller removed it, or reserved the name without a container yet
			return false, nil
		}
		return err == nil, err
	})
}

// sharedLimit limits the creation of a container that several callers create and remove.
const sharedLimit = 30 * time.Second

// tryRelay is one attempt of startRelay. Errors: NotFound if it ran between two steps of another caller.
func (e *Executor) tryRelay(ctx context.Context, r relayRef) error {
	p, err := e.engine.GuestFor(ctx, r.instance)
	if err != nil {
		return err
	}
	if err := e.engine.Confirm(ctx, r.instance); err != nil { // never create objects on another engine
		return err
	}
	if err := e.engine.EnsureVolume(ctx, r.volume(), r.labels(objects.RoleChannels)); err != nil {
		return err
	}
	if err := e.ensureRelayImage(ctx, r, p); err != nil {
		return err
	}
	_, err = e.engine.CreateContainer(ctx, "container", r.name(), relayConfig(r, p), relayHost(r, p.Seccomp))
	if err != nil && sandbox.CodeOf(err) != sandbox.Conflict { // it exists, or another caller creates it
		return err
	}
	return e.engine.StartContainer(ctx, r.name())
}

func relayConfig(r relayRef, p engine.Program) *dockerapi.ContainerConfig {
	return &dockerapi.ContainerConfig{
		Image:       r.image(p),
		Labels:      r.labels(objects.RoleRelay),
		Hostname:    "relay",
		User:        "0:0",
		Env:         []string{"GOMEMLIMIT=" + relayHeap},
		Entrypoint:  []string{relay.Path, "relay", "serve", "-root", relay.Root},
		Healthcheck: &dockerapi.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
	}
}

func relayHost(r relayRef, profile string) *dockerapi.HostConfig {
	pids, noInit := relayPIDs, false
	channels := engine.VolumeMount(r.volume(), relay.Root, r.labels(objects.RoleChannels))
	channels.VolumeOptions.NoCopy = true // its directories belong to the relay, whatever the image contains there
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
		// It restarts with the engine. Until then no sandbox can be reached, but sandboxes keep running. The
		// first use starts a relay that ended otherwise.
		RestartPolicy: dockerapi.RestartPolicy{Name: dockerapi.RestartPolicyUnlessStopped},
		LogConfig:     dockerapi.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}},
		Resources: dockerapi.Resources{Memory: relayMemory, MemorySwap: relayMemory, PidsLimit: &pids,
			Ulimits: []*dockerapi.Ulimit{{Name: "core"}}}, // open files: the engine's limit, because it refuses a higher one
	}
}

// ensureRelayImage creates the image unless the engine has it.
func (e *Executor) ensureRelayImage(ctx context.Context, r relayRef, p engine.Program) error {
	labels := r.labels(objects.RoleRelayCode)
	there, err := e.engine.FindOwnImage(ctx, r.image(p), labels)
	if there || err != nil {
		return err
	}
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	for dir := relay.Root; dir != "/" && err == nil; dir = path.Dir(dir) {
		err = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755})
	}
	if err == nil {
		err = tw.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg,
			Name:     strings.TrimPrefix(relay.Path, "/"),
			Mode:     engine.GuestMode,
			Size:     int64(len(p.Binary)),
		})
	}
	if err == nil {
		_, err = tw.Write(p.Binary)
	}
	if err = errors.Join(err, tw.Close()); err != nil {
		return sandbox.Errorf(sandbox.Failed, "docker: pack the relay of ledger %s: %w", r.ledgerID, err)
	}
	return e.engine.ImportImage(ctx, r.image(p), labels, bytes.NewReader(layer.Bytes()))
}

// removeRelay removes a ledger's relay with its volume and images, unless the engine still has anything else
// of the ledger.
func (e *Executor) removeRelay(ctx context.Context, r relayRef) error {
	if used, err := e.hasOthers(ctx, r); used || err != nil {
		return err
	}
	e.leaveRelay(r)
	c, err := e.lookUpRelay(ctx, r)
	if err == nil {
		err = e.engine.RemoveContainer(ctx, c.ID)
	}
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	if err := e.engine.RemoveVolume(ctx, r.volume(), r.labels(objects.RoleChannels)); err != nil {
		return err
	}
	return e.removeRelayImages(ctx, r, "")
}

// hasOthers reports whether the engine has anything of a ledger besides its relay and its witness.
// Environments always have volumes or images there, and sandboxes containers.
func (e *Executor) hasOthers(ctx context.Context, r relayRef) (bool, error) {
	f := objects.Filter(map[string]string{objects.LabelProvider: objects.ProviderName, objects.LabelLedger: r.ledgerID})
	containers, err := e.engine.ListContainers(ctx, "containers of ledger", r.ledgerID, f)
	if err != nil {
		return false, err
	}
	volumes, err := e.engine.ListVolumes(ctx, "volumes of ledger", r.ledgerID, f)
	if err != nil {
		return false, err
	}
	images, err := e.engine.ListImages(ctx, "images of ledger", r.ledgerID, f)
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

// removeRelayImages removes the images of a ledger's relay except one.
func (e *Executor) removeRelayImages(ctx context.Context, r relayRef, keep string) error {
	return e.engine.RemoveLabelled(ctx, "the relay of ledger "+r.ledgerID, r.labels(objects.RoleRelayCode), keep)
}
