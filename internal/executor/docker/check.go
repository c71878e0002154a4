package docker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/confine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Check implements driver.Provisioner: it checks what is known before the first sandbox. It does not check whether a
// registry has the images that Provision pulls.
func (e *Executor) Check(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) error {
	if err := e.check(ctx, ref, spec); err != nil || spec.ImagePull == sandbox.PullMissing {
		return err
	}
	for _, image := range spec.Images() {
		if _, err := e.engine.FindImage(ctx, image, ref.Instance); err != nil {
			return err
		}
	}
	return nil
}

// check is Check without the check of images.
func (e *Executor) check(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) error {
	if err := objects.CheckRef(ref); err != nil {
		return err
	}
	if err := checkNetwork(spec.Network); err != nil {
		return err
	}
	info, err := e.engine.InfoOf(ctx, ref.Instance)
	if err != nil {
		return err
	}
	if err := e.checkConfinement(ctx, ref, spec, info); err != nil {
		return err
	}
	return checkCompanions(ref, spec, info)
}

func checkNetwork(mode sandbox.NetworkMode) error {
	switch mode {
	case sandbox.NetworkNone, sandbox.NetworkRestricted, sandbox.NetworkFull:
		return nil
	}
	return sandbox.InvalidFields("docker: the specification", []sandbox.Field{{
		Name: "network",
		Problem: fmt.Sprintf(
			"must be none, restricted or full, not %q: an unknown mode must not give a sandbox more network than "+
				"requested", mode),
	}})
}

// checkConfinement rejects what the engine cannot enforce. Errors: Invalid, naming the field.
func (e *Executor) checkConfinement(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec,
	info dockerapi.Info) error {
	var f []sandbox.Field
	bad := func(name, problem string, args ...any) {
		f = append(f, sandbox.Field{Name: name, Problem: fmt.Sprintf(problem, args...)})
	}
	if spec.Resources.CPUMillis > int64(info.NCPU)*1000 {
		bad("resources.cpu_millis", "%s", tooManyCPUs(info))
	}
	if runtime := spec.Confinement.Runtime; runtime != "" {
		if _, ok := info.Runtimes[runtime]; !ok {
			bad("confinement.runtime",
				"engine %s has no runtime %q, only %s: install it there and add it to the engine's daemon.json",
				info.ID, runtime, strings.Join(slices.Sorted(maps.Keys(info.Runtimes)), ", "))
		}
	}
	if len(spec.Mounts) > 0 && !e.engine.IsLocal() {
		bad("mounts",
			"engine %s at %s may be on another machine: mounts require the engine's unix socket; use copies instead",
			info.ID, e.engine.API.DaemonHost())
	}
	if !confine.HasSeccomp(info) {
		bad("confinement.seccomp_profile",
			"engine %s does not filter system calls (it reports no seccomp): use another engine for untrusted code", info.ID)
	}
	if spec.Confinement.DiskLimit == sandbox.DiskEnforced {
		err := e.probeQuota(ctx, ref)
		if err != nil && sandbox.CodeOf(err) != sandbox.Failed && sandbox.CodeOf(err) != sandbox.Invalid {
			return err
		}
		if err != nil {
			bad("confinement.disk_limit", "engine %s cannot enforce a disk limit: its volumes must be on XFS mounted "+
				"with prjquota; set disk_limit to billed, or move the engine's data (%v)", info.ID, err)
		}
	}
	return sandbox.InvalidFields("environment "+ref.EnvironmentID, f)
}

// probeQuota creates and removes a volume with a size. An engine without quotas refuses it.
func (e *Executor) probeQuota(ctx context.Context, ref driver.EnvironmentRef) error {
	h := driver.Handle{LedgerID: ref.LedgerID, EnvironmentID: ref.EnvironmentID, Instance: ref.Instance,
		SandboxID: "quota-" + sandbox.RandomIDs(sandbox.LedgerIDLength)}
	labels := objects.HandleLabels(h, objects.RoleData)
	if err := e.engine.EnsureSizedVolume(ctx, objects.DataVolume(h), labels, "1048576"); err != nil {
		return err
	}
	return e.engine.RemoveVolume(ctx, objects.DataVolume(h), labels)
}

// checkCompanions rejects companions that the engine cannot run. Errors: as for Check.
func checkCompanions(ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec, info dockerapi.Info) error {
	var f []sandbox.Field
	runtime := engine.Program{Runtime: info.DefaultRuntime}.RuntimeOf(spec.Confinement)
	if len(spec.Companions) > 0 && !engine.UsualRuntime(runtime) {
		f = append(f, sandbox.Field{Name: "companions", Problem: fmt.Sprintf("must not be set with the runtime %q: "+
			"containers with a kernel of their own share no network", runtime)})
	}
	for _, name := range spec.Companions.Names() {
		if spec.Companions[name].Resources.CPUMillis > int64(info.NCPU)*1000 {
			f = append(f, sandbox.Field{Name: "companions." + name + ".resources.cpu_millis", Problem: tooManyCPUs(info)})
		}
	}
	return sandbox.InvalidFields("environment "+ref.EnvironmentID, f)
}

// tooManyCPUs names no unit, because cpu_millis of the API is cpus in Terraform.
func tooManyCPUs(info dockerapi.Info) string {
	return fmt.Sprintf("must not exceed the %d CPUs of engine %s", info.NCPU, info.ID)
}
