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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A ledger has one relay on each engine: a container of an image with nothing but the guest's program, and a volume with
// a directory for each sandbox. Of the volume a sandbox sees its own directory only, bound by its place on the engine's
// host. The relay has no network. It runs as root with no capability but CHOWN, which gives each socket to process 1 of
// its sandbox; root of the engine's user namespace, where the engine has one.

// Bounds of a relay's container. It has at most 24 connections of each of 4096 sandboxes, which rest without a buffer.
const (
	relayMemory       = 256 << 20
	relayHeap         = "200MiB" // below that, so that it collects garbage before the kernel ends it
	relayPIDs   int64 = 128
)

// relayRef names the relay of a ledger on an engine.
type relayRef struct{ ledgerID, instance string }

func relayOf(h driver.Handle) relayRef { return relayRef{h.LedgerID, h.Instance} }

func (r relayRef) name() string   { return "sandbox-" + r.ledgerID + "-relay" }
func (r relayRef) volume() string { return "sandbox-" + r.ledgerID + "-channels" }

// image is named by what is in it, like a seed.
func (r relayRef) image(p program) string { return r.name() + ":" + p.hash }

func (r relayRef) labels(of role) map[string]string {
	return map[string]string{labelProvider: providerName, labelLedger: r.ledgerID, labelInstance: r.instance, labelRole: string(of)}
}

// check refuses what cannot be part of a name.
func (r relayRef) check() error {
	return checkRef(driver.EnvironmentRef{LedgerID: r.ledgerID, EnvironmentID: "any", Instance: r.instance})
}

// ensureRelay makes a ledger's relay run. One that runs is left alone: reconcilers of two releases would take turns.
func (e *Executor) ensureRelay(ctx context.Context, r relayRef) error {
	c, err := e.lookUpRelay(ctx, r)
	switch {
	case err == nil && (c.State.Paused || c.State.Restarting): // the engine may wait for a minute before it restarts one
		err = e.removeContainer(ctx, c.ID) // its state is in its volume
	case err == nil && c.State.Running:
		return nil
	case isCode(err, sandbox.NotFound):
		err = nil
	}
	if err != nil {
		return err
	}
	return e.startRelay(ctx, r)
}

// relayAnswer is how long a relay may take to answer, beyond what a busy machine makes of a millisecond.
const relayAnswer = 4 * time.Second

// reviveRelay makes a relay work that did not answer. One that runs and still does not answer is replaced: connections that
// it lent go on without it, and sessions on others get new ones.
func (e *Executor) reviveRelay(ctx context.Context, r relayRef) error {
	c, err := e.lookUpRelay(ctx, r)
	if err != nil || !c.State.Running || c.State.Paused || c.State.Restarting {
		return e.ensureRelay(ctx, r)
	}
	if err := e.linkToRelay(r).Probe(ctx, relayAnswer); !errors.Is(err, relay.ErrSilent) {
		return nil // it answers, or has just started, or its engine does not answer
	}
	e.log.Warn("replace a relay that runs and does not answer", "ledger", r.ledgerID, "container", c.ID)
	if err := e.removeContainer(ctx, c.ID); err != nil && !isCode(err, sandbox.NotFound) {
		return err
	}
	return e.ensureRelay(ctx, r)
}

// renewRelay makes a ledger's relay run this release. Carriers break when that replaces another one; their sessions go on.
func (e *Executor) renewRelay(ctx context.Context, r relayRef) error {
	p, err := e.guestFor(ctx, r.instance)
	if err != nil {
		return err
	}
	c, err := e.lookUpRelay(ctx, r)
	if err == nil && c.Config.Image != r.image(p) {
		if err = e.removeContainer(ctx, c.ID); err == nil {
			err = e.removeRelayImages(ctx, r, r.image(p))
		}
	}
	if err != nil && !isCode(err, sandbox.NotFound) {
		return err
	}
	return e.ensureRelay(ctx, r)
}

// lookUpRelay inspects the container. Errors: as lookUp, and as checkLabels.
func (e *Executor) lookUpRelay(ctx context.Context, r relayRef) (dockerapi.ContainerInspect, error) {
	if err := r.check(); err != nil {
		return dockerapi.ContainerInspect{}, err
	}
	c, err := e.lookUp(ctx, r.name())
	if err == nil {
		err = e.checkLabels("container", r.name(), c.Config.Labels, r.labels(roleRelay))
	}
	return c, err
}

// startRelay creates the container unless it is there, and starts it.
func (e *Executor) startRelay(ctx context.Context, r relayRef) error {
	return await(ctx, "container "+r.name()+" runs", sharedLimit, func(ctx context.Context) (bool, error) {
		err := e.tryRelay(ctx, r)
		if isCode(err, sandbox.NotFound) { // another caller removed what was there, or has the name and no container yet
			return false, nil
		}
		return err == nil, err
	})
}

// sharedLimit bounds the making of a container that several callers make and remove.
const sharedLimit = 30 * time.Second

// tryRelay is startRelay. Errors: NotFound when it came between two steps of another caller.
func (e *Executor) tryRelay(ctx context.Context, r relayRef) error {
	p, err := e.guestFor(ctx, r.instance)
	if err != nil {
		return err
	}
	if err := e.confirm(ctx, r.instance); err != nil { // nothing is made on another engine
		return err
	}
	if err := e.ensureVolume(ctx, r.volume(), r.labels(roleChannels)); err != nil {
		return err
	}
	if err := e.ensureRelayImage(ctx, r, p); err != nil {
		return err
	}
	err = e.do(ctx, change("create container", r.name(), sandbox.ReasonCreationFailed), func(ctx context.Context) error {
		_, err := e.api.ContainerCreate(ctx, relayConfig(r, p), relayHost(r, p.seccomp), nil, nil, r.name())
		return err
	})
	if err != nil && !isCode(err, sandbox.Conflict) { // it exists, or another caller makes it
		return err
	}
	return e.do(ctx, change("start container", r.name(), sandbox.ReasonStartFailed), func(ctx context.Context) error {
		return e.api.ContainerStart(ctx, r.name(), dockerapi.StartOptions{})
	})
}

func relayConfig(r relayRef, p program) *dockerapi.ContainerConfig {
	return &dockerapi.ContainerConfig{
		Image:       r.image(p),
		Labels:      r.labels(roleRelay),
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
	channels := volumeMount(r.volume(), relay.Root, r.labels(roleChannels))
	channels.VolumeOptions.NoCopy = true // its directories are the relay's, whatever the image has there
	return &dockerapi.HostConfig{
		Mounts:         []dockerapi.Mount{channels},
		NetworkMode:    dockerapi.NetworkNone,
		Init:           &noInit,
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		CapAdd:         []string{"CHOWN"},
		SecurityOpt:    []string{"no-new-privileges", seccompOption + profile},
		IpcMode:        dockerapi.IPCModePrivate,
		Sysctls:        sysctls(),
		// It comes back with the engine. Until then no sandbox is reached, and those that run go on. The first use of a relay
		// that has ended otherwise starts it.
		RestartPolicy: dockerapi.RestartPolicy{Name: dockerapi.RestartPolicyUnlessStopped},
		LogConfig:     dockerapi.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}},
		Resources: dockerapi.Resources{Memory: relayMemory, MemorySwap: relayMemory, PidsLimit: &pids,
			Ulimits: []*dockerapi.Ulimit{{Name: "core"}}}, // for files, the engine's limit: a higher one would be refused
	}
}

// ensureRelayImage makes the image unless the engine has it.
func (e *Executor) ensureRelayImage(ctx context.Context, r relayRef, p program) error {
	labels := r.labels(roleRelayCode)
	there, err := e.findOwnImage(ctx, r.image(p), labels)
	if there || err != nil {
		return err
	}
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	for dir := relay.Root; dir != "/" && err == nil; dir = path.Dir(dir) {
		err = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755})
	}
	if err == nil {
		err = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(relay.Path, "/"), Mode: guestMode, Size: int64(len(p.binary))})
	}
	if err == nil {
		_, err = tw.Write(p.binary)
	}
	if err = errors.Join(err, tw.Close()); err != nil {
		return sandbox.Errorf(sandbox.Failed, "docker: pack the relay of ledger %s: %w", r.ledgerID, err)
	}
	return e.importImage(ctx, r.image(p), labels, bytes.NewReader(layer.Bytes()))
}

// removeRelay removes a ledger's relay and all that it has, unless the engine still has anything else of the ledger.
func (e *Executor) removeRelay(ctx context.Context, r relayRef) error {
	if used, err := e.hasOthers(ctx, r); used || err != nil {
		return err
	}
	e.leaveRelay(r)
	c, err := e.lookUpRelay(ctx, r)
	if err == nil {
		err = e.removeContainer(ctx, c.ID)
	}
	if err != nil && !isCode(err, sandbox.NotFound) {
		return err
	}
	if err := e.removeVolume(ctx, r.volume(), r.labels(roleChannels)); err != nil {
		return err
	}
	return e.removeRelayImages(ctx, r, "")
}

// hasOthers reports whether the engine has anything of a ledger beside its relay and its witness: environments always have
// volumes or images there, and sandboxes containers.
func (e *Executor) hasOthers(ctx context.Context, r relayRef) (bool, error) {
	f := labelFilter(map[string]string{labelProvider: providerName, labelLedger: r.ledgerID})
	containers, err := fetch(ctx, e, read("list containers of ledger", r.ledgerID), func(ctx context.Context) ([]dockerapi.ContainerSummary, error) {
		return e.api.ContainerList(ctx, dockerapi.ContainerListOptions{All: true, Filters: f})
	})
	if err != nil {
		return false, err
	}
	volumes, err := fetch(ctx, e, read("list volumes of ledger", r.ledgerID), func(ctx context.Context) (dockerapi.VolumeListResponse, error) {
		return e.api.VolumeList(ctx, dockerapi.VolumeListOptions{Filters: f})
	})
	if err != nil {
		return false, err
	}
	images, err := fetch(ctx, e, read("list images of ledger", r.ledgerID), func(ctx context.Context) ([]dockerapi.ImageSummary, error) {
		return e.api.ImageList(ctx, dockerapi.ImageListOptions{Filters: f})
	})
	if err != nil {
		return false, err
	}
	others := false
	for _, c := range containers {
		others = others || !ofLedger(c.Labels)
	}
	for _, v := range volumes.Volumes {
		others = others || !ofLedger(v.Labels)
	}
	for _, i := range images {
		others = others || !ofLedger(i.Labels)
	}
	return others, nil
}

// ofLedger reports whether an object is the ledger's, and no environment's.
func ofLedger(labels map[string]string) bool {
	switch role(labels[labelRole]) {
	case roleRelay, roleChannels, roleRelayCode, roleWitness:
		return true
	}
	return false
}

// removeRelayImages removes the images of a ledger's relay but one.
func (e *Executor) removeRelayImages(ctx context.Context, r relayRef, keep string) error {
	return e.removeLabelled(ctx, "the relay of ledger "+r.ledgerID, r.labels(roleRelayCode), keep)
}
