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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/confine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/containers"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/gateways"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/templates"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxConfig limits config.json, which is an argument of process 1. Linux allows 128 KiB per argument.
const maxConfig = 96 << 10

// Spawn implements driver.Lifecycle. The container's name is the lock: the caller that creates it wins. The container
// is created only after its volumes are filled.
func (e *Executor) Spawn(ctx context.Context, spec driver.SandboxSpec) error {
	if err := checkSpec(spec); err != nil {
		return err
	}
	if err := e.spawnOne(ctx, spec); err != nil {
		return err
	}
	return e.spawnCompanions(ctx, spec)
}

// spawnOne creates and starts the container of a sandbox, or of a companion.
func (e *Executor) spawnOne(ctx context.Context, spec driver.SandboxSpec) error {
	return e.spawnUntil(ctx, spec, endOf(spec))
}

// spawnUntil is spawnOne with the deadline on this machine's clock.
func (e *Executor) spawnUntil(ctx context.Context, spec driver.SandboxSpec, end time.Time) error {
	s, guestMade, err := e.prepareSpawn(ctx, spec)
	if errors.Is(err, templates.ErrMade) {
		return e.join(ctx, spec.Handle)
	}
	if err != nil {
		return err
	}
	populated, err := e.fillVolumes(ctx, spec, s, guestMade)
	if errors.Is(err, templates.ErrMade) {
		return e.join(ctx, spec.Handle)
	}
	if err != nil {
		return err
	}
	discard := func() {}
	if populated {
		// While the populator exists, no other caller can fill the volumes again, which process 1 is about to hand over. It
		// is removed while the container starts.
		discard = sync.OnceFunc(func() { e.templates.Discard(ctx, spec.Handle) })
		defer discard()
	}
	err = e.createSandbox(ctx, spec, end, s, discard)
	if err == nil || populated || !e.couldNotStart(ctx, spec.Handle, err) {
		return err
	}
	// No populator used the guest volume, so an operator may have pruned it. Then the engine created the container with an
	// empty one.
	e.templates.Forget(s)
	if removeErr := e.engine.RemoveContainer(ctx, objects.SandboxName(spec.Handle)); removeErr != nil {
		return errors.Join(err, removeErr)
	}
	return e.spawnUntil(ctx, spec, end) // with a populator
}

// couldNotStart reports whether the engine refused to start a container that it had created.
func (e *Executor) couldNotStart(ctx context.Context, h driver.Handle, err error) bool {
	switch sandbox.CodeOf(err) {
	case sandbox.Failed, sandbox.NotFound, sandbox.Invalid:
		c, err := e.containers.Inspect(ctx, h)
		return err == nil && engine.StateOf(c.State) == sandbox.StateCreated
	}
	return false
}

// createSandbox creates and starts a container whose volumes are filled.
func (e *Executor) createSandbox(ctx context.Context, spec driver.SandboxSpec, end time.Time, s templates.Template,
	discard func()) error {
	program := s.Guest
	out, network, err := e.openEgressPath(ctx, spec)
	if err != nil {
		return err
	}
	names, err := e.templates.AccountsOf(ctx, s)
	if err != nil {
		return err
	}
	env := environ(spec, out, names.NameOf(program.IdentityOf(spec)))
	shown, err := e.relays.Admit(ctx, spec.Handle, names.With(program.IdentityOf(spec), env["HOME"]))
	if err != nil {
		return err
	}
	return e.createAndStart(ctx, spec, end, parts{
		template: s, out: out, network: network, env: env, shown: shown, discard: discard,
	})
}

// openEgressPath creates a sandbox's path to its gateway, or its own network, before its container.
func (e *Executor) openEgressPath(ctx context.Context, spec driver.SandboxSpec) (
	out gateways.Path, network string, err error) {
	switch {
	case spec.UsesGateway():
		out, err = e.gateways.Open(ctx, spec)
	case spec.Network == sandbox.NetworkFull:
		network, err = e.networks.Open(ctx, spec)
	}
	return out, network, err
}

// prepareSpawn collects the inputs of a spawn, with concurrent requests. guestMade is from FindGuest. Errors: ErrMade
// if the container exists.
func (e *Executor) prepareSpawn(ctx context.Context, spec driver.SandboxSpec) (s templates.Template, guestMade string,
	err error) {
	p, err := e.engine.GuestFor(ctx, spec.Instance) // cached after the first call
	if err != nil {
		return s, "", err
	}
	var made, noImage, noGuest error
	var img dockerapi.ImageInspect
	var looks sync.WaitGroup
	looks.Go(func() { _, made = e.engine.Container(ctx, objects.SandboxName(spec.Handle)) })
	looks.Go(func() { img, noImage = e.engine.FindImage(ctx, spec.Image, spec.Instance) })
	looks.Go(func() {
		guestMade, noGuest = e.templates.FindGuest(ctx,
			templates.Of(objects.EnvironmentOf(spec.Handle), dockerapi.ImageInspect{}, p, spec.Confinement))
	})
	looks.Wait()
	switch {
	case made == nil:
		return s, "", templates.ErrMade
	case sandbox.CodeOf(made) != sandbox.NotFound:
		return s, "", made
	}
	s = templates.Of(objects.EnvironmentOf(spec.Handle), img, p, spec.Confinement)
	return s, guestMade, cmp.Or(noImage, noGuest)
}

// parts are the inputs of a container besides its specification.
type parts struct {
	template templates.Template
	out      gateways.Path
	network  string // name of the sandbox's own network; "" for none
	env      map[string]string
	shown    []dockerapi.Mount // mounts of the sandbox's directory at the relay
	// discard removes the populator.
	discard func()
}

func (e *Executor) createAndStart(ctx context.Context, spec driver.SandboxSpec, end time.Time, p parts) error {
	name := objects.SandboxName(spec.Handle)
	ends, err := e.engine.EndsAt(ctx, spec.Instance, end)
	if err != nil {
		return err
	}
	config, err := containerConfig(spec, ends, p)
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, "docker: sandbox %s: %w", spec.SandboxID, err)
	}
	id, err := e.engine.CreateContainer(ctx, "container", name, config, hostConfig(spec, p))
	if sandbox.CodeOf(err) == sandbox.Conflict { // another caller creates it
		return e.join(ctx, spec.Handle)
	}
	if err != nil {
		return err
	}
	e.containers.Remember(spec.Handle, id)
	var discarding sync.WaitGroup
	discarding.Go(p.discard)
	defer discarding.Wait()
	return e.start(ctx, spec.Handle)
}

// join waits for the container that another caller creates, and starts it. Its name is taken before it exists.
func (e *Executor) join(ctx context.Context, h driver.Handle) error {
	made := "container " + objects.SandboxName(h) + " is made"
	return engine.Await(ctx, made, engine.ChangeLimit, func(ctx context.Context) (bool, error) {
		c, err := e.containers.Inspect(ctx, h)
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return false, nil
		}
		if err == nil {
			err = e.bringUp(ctx, h, c)
		}
		return err == nil, err
	})
}

func checkSpec(spec driver.SandboxSpec) error {
	if err := objects.CheckHandle(spec.Handle); err != nil {
		return err
	}
	if err := checkNetwork(spec.Network); err != nil {
		return err
	}
	var f []sandbox.Field
	if spec.Deadline.IsZero() {
		f = append(f, sandbox.Field{Name: "deadline", Problem: "must be set: every sandbox must end"})
	}
	if len(spec.Config) > maxConfig {
		f = append(f,
			sandbox.Field{Name: "config", Problem: fmt.Sprintf("must be at most %d bytes, not %d", maxConfig, len(spec.Config))})
	}
	return sandbox.InvalidFields("docker: sandbox "+spec.SandboxID, f)
}

// bringUp makes an existing sandbox accept commands, in whatever state an earlier call left it.
func (e *Executor) bringUp(ctx context.Context, h driver.Handle, c dockerapi.ContainerInspect) error {
	switch engine.StateOf(c.State) {
	case sandbox.StateRunning:
		return nil
	case sandbox.StateStopped:
		if h.Companion != "" { // its program has ended
			return nil
		}
		return sandbox.Errorf(sandbox.Failed, "docker: sandbox %s: it already existed and has stopped with exit code %d",
			h.SandboxID, c.State.ExitCode).
			WithReason(sandbox.ReasonStartFailed)
	default:
		_, err := e.Wake(ctx, h)
		return err
	}
}

func (e *Executor) start(ctx context.Context, h driver.Handle) error {
	err := e.engine.StartContainer(ctx, objects.SandboxName(h))
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	if _, lookErr := e.containers.Inspect(ctx, h); lookErr != nil {
		return lookErr
	}
	return sandbox.Errorf(sandbox.NotFound,
		"docker: sandbox %s: a required resource was removed, such as its network by a prune, and is not created again: %w",
		h.SandboxID, err).
		WithReason(sandbox.ReasonPartMissing)
}

// fillVolumes creates the sandbox's volumes, then calls Fill.
func (e *Executor) fillVolumes(ctx context.Context, spec driver.SandboxSpec, s templates.Template,
	guestMade string) (populated bool, err error) {
	h := spec.Handle
	mounts := templates.Mounts(h, s)
	if err := e.ensureOwnVolumes(ctx, spec, mounts[1:]); err != nil {
		return false, err
	}
	return e.templates.Fill(ctx, h, s, guestMade, mounts)
}

// ensureOwnVolumes creates the volumes that a sandbox does not share, concurrently.
func (e *Executor) ensureOwnVolumes(ctx context.Context, spec driver.SandboxSpec, own []dockerapi.Mount) error {
	failed := make([]error, len(own)+1)
	var making sync.WaitGroup
	for i, m := range own {
		labels := objects.WithLeaseLabels(m.VolumeOptions.Labels, spec)
		making.Go(func() { failed[i] = e.engine.EnsureSizedVolume(ctx, m.Source, labels, confine.VolumeSize(spec)) })
	}
	if pooled(spec) {
		making.Go(func() {
			failed[len(own)] = e.engine.EnsureVolume(ctx, objects.LeaseVolume(spec.Handle),
				objects.HandleLabels(spec.Handle, objects.RoleLease))
		})
	}
	making.Wait()
	return cmp.Or(failed...)
}

// environ returns the variables of every process of a sandbox. name is the name of the sandbox's user.
func environ(spec driver.SandboxSpec, out gateways.Path, name string) map[string]string {
	// The image's home is read-only, and its users differ.
	env := map[string]string{"HOME": "/workspace", "USER": name, "LOGNAME": name}
	maps.Copy(env, out.Variables())
	maps.Copy(env, driver.LLMVariables(gateways.LLMAddress, spec.LLM))
	maps.Copy(env, spec.Env)
	maps.Copy(env, spec.SystemVariables())
	return env
}

func containerConfig(spec driver.SandboxSpec, ends wire.Ends, p parts) (*dockerapi.ContainerConfig, error) {
	egress, err := p.out.Arguments()
	if err != nil {
		return nil, err
	}
	command, err := keepCommand(spec, ends, p.template.Guest.IdentityOf(spec))
	if err != nil {
		return nil, err
	}
	return &dockerapi.ContainerConfig{
		Image:       p.template.Image.ID,
		Labels:      objects.SandboxLabels(spec, p.template.Image.ID),
		Hostname:    hostname(spec),
		User:        "0:0", // process 1 switches to another user
		Env:         assignments(p.env),
		WorkingDir:  "/",
		Entrypoint:  append(command, egress...),
		Healthcheck: &dockerapi.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
	}, nil
}

// keepCommand returns the command of process 1.
func keepCommand(spec driver.SandboxSpec, ends wire.Ends, is sandbox.Identity) ([]string, error) {
	when, err := json.Marshal(ends)
	if err != nil {
		return nil, err
	}
	command := []string{
		guest.Path, "keep", containers.DeadlineFlag, strconv.FormatInt(spec.Deadline.UnixMicro(), 10), "-ends", string(when),
		"-uid", strconv.Itoa(is.UID), "-gid", strconv.Itoa(is.GID), "-pids", strconv.FormatInt(spec.Resources.PIDs, 10),
		"-channel", guest.ChannelSocket,
	}
	if is.Own {
		command = append(command, "-own-uid")
	}
	if spec.Companion != "" {
		command = append(command, "-main", driver.CompanionMain)
	}
	if spec.Confinement.AllowRoot {
		command = append(command, "-allow-root")
	}
	if size := confine.DiskBytes(spec); size > 0 {
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
	mounts := templates.Mounts(spec.Handle, p.template)
	mounts[0].ReadOnly = true // the guest volume
	for _, m := range mounts {
		m.VolumeOptions.NoCopy = true // the template filled them; NoCopy keeps the image's owner from returning
	}
	if pooled(spec) {
		mounts = append(mounts, leaseMount(spec.Handle))
	}
	h := &dockerapi.HostConfig{
		Mounts:        mounts,
		NetworkMode:   ownNetwork(spec.Handle),
		Init:          &noInit, // the guest is process 1
		RestartPolicy: dockerapi.RestartPolicy{Name: dockerapi.RestartPolicyDisabled},
	}
	for _, m := range spec.Mounts {
		h.Mounts = append(h.Mounts, confine.BindMount(m))
	}
	h.Mounts = append(h.Mounts, p.shown...)
	if p.network != "" {
		h.NetworkMode = dockerapi.NetworkMode(p.network)
	}
	p.out.Apply(h)
	confine.Apply(h, spec, p.template.Guest.IdentityOf(spec), p.template.Guest.Seccomp)
	h.Mounts = append(h.Mounts, imageVolumes(spec, p.template.Image, h)...)
	return h
}
