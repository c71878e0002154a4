package docker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// oomScore makes the kernel, when the host itself runs out of memory, end sandboxes before the
// engine and this program. The guest gives commands more.
const oomScore = 300

// keeperCapabilities are what process 1 begins with. It hands the directories over with the first three and then drops
// those. With the others it starts commands as the sandbox's user, and ends them. Commands have none.
var keeperCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID"}

// confine shuts a container in: what every sandbox gets, and what its environment decided. profile is the seccomp profile
// of an environment that names none.
func confine(h *dockerapi.HostConfig, spec driver.SandboxSpec, is sandbox.Identity, profile string) {
	c := spec.Confinement.WithDefaults()
	h.ReadonlyRootfs = true
	h.CapDrop, h.CapAdd = []string{"ALL"}, keeperCapabilities
	h.SecurityOpt = []string{"no-new-privileges", seccompOption + cmp.Or(c.SeccompProfile, profile)}
	h.Runtime = c.Runtime
	h.IpcMode = dockerapi.IPCModePrivate
	h.Sysctls = sysctls()
	h.OomScoreAdj = oomScore
	h.LogConfig = dockerapi.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}}
	h.Tmpfs = tmpfs(spec, c, is)
	h.ShmSize = min(64<<20, spec.Resources.MemoryMB<<20/8)
	h.Resources = dockerapi.Resources{
		Memory:     spec.Resources.MemoryMB << 20,
		MemorySwap: spec.Resources.MemoryMB << 20, // equal to memory: no swap
		NanoCPUs:   spec.Resources.CPUMillis * 1e6,
		PidsLimit:  &spec.Resources.PIDs,
		Ulimits:    ulimits(spec, c),
	}
}

// sysctls are the kernel settings of a container's own network. Engines let every process ping; a range of groups that
// is empty lets none.
func sysctls() map[string]string { return map[string]string{"net.ipv4.ping_group_range": "1 0"} }

// pageSize is what a file's last page in memory may waste.
const pageSize = 4096

const seccompOption = "seccomp="

// tmpfs are the writable directories in memory. Nothing in them runs. What lies there is not freed by
// ending its writer: they are never so large that together they leave a sandbox no memory.
// Runtimes (runc 1.1) replace the mode by that of the image's directory. So the directories belong to the
// sandbox's user, and process 1 restores the modes.
func tmpfs(spec driver.SandboxSpec, c sandbox.Confinement, is sandbox.Identity) map[string]string {
	tmp, run := min(c.TmpMB, spec.Resources.MemoryMB/2), min(c.RunMB, spec.Resources.MemoryMB/16)
	return map[string]string{
		"/tmp": fmt.Sprintf("rw,noexec,nosuid,nodev,size=%dm,mode=1777,uid=%d,gid=%d", tmp, is.UID, is.GID),
		"/run": fmt.Sprintf("rw,noexec,nosuid,nodev,size=%dm,mode=0755,uid=%d,gid=%d", run, is.UID, is.GID),
		// A mount of its own: code in the sandbox can neither replace it nor fill it from /run.
		sandbox.SecretsDir: fmt.Sprintf("rw,noexec,nosuid,nodev,size=%d,mode=0700,uid=%d,gid=%d", (sandbox.MaxSecrets+1)*(sandbox.MaxSecretBytes+pageSize), is.UID, is.GID),
	}
}

// pendingSignals is how many signals and timers of one sandbox the kernel keeps at a time. With user namespaces it also
// counts them for the engine's user, up to a limit for all sandboxes together (a few ten thousand).
const pendingSignals = 1024

// ulimits bound single processes, and what their user has on the whole host. Process 1 sets nproc for the commands of a
// sandbox that has its user for itself: the kernel counts the processes of a user on the whole host.
func ulimits(spec driver.SandboxSpec, c sandbox.Confinement) []*dockerapi.Ulimit {
	limits := []*dockerapi.Ulimit{
		{Name: "core", Soft: 0, Hard: 0},
		{Name: "nofile", Soft: c.OpenFiles, Hard: c.OpenFiles},
		{Name: "sigpending", Soft: pendingSignals, Hard: pendingSignals},
	}
	if size := diskBytes(spec); size > 0 {
		limits = append(limits, &dockerapi.Ulimit{Name: "fsize", Soft: size, Hard: size})
	}
	return limits
}

// bind mounts a directory of the host, without what is mounted below it and without letting mounts in
// or out.
func bind(m sandbox.Mount) dockerapi.Mount {
	return dockerapi.Mount{Type: dockerapi.MountTypeBind, Source: m.Source, Target: m.Target, ReadOnly: !m.Writable,
		BindOptions: &dockerapi.BindOptions{Propagation: dockerapi.PropagationRPrivate, NonRecursive: true}}
}

// diskBytes is what a sandbox may keep on disk, 0 for no limit.
func diskBytes(spec driver.SandboxSpec) int64 { return spec.Resources.DiskMB * 1e6 }

// volumeSize is the size of a sandbox's own volumes as the engine's volume driver wants it, "" for no limit.
func volumeSize(spec driver.SandboxSpec) string {
	if spec.Confinement.DiskLimit != sandbox.DiskEnforced {
		return ""
	}
	return strconv.FormatInt(diskBytes(spec), 10)
}

// checkConfinement refuses what the engine cannot hold. Errors: Invalid, naming the field.
func (e *Executor) checkConfinement(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec, info dockerapi.Info) error {
	var f []sandbox.Field
	bad := func(name, problem string, args ...any) {
		f = append(f, sandbox.Field{Name: name, Problem: fmt.Sprintf(problem, args...)})
	}
	if cpus := int64(info.NCPU) * 1000; spec.Resources.CPUMillis > cpus {
		bad("resources.cpu_millis", "must be at most %d: engine %s has %d CPUs", cpus, info.ID, info.NCPU)
	}
	if runtime := spec.Confinement.Runtime; runtime != "" {
		if _, ok := info.Runtimes[runtime]; !ok {
			bad("confinement.runtime", "engine %s has no runtime %q, only %s: install it there and name it in the engine's daemon.json",
				info.ID, runtime, strings.Join(slices.Sorted(maps.Keys(info.Runtimes)), ", "))
		}
	}
	if len(spec.Mounts) > 0 && !strings.HasPrefix(e.api.DaemonHost(), "unix://") {
		bad("mounts", "engine %s at %s may be another machine than this one: mounts need the engine's unix socket; use copies", info.ID, e.api.DaemonHost())
	}
	if !hasSeccomp(info) {
		bad("confinement.seccomp_profile", "engine %s filters no system calls (it reports no seccomp): run untrusted code on another", info.ID)
	}
	if spec.Confinement.DiskLimit == sandbox.DiskEnforced {
		err := e.probeQuota(ctx, ref)
		if err != nil && !isCode(err, sandbox.Failed) && !isCode(err, sandbox.Invalid) {
			return err
		}
		if err != nil {
			bad("confinement.disk_limit", "engine %s cannot hold a disk limit: its volumes must be on XFS that is mounted with prjquota; "+
				"set disk_limit to billed, or move the engine's data (%v)", info.ID, err)
		}
	}
	return sandbox.InvalidFields("environment "+ref.EnvironmentID, f)
}

// hasSeccomp reports whether an engine filters system calls.
func hasSeccomp(info dockerapi.Info) bool {
	return slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
		return strings.HasPrefix(o, "name=seccomp") && !strings.Contains(o, "profile=unconfined")
	})
}

// probeQuota makes a volume with a size, which an engine refuses that cannot hold it, and removes it.
func (e *Executor) probeQuota(ctx context.Context, ref driver.EnvironmentRef) error {
	h := driver.Handle{LedgerID: ref.LedgerID, EnvironmentID: ref.EnvironmentID, Instance: ref.Instance,
		SandboxID: "quota-" + sandbox.RandomIDs(sandbox.LedgerIDLength)}
	labels := handleLabels(h, roleData)
	if err := e.ensureSizedVolume(ctx, dataVolume(h), labels, "1048576"); err != nil {
		return err
	}
	return e.removeVolume(ctx, dataVolume(h), labels)
}
