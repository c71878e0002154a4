package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxConfig bounds config.json, which travels as an argument of process 1: Linux takes 128 KiB.
const maxConfig = 96 << 10

// deadlineFlag is the guest's argument that names the sandbox's deadline by the ledger's clock, in Unix microseconds.
const deadlineFlag = "-deadline"

// Spawn implements driver.Lifecycle. The container's name is the lock: the caller that creates it wins,
// and it is only created once its volumes are filled.
func (e *Executor) Spawn(ctx context.Context, spec driver.SandboxSpec) error {
	if err := checkSpec(spec); err != nil {
		return err
	}
	end := endOf(spec)
	s, program, err := e.prepareSpawn(ctx, spec)
	if errors.Is(err, errMade) {
		return e.join(ctx, spec.Handle)
	}
	if err != nil {
		return err
	}
	err = e.fillVolumes(ctx, spec, s)
	if errors.Is(err, errMade) {
		return e.join(ctx, spec.Handle)
	}
	if err != nil {
		return err
	}
	// The carrier keeps other callers from filling the volumes again, which process 1 is about to hand over. It is removed
	// while the container starts.
	discard := sync.OnceFunc(func() { e.discardCarrier(ctx, spec.Handle) })
	defer discard()
	out, err := e.openWayOut(ctx, spec)
	if err != nil {
		return err
	}
	names, err := e.accountsOf(ctx, s)
	if err != nil {
		return err
	}
	env := environ(spec, out, names.nameOf(program.identityOf(spec)))
	shown, err := e.admitChannel(ctx, spec.Handle, names.with(program.identityOf(spec), env["HOME"]))
	if err != nil {
		return err
	}
	return e.createAndStart(ctx, spec, end, parts{seed: s, out: out, env: env, shown: shown, discard: discard})
}

// prepareSpawn finds what a spawn begins with, in requests at the same time. Errors: errMade when the container exists.
func (e *Executor) prepareSpawn(ctx context.Context, spec driver.SandboxSpec) (s seed, p program, err error) {
	if p, err = e.guestFor(ctx, spec.Instance); err != nil { // known after the first time
		return s, p, err
	}
	var made, noImage, noGuest error
	var img dockerapi.ImageInspect
	var looks sync.WaitGroup
	looks.Go(func() { _, made = e.lookUp(ctx, sandboxName(spec.Handle)) })
	looks.Go(func() { img, noImage = e.findImage(ctx, spec.Image, spec.Instance) })
	looks.Go(func() {
		noGuest = e.findGuest(ctx, newSeed(environmentOf(spec.Handle), dockerapi.ImageInspect{}, p, spec.Confinement))
	})
	looks.Wait()
	switch {
	case made == nil:
		return s, p, errMade
	case !isCode(made, sandbox.NotFound):
		return s, p, made
	}
	return newSeed(environmentOf(spec.Handle), img, p, spec.Confinement), p, cmp.Or(noImage, noGuest)
}

// parts are what a container is made with, beside its specification.
type parts struct {
	seed  seed
	out   wayOut
	env   map[string]string
	shown []dockerapi.Mount // of its directory at the relay
	// discard removes the carrier.
	discard func()
}

// discardCarrier removes a carrier that has done its work. One that stays does no harm: Kill removes it.
func (e *Executor) discardCarrier(ctx context.Context, h driver.Handle) {
	if err := e.removeContainer(ctx, carrierName(h)); err != nil {
		e.log.WarnContext(ctx, "docker: removing a carrier; it is removed with its sandbox", "sandbox", h.SandboxID, "error", err)
	}
}

// findGuest finds the guest volume that Provision made. Its label also shows that this is the
// specification's engine, which would otherwise cost the engine's slowest question on every spawn.
func (e *Executor) findGuest(ctx context.Context, s seed) error {
	labels := environmentLabels(s.ref, roleGuest)
	v, err := fetch(ctx, e, read("look for volume", s.volume()), func(ctx context.Context) (dockerapi.Volume, error) {
		return e.api.VolumeInspect(ctx, s.volume())
	})
	if isCode(err, sandbox.NotFound) { // unused volumes were pruned
		if err := e.confirm(ctx, s.ref.Instance); err != nil {
			return err
		}
		return e.ensureVolume(ctx, s.volume(), labels)
	}
	if err != nil {
		return err
	}
	return e.checkLabels("volume", s.volume(), v.Labels, labels)
}

func (e *Executor) createAndStart(ctx context.Context, spec driver.SandboxSpec, end time.Time, p parts) error {
	name := sandboxName(spec.Handle)
	ends, err := e.endsAt(ctx, spec.Instance, end)
	if err != nil {
		return err
	}
	config, err := containerConfig(spec, ends, p)
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, "docker: sandbox %s: %w", spec.SandboxID, err)
	}
	err = e.do(ctx, change("create container", name, sandbox.ReasonCreationFailed), func(ctx context.Context) error {
		_, err := e.api.ContainerCreate(ctx, config, hostConfig(spec, p), nil, nil, name)
		return err
	})
	if isCode(err, sandbox.Conflict) { // another caller makes it
		return e.join(ctx, spec.Handle)
	}
	if err != nil {
		return err
	}
	var discarding sync.WaitGroup
	discarding.Go(p.discard)
	defer discarding.Wait()
	return e.start(ctx, spec.Handle)
}

// join brings up the container that another caller is making: its name is taken before it is there.
func (e *Executor) join(ctx context.Context, h driver.Handle) error {
	return await(ctx, "container "+sandboxName(h)+" is made", changeLimit, func(ctx context.Context) (bool, error) {
		c, err := e.inspect(ctx, h)
		if isCode(err, sandbox.NotFound) {
			return false, nil
		}
		if err == nil {
			err = e.bringUp(ctx, h, c)
		}
		return err == nil, err
	})
}

func checkSpec(spec driver.SandboxSpec) error {
	if err := checkHandle(spec.Handle); err != nil {
		return err
	}
	if err := checkNetwork(spec.Network); err != nil {
		return err
	}
	var f []sandbox.Field
	if spec.Deadline.IsZero() {
		f = append(f, sandbox.Field{Name: "deadline", Problem: "must be set: no sandbox runs for ever"})
	}
	if len(spec.Config) > maxConfig {
		f = append(f, sandbox.Field{Name: "config", Problem: fmt.Sprintf("must be at most %d bytes, not %d", maxConfig, len(spec.Config))})
	}
	return sandbox.InvalidFields("docker: sandbox "+spec.SandboxID, f)
}

// bringUp makes a sandbox that was found take commands, whatever an earlier call left.
func (e *Executor) bringUp(ctx context.Context, h driver.Handle, c dockerapi.ContainerInspect) error {
	switch stateOf(c.State) {
	case sandbox.StateRunning:
		return nil
	case sandbox.StateStopped:
		return sandbox.Errorf(sandbox.Failed, "docker: sandbox %s: it was made before and has stopped with exit code %d", h.SandboxID, c.State.ExitCode).
			WithReason(sandbox.ReasonStartFailed)
	default:
		return e.Wake(ctx, h)
	}
}

func (e *Executor) start(ctx context.Context, h driver.Handle) error {
	err := e.do(ctx, change("start container", sandboxName(h), sandbox.ReasonStartFailed), func(ctx context.Context) error {
		return e.api.ContainerStart(ctx, sandboxName(h), dockerapi.StartOptions{})
	})
	if !isCode(err, sandbox.NotFound) {
		return err
	}
	if _, lookErr := e.inspect(ctx, h); lookErr != nil {
		return lookErr
	}
	return sandbox.Errorf(sandbox.NotFound, "docker: sandbox %s: a required resource was removed, such as its network by a prune, and is not made again: %w", h.SandboxID, err).
		WithReason(sandbox.ReasonPartMissing)
}

// fillVolumes makes the sandbox's volumes and has the engine fill them from the seed, by creating a
// carrier, which is left for the caller to remove. The engine fills only what is empty, so doing it
// twice is harmless.
func (e *Executor) fillVolumes(ctx context.Context, spec driver.SandboxSpec, s seed) error {
	h := spec.Handle
	mounts := sandboxMounts(h, s)
	if err := e.ensureOwnVolumes(ctx, spec, mounts[1:]); err != nil {
		return err
	}
	err := e.carry(ctx, h, s, mounts)
	if isCode(err, sandbox.NotFound) { // the seed is gone, or the image changed after Provision
		if err = e.ensureSeed(ctx, s); err == nil {
			err = e.carry(ctx, h, s, mounts)
		}
	}
	return err
}

// ensureOwnVolumes makes the volumes that a sandbox does not share, at the same time.
func (e *Executor) ensureOwnVolumes(ctx context.Context, spec driver.SandboxSpec, own []dockerapi.Mount) error {
	failed := make([]error, len(own)+1)
	var making sync.WaitGroup
	for i, m := range own {
		making.Go(func() { failed[i] = e.ensureSizedVolume(ctx, m.Source, m.VolumeOptions.Labels, volumeSize(spec)) })
	}
	if pooled(spec) {
		making.Go(func() {
			failed[len(own)] = e.ensureVolume(ctx, leaseVolume(spec.Handle), handleLabels(spec.Handle, roleLease))
		})
	}
	making.Wait()
	return cmp.Or(failed...)
}

// errMade: another caller has made the container, and with it the volumes.
var errMade = errors.New("the container was made meanwhile")

// carry creates a carrier. Its name lets one caller fill the volumes at a time; a carrier that
// exists, another caller's or one that a crash left, has done its work.
func (e *Executor) carry(ctx context.Context, h driver.Handle, s seed, mounts []dockerapi.Mount) error {
	name := carrierName(h)
	return await(ctx, "carrier "+name+" is gone", changeLimit, func(ctx context.Context) (bool, error) {
		_, err := e.lookUp(ctx, sandboxName(h))
		if err == nil {
			return false, errMade
		}
		if !isCode(err, sandbox.NotFound) {
			return false, err
		}
		err = e.do(ctx, change("create carrier", name, sandbox.ReasonCreationFailed), func(ctx context.Context) error {
			_, err := e.api.ContainerCreate(ctx,
				&dockerapi.ContainerConfig{Image: s.reference(), Entrypoint: []string{guest.Path}, Labels: handleLabels(h, roleCarrier)},
				&dockerapi.HostConfig{Mounts: mounts, NetworkMode: "none"}, nil, nil, name)
			return err
		})
		if isCode(err, sandbox.Conflict) {
			return false, e.removeContainer(ctx, name)
		}
		return err == nil, err
	})
}

// sandboxMounts are the volumes of a sandbox: the guest's, which its environment shares, and its own two.
func sandboxMounts(h driver.Handle, s seed) []dockerapi.Mount {
	return []dockerapi.Mount{
		volumeMount(s.volume(), guest.Dir, environmentLabels(s.ref, roleGuest)),
		volumeMount(workspaceVolume(h), "/workspace", handleLabels(h, roleWorkspace)),
		volumeMount(dataVolume(h), "/data", handleLabels(h, roleData)),
	}
}

func volumeMount(name, target string, labels map[string]string) dockerapi.Mount {
	return dockerapi.Mount{Type: dockerapi.MountTypeVolume, Source: name, Target: target, VolumeOptions: &dockerapi.VolumeMountOptions{Labels: labels}}
}

// environ are the variables of every process of a sandbox, whose user programs find under a name.
func environ(spec driver.SandboxSpec, out wayOut, name string) map[string]string {
	// The image's home is read-only, and its users are others.
	env := map[string]string{"HOME": "/workspace", "USER": name, "LOGNAME": name}
	maps.Copy(env, out.proxyEnv())
	maps.Copy(env, spec.Env)
	maps.Copy(env, systemEnv(spec))
	return env
}

func containerConfig(spec driver.SandboxSpec, ends wire.Ends, p parts) (*dockerapi.ContainerConfig, error) {
	egress, err := p.out.arguments()
	if err != nil {
		return nil, err
	}
	command, err := keepCommand(spec, ends, p.seed.guest.identityOf(spec))
	if err != nil {
		return nil, err
	}
	return &dockerapi.ContainerConfig{
		Image:       p.seed.image.ID,
		Labels:      sandboxLabels(spec, p.seed.image.ID),
		Hostname:    spec.EnvironmentID,
		User:        "0:0", // process 1 takes another one
		Env:         assignments(p.env),
		WorkingDir:  "/",
		Entrypoint:  append(command, egress...),
		Healthcheck: &dockerapi.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
	}, nil
}

// systemEnv are the variables that the system sets in every process.
func systemEnv(spec driver.SandboxSpec) map[string]string {
	return map[string]string{
		"IS_SANDBOXED":           "true",
		"AGENT_DID":              spec.AgentDID,
		"ENVIRONMENT_ID":         spec.EnvironmentID,
		"ENVIRONMENT_TYPE":       string(spec.EnvironmentType),
		"ALLOWED_ROOT_DIRECTORY": "/workspace",
	}
}

// keepCommand runs process 1.
func keepCommand(spec driver.SandboxSpec, ends wire.Ends, is sandbox.Identity) ([]string, error) {
	when, err := json.Marshal(ends)
	if err != nil {
		return nil, err
	}
	command := []string{guest.Path, "keep", deadlineFlag, strconv.FormatInt(spec.Deadline.UnixMicro(), 10), "-ends", string(when),
		"-uid", strconv.Itoa(is.UID), "-gid", strconv.Itoa(is.GID), "-pids", strconv.FormatInt(spec.Resources.PIDs, 10), "-channel", guest.ChannelSocket}
	if is.Own {
		command = append(command, "-own-uid")
	}
	if spec.Confinement.AllowRoot {
		command = append(command, "-allow-root")
	}
	if size := diskBytes(spec); size > 0 {
		command = append(command, "-disk", strconv.FormatInt(size, 10))
	}
	if pooled(spec) {
		return append(command, "-pooled"), nil
	}
	return append(command, "-config", string(spec.Config)), nil
}

func assignments(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

func hostConfig(spec driver.SandboxSpec, p parts) *dockerapi.HostConfig {
	noInit := false
	mounts := sandboxMounts(spec.Handle, p.seed)
	mounts[0].ReadOnly = true // the guest
	for _, m := range mounts {
		m.VolumeOptions.NoCopy = true // the seed has filled them; the image's own owner must not come back
	}
	if pooled(spec) {
		mounts = append(mounts, leaseMount(spec.Handle))
	}
	h := &dockerapi.HostConfig{
		Mounts:        mounts,
		NetworkMode:   "none",
		Init:          &noInit, // the guest is process 1
		RestartPolicy: dockerapi.RestartPolicy{Name: dockerapi.RestartPolicyDisabled},
	}
	for _, m := range spec.Mounts {
		h.Mounts = append(h.Mounts, bind(m))
	}
	h.Mounts = append(h.Mounts, p.shown...)
	p.out.apply(h)
	confine(h, spec, p.seed.guest.identityOf(spec), p.seed.guest.seccomp)
	return h
}
