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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// checkConfinement rejects what the engine cannot enforce. Errors: Invalid, naming the field.
func (e *Executor) checkConfinement(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec,
	info dockerapi.Info) error {
	var f []sandbox.Field
	bad := func(name, problem string, args ...any) {
		f = append(f, sandbox.Field{Name: name, Problem: fmt.Sprintf(problem, args...)})
	}
	if cpus := int64(info.NCPU) * 1000; spec.Resources.CPUMillis > cpus {
		bad("resources.cpu_millis", "must be at most %d: engine %s has %d CPUs", cpus, info.ID, info.NCPU)
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
