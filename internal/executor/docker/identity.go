package docker

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/confine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Instance implements driver.Executor: it returns the engine's own id.
func (e *Executor) Instance(ctx context.Context) (string, error) {
	info, err := e.engine(ctx)
	return info.ID, err
}

// engineOf returns the engine that answers now, if it is the one that a handle names, by its id and by the
// witnesses of ledgers. Errors: Unavailable, with ReasonOtherInstance if it is another.
func (e *Executor) engineOf(ctx context.Context, instance string) (dockerapi.Info, error) {
	info, err := e.engine(ctx)
	if err == nil && info.ID != instance {
		err = e.otherInstance(info.ID, instance)
	}
	if err == nil {
		err = e.recognize(ctx, instance)
	}
	return info, err
}

func (e *Executor) otherInstance(found, meant string) error {
	return sandbox.Errorf(sandbox.Unavailable, "docker: engine %s answers at %s, but engine %s is required: "+
		"connect to that one", found, e.api.DaemonHost(), meant).WithReason(sandbox.ReasonOtherInstance)
}

func (e *Executor) confirm(ctx context.Context, instance string) error {
	_, err := e.engineOf(ctx, instance)
	return err
}

// engine returns the engine's description of itself.
func (e *Executor) engine(ctx context.Context) (dockerapi.Info, error) {
	asked := time.Now()
	info, err := fetch(ctx, e, read("ask", "the engine"), e.api.Info)
	if err != nil {
		return info, err
	}
	e.noteClock(info, asked)
	if info.ID == "" {
		return info, sandbox.Errorf(sandbox.Unavailable, "docker: the engine at %s has no id (it may still be starting; "+
			"retry)",
			e.api.DaemonHost())
	}
	if !info.LiveRestoreEnabled {
		e.warned.Do(func() {
			e.log.Warn("the Docker Engine runs without live-restore: a restart of the engine stops every sandbox and ends its "+
				"processes; set \"live-restore\": true in its daemon.json", "engine", info.ID, "host", e.api.DaemonHost())
		})
	}
	return info, nil
}

// program is one of our programs for an engine's architecture.
type program struct {
	binary []byte
	hash   string
	// seccomp is the profile for containers on that engine.
	seccomp string
	// narrow: the engine maps the users of its containers to a small range.
	narrow bool
	// runtime is the engine's own container runtime.
	runtime string
}

// identityOf returns the user of a sandbox on the engine.
func (p program) identityOf(spec driver.SandboxSpec) sandbox.Identity {
	return spec.Confinement.Identity(objects.OwnID(spec.Handle), p.narrow)
}

// mapsUsers reports whether containers of the engine have a user namespace.
func mapsUsers(info dockerapi.Info) bool {
	return slices.ContainsFunc(info.SecurityOptions,
		func(o string) bool { return o == "name=userns" || o == "name=rootless" })
}

// guestFor returns the guest for an engine.
func (e *Executor) guestFor(ctx context.Context, instance string) (program, error) {
	return e.programFor(ctx, "guest", instance, guest.Binary)
}

// programFor returns a program for an engine. An engine's architecture never changes, so it is read once.
func (e *Executor) programFor(ctx context.Context, name, instance string,
	binary func(arch string) ([]byte, error)) (program, error) {
	key := name + " " + instance
	e.mu.Lock()
	p, ok := e.programs[key]
	e.mu.Unlock()
	if ok {
		return p, nil
	}
	info, err := e.engineOf(ctx, instance)
	if err != nil {
		return p, err
	}
	arch := info.Architecture
	switch arch { // kernel names; Go has others
	case "x86_64":
		arch = "amd64"
	case "aarch64":
		arch = "arm64"
	}
	if p.binary, err = binary(arch); err != nil {
		return p, sandbox.Errorf(sandbox.Failed, "docker: engine %s: %w", instance, err)
	}
	p.hash, p.narrow, p.runtime = objects.Hash(string(p.binary)), mapsUsers(info), info.DefaultRuntime
	if p.seccomp, err = confine.ProfileFor(info.ServerVersion); err != nil {
		return p, sandbox.Errorf(sandbox.Internal, "docker: engine %s: write the seccomp profile: %w", instance, err)
	}
	e.mu.Lock()
	e.programs[key] = p
	e.mu.Unlock()
	return p, nil
}

// absent is the error for a sandbox that the engine does not know: NotFound if the engine is the handle's,
// Unavailable if that cannot be confirmed.
func (e *Executor) absent(ctx context.Context, h driver.Handle) error {
	if err := e.confirm(ctx, h.Instance); err != nil {
		return err
	}
	return sandbox.Errorf(sandbox.NotFound, "docker: sandbox %s: container %s does not exist on engine %s",
		h.SandboxID, objects.SandboxName(h), h.Instance).WithReason(sandbox.ReasonSandboxNotFound)
}
