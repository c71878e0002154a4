package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/confine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// GuestMode lets a sandbox execute the guest but not read it. Its shells execute it to report their state.
const GuestMode = 0o711

// Program is one of our programs for an engine's architecture.
type Program struct {
	Binary []byte
	Hash   string
	// Seccomp is the profile for containers on that engine.
	Seccomp string
	// narrow means that the engine maps the users of its containers to a small range.
	narrow bool
	// Runtime is the engine's own container runtime.
	Runtime string
}

// IdentityOf returns the user of a sandbox on the engine.
func (p Program) IdentityOf(spec driver.SandboxSpec) sandbox.Identity {
	return spec.Confinement.Identity(objects.OwnID(spec.Handle), p.narrow)
}

// MapsUsers reports whether containers of the engine have a user namespace.
func MapsUsers(info dockerapi.Info) bool {
	return slices.ContainsFunc(info.SecurityOptions,
		func(o string) bool { return o == "name=userns" || o == "name=rootless" })
}

// GuestFor returns the guest for an engine.
func (e *Engine) GuestFor(ctx context.Context, instance string) (Program, error) {
	return e.ProgramFor(ctx, "guest", instance, guest.Binary)
}

// ProgramFor returns a program for an engine. It reads the engine's architecture once, because it never changes.
func (e *Engine) ProgramFor(ctx context.Context, name, instance string,
	binary func(arch string) ([]byte, error)) (Program, error) {
	key := name + " " + instance
	e.mu.Lock()
	p, ok := e.programs[key]
	e.mu.Unlock()
	if ok {
		return p, nil
	}
	info, err := e.InfoOf(ctx, instance)
	if err != nil {
		return p, err
	}
	arch := info.Architecture
	switch arch { // kernel names, which differ from Go's
	case "x86_64":
		arch = "amd64"
	case "aarch64":
		arch = "arm64"
	}
	if p.Binary, err = binary(arch); err != nil {
		return p, sandbox.Errorf(sandbox.Failed, "docker: engine %s: %w", instance, err)
	}
	p.Hash, p.narrow, p.Runtime = objects.Hash(string(p.Binary)), MapsUsers(info), info.DefaultRuntime
	if p.Seccomp, err = confine.ProfileFor(info.ServerVersion); err != nil {
		return p, sandbox.Errorf(sandbox.Internal, "docker: engine %s: write the seccomp profile: %w", instance, err)
	}
	e.mu.Lock()
	e.programs[key] = p
	e.mu.Unlock()
	return p, nil
}

// UsualRuntime reports whether a runtime is the default of engines, which every sandbox proves.
func UsualRuntime(runtime string) bool {
	return runtime == "" || runtime == "runc" || runtime == "io.containerd.runc.v2"
}

// RuntimeOf returns the runtime of sandboxes with a confinement.
func (p Program) RuntimeOf(c sandbox.Confinement) string { return cmp.Or(c.Runtime, p.Runtime) }
