// Package confine confines the containers of sandboxes: capabilities, system calls, limits, mounts and temporary
// directories.
package confine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// oomScore makes the kernel kill sandboxes before the engine and this program if the host runs out of memory. The guest
// gives commands a higher score.
const oomScore = 300

// keeperCapabilities are the initial capabilities of process 1. It uses the first three to hand over the directories,
// and then drops them. It uses the others to start commands as the sandbox's user and to end them. Commands have none.
var keeperCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID"}

// Apply confines a container with the settings of every sandbox and those of its environment. profile is the default
// seccomp profile.
func Apply(h *dockerapi.HostConfig, spec driver.SandboxSpec, is sandbox.Identity, profile string) {
	c := spec.Confinement.WithDefaults()
	h.ReadonlyRootfs = true
	h.CapDrop, h.CapAdd = []string{"ALL"}, keeperCapabilities
	h.SecurityOpt = []string{"no-new-privileges", SeccompOption + cmp.Or(c.SeccompProfile, profile)}
	h.Runtime = c.Runtime
	h.IpcMode = dockerapi.IPCModePrivate
	h.Sysctls = Sysctls()
	h.OomScoreAdj = oomScore
	h.LogConfig = dockerapi.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}}
	h.Tmpfs = tmpfs(spec, c, is)
	h.ShmSize = min(64<<20, spec.Resources.MemoryMB<<20/8)
	h.Resources = dockerapi.Resources{
		Memory:     spec.Resources.MemoryMB << 20,
		MemorySwap: spec.Resources.MemoryMB << 20, // equal to Memory: no swap
		NanoCPUs:   spec.Resources.CPUMillis * 1e6,
		PidsLimit:  &spec.Resources.PIDs,
		Ulimits:    ulimits(spec, c),
	}
}

// Sysctls are the kernel settings of a container's network. Engines let every process send pings; an empty range of
// groups forbids it.
func Sysctls() map[string]string { return map[string]string{"net.ipv4.ping_group_range": "1 0"} }

// pageSize is the most that a file in memory can waste in its last page.
const pageSize = 4096

// tmpfs returns the writable directories in memory. No program can run from them. Killing the writer does not free
// their content, so their sizes must always leave the sandbox some memory. Runtimes (runc 1.1) replace the mode with
// the mode of the image's directory. So the directories belong to the sandbox's user, and process 1 restores the modes.
func tmpfs(spec driver.SandboxSpec, c sandbox.Confinement, is sandbox.Identity) map[string]string {
	tmp, run := min(c.TmpMB, spec.Resources.MaxTmpMB()), min(c.RunMB, spec.Resources.MaxRunMB())
	return map[string]string{
		"/tmp": fmt.Sprintf("rw,noexec,nosuid,nodev,size=%dm,mode=1777,uid=%d,gid=%d", tmp, is.UID, is.GID),
		"/run": fmt.Sprintf("rw,noexec,nosuid,nodev,size=%dm,mode=0755,uid=%d,gid=%d", run, is.UID, is.GID),
		// A separate mount: code in the sandbox can neither replace it nor fill it through /run.
		sandbox.SecretsDir: fmt.Sprintf("rw,noexec,nosuid,nodev,size=%d,mode=0700,uid=%d,gid=%d",
			(sandbox.MaxSecrets+1)*(sandbox.MaxSecretBytes+pageSize), is.UID, is.GID),
	}
}

// pendingSignals limits the pending signals and timers of one sandbox. With user namespaces the kernel also counts them
// for the engine's user. That limit (tens of thousands) applies to all sandboxes together.
const pendingSignals = 1024

// ulimits limit single processes, and the resources of their user on the whole host. Process 1 sets nproc for commands
// if the sandbox has its own user, because the kernel counts a user's processes on the whole host.
func ulimits(spec driver.SandboxSpec, c sandbox.Confinement) []*dockerapi.Ulimit {
	limits := []*dockerapi.Ulimit{
		{Name: "core", Soft: 0, Hard: 0},
		{Name: "nofile", Soft: c.OpenFiles, Hard: c.OpenFiles},
		{Name: "sigpending", Soft: pendingSignals, Hard: pendingSignals},
	}
	if size := DiskBytes(spec); size > 0 {
		limits = append(limits, &dockerapi.Ulimit{Name: "fsize", Soft: size, Hard: size})
	}
	return limits
}

// BindMount mounts a host directory, without its submounts and without mount propagation in either direction.
func BindMount(m sandbox.Mount) dockerapi.Mount {
	return dockerapi.Mount{Type: dockerapi.MountTypeBind, Source: m.Source, Target: m.Target, ReadOnly: !m.Writable,
		BindOptions: &dockerapi.BindOptions{Propagation: dockerapi.PropagationRPrivate, NonRecursive: true}}
}

// DiskBytes is the disk limit of a sandbox, 0 for none.
func DiskBytes(spec driver.SandboxSpec) int64 { return spec.Resources.DiskMB * 1e6 }

// VolumeSize is the size of a sandbox's volumes in the format of the engine's volume driver, "" for no limit.
func VolumeSize(spec driver.SandboxSpec) string {
	if spec.Confinement.DiskLimit != sandbox.DiskEnforced {
		return ""
	}
	return strconv.FormatInt(DiskBytes(spec), 10)
}

// HasSeccomp reports whether an engine filters system calls.
func HasSeccomp(info dockerapi.Info) bool {
	return slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
		return strings.HasPrefix(o, "name=seccomp") && !strings.Contains(o, "profile=unconfined")
	})
}
