package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/confine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/containers"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// containerRules are our own rules and those about single containers in sections 4 and 5 of the CIS Docker Benchmark
// 1.6, with its numbers. They omit rules about the image's content (5.7, 5.28), about the engine alone (5.1), and about
// past use of `docker exec` (5.23, 5.24).
var containerRules = []rule{
	{number: "4.1", title: "a user is set and is not root", finding: rootUser},
	{
		number:  "5.2",
		title:   "an AppArmor profile is in force",
		finding: noAppArmor,
		needs:   func(a audited) string { return needsModule(a, "apparmor") },
	},
	{
		number:  "5.3",
		title:   "an SELinux label is in force",
		finding: noSELinux,
		needs:   func(a audited) string { return needsModule(a, "selinux") },
	},
	{number: "5.4", title: "no Linux capabilities", finding: capabilities},
	{
		number:  "5.5",
		title:   "not privileged",
		finding: when(func(a audited) bool { return a.host().Privileged }, "it is privileged"),
	},
	{number: "5.6", title: "no host directories except allowed ones", finding: hostMounts},
	{number: "5.8", title: "no ports", finding: ports},
	{
		number:  "5.10",
		title:   "not in the host's network",
		finding: when(func(a audited) bool { return a.host().NetworkMode.IsHost() }, "it shares the host's network"),
	},
	{number: "5.11", title: "memory is limited, swap included", finding: memory},
	{
		number: "5.12",
		title:  "CPU time is limited",
		finding: when(func(a audited) bool { return a.host().NanoCPUs <= 0 && a.host().CPUQuota <= 0 },
			"it may use every CPU"),
	},
	{
		number:  "5.13",
		title:   "the root file system is read-only",
		finding: when(func(a audited) bool { return !a.host().ReadonlyRootfs }, "its root can be written"),
	},
	{number: "5.15", title: "nothing restarts it", finding: restarts},
	{
		number:  "5.16",
		title:   "not in the host's process namespace",
		finding: namespace("PID", func(h *dockerapi.HostConfig) string { return string(h.PidMode) }),
	},
	{number: "5.17", title: "not in another IPC namespace", finding: sharedIPC},
	{number: "5.18", title: "no devices", finding: devices},
	{number: "5.19", title: "files, core dumps and file sizes of a process are limited", finding: openLimits},
	{number: "5.20", title: "no mount is propagated to the host", finding: propagation},
	{
		number:  "5.21",
		title:   "not in the host's UTS namespace",
		finding: namespace("UTS", func(h *dockerapi.HostConfig) string { return string(h.UTSMode) }),
	},
	{number: "5.22", title: "system calls are filtered", finding: noSeccomp},
	{number: "5.25", title: "in the engine's own control group", finding: cgroup},
	{number: "5.26", title: "processes cannot gain privileges", finding: newPrivileges},
	{number: "5.27", title: "the image's health check is off", finding: healthCheck},
	{
		number: "5.29",
		title:  "processes are limited",
		finding: when(func(a audited) bool { return a.host().PidsLimit == nil || *a.host().PidsLimit <= 0 },
			"it may have any number of processes"),
	},
	{number: "5.30", title: "on no network, or only on its own", finding: otherNetworks},
	{
		number: "5.31",
		title:  "not in the host's user namespace by exception",
		finding: when(func(a audited) bool { return a.host().UsernsMode.IsHost() },
			"it is exempt from the engine's user namespaces"),
	},
	{number: "5.32", title: "no engine socket", finding: engineSocket},
	{number: "S.1", title: "process 1 is the guest, with a deadline", finding: notTheGuest},
	{number: "S.2", title: "logs are bounded", finding: logs},
	{
		number:  "S.3",
		title:   "temporary directories are bounded, nothing in them runs, and process 1 sets their modes",
		finding: looseTmpfs,
	},
	{number: "S.4", title: "paths of the kernel are masked or read-only", finding: unmasked},
	{
		number: "S.5",
		title:  "the kernel may kill it when memory runs out",
		finding: when(func(a audited) bool { return a.host().OomKillDisable != nil && *a.host().OomKillDisable },
			"the kernel may not kill it when memory runs out"),
	},
	{number: "S.6", title: "no kernel settings, groups or shared containers are added", finding: extras},
	{number: "S.7", title: "nothing in it can ping", finding: pings},
	{number: "S.12", title: "no writable volumes except its own", finding: otherVolumes},
}

func when(broken func(audited) bool, finding string) func(audited) string {
	return func(a audited) string {
		if broken(a) {
			return finding
		}
		return ""
	}
}

func rootUser(a audited) string {
	user, group, _ := strings.Cut(a.container.Config.User, ":")
	if a.keepsItself() && a.container.Config.User == "0:0" {
		return "" // rule S.8 checks its processes
	}
	if slices.Contains([]string{"", "0", "root"}, user) || group == "0" || group == "root" {
		return fmt.Sprintf("it runs as %q", a.container.Config.User)
	}
	return ""
}

// needsModule returns why the rule does not apply if the engine lacks a security module.
func needsModule(a audited, name string) string {
	if slices.ContainsFunc(a.engine.SecurityOptions, func(o string) bool { return strings.HasPrefix(o, "name="+name) }) {
		return ""
	}
	return "the engine has no " + name
}

func noAppArmor(a audited) string {
	if p := a.container.AppArmorProfile; p == "" || p == "unconfined" {
		return fmt.Sprintf("its AppArmor profile is %q", p)
	}
	return ""
}

func noSELinux(a audited) string {
	if a.container.ProcessLabel == "" || slices.Contains(a.host().SecurityOpt, "label=disable") {
		return "it has no SELinux label"
	}
	return ""
}

func capabilities(a audited) string {
	h := a.host()
	if len(h.CapAdd) > 0 && !a.keepsItself() { // rule S.9 checks what process 1 keeps
		return "it is given " + strings.Join(h.CapAdd, ", ")
	}
	if !dropsAll(h) {
		return "not all capabilities are dropped"
	}
	return ""
}

func dropsAll(h *dockerapi.HostConfig) bool {
	return slices.ContainsFunc(h.CapDrop, func(c string) bool { return strings.EqualFold(c, "ALL") })
}

func hostMounts(a audited) string {
	var found, allowed []string
	if json.Unmarshal([]byte(a.container.Config.Labels[objects.LabelMounts]), &allowed) != nil {
		allowed = nil
	}
	for _, m := range a.container.Mounts {
		if slices.Contains(allowed, m.Source) {
			continue
		}
		// A bind mount of a directory in one of our volumes is not a host directory.
		if m.Type == dockerapi.MountTypeBind &&
			!strings.Contains(m.Source, "/sandbox-"+a.container.Config.Labels[objects.LabelLedger]+"-") {
			found = append(found, fmt.Sprintf("%s at %s", m.Source, m.Destination))
		}
	}
	if found == nil {
		return ""
	}
	return "it is given " + strings.Join(found, ", ")
}

func ports(a audited) string {
	if len(a.host().PortBindings) > 0 || a.host().PublishAllPorts {
		return "host ports are forwarded to it"
	}
	return ""
}

func memory(a audited) string {
	switch h := a.host(); {
	case h.Memory <= 0:
		return "it may use all of the memory"
	case h.MemorySwap != h.Memory:
		return fmt.Sprintf("it may use %d bytes with swap, but only %d of memory", h.MemorySwap, h.Memory)
	}
	return ""
}

func restarts(a audited) string {
	if p := a.host().RestartPolicy; !p.IsNone() && p.Name != "" {
		return fmt.Sprintf("the engine restarts it: %s", p.Name)
	}
	return ""
}

// namespace finds a namespace that the container shares.
func namespace(name string, mode func(*dockerapi.HostConfig) string) func(audited) string {
	return func(a audited) string {
		if m := mode(a.host()); m != "" && m != "private" {
			return fmt.Sprintf("its %s namespace is %q", name, m)
		}
		return ""
	}
}

func sharedIPC(a audited) string {
	if m := a.host().IpcMode; !m.IsPrivate() && !m.IsNone() {
		return fmt.Sprintf("its IPC namespace is %q", m)
	}
	return ""
}

func devices(a audited) string {
	h := a.host()
	if len(h.Devices)+len(h.DeviceCgroupRules)+len(h.DeviceRequests) > 0 {
		return "it has devices of the host"
	}
	return ""
}

func openLimits(a audited) string {
	want := map[string]bool{"core": true, "nofile": true, "fsize": true, "sigpending": true}
	for _, u := range a.host().Ulimits {
		if u.Hard < 0 || u.Name == "core" && u.Hard != 0 {
			return fmt.Sprintf("its limit %s is %d", u.Name, u.Hard)
		}
		delete(want, u.Name)
	}
	if len(want) > 0 {
		return fmt.Sprintf("%d of the limits core, nofile, fsize and sigpending are not set", len(want))
	}
	return ""
}

func propagation(a audited) string {
	for _, m := range a.container.Mounts {
		if m.Propagation == dockerapi.PropagationShared || m.Propagation == dockerapi.PropagationRShared {
			return fmt.Sprintf("mounts in %s propagate to the host", m.Destination)
		}
	}
	return ""
}

func noSeccomp(a audited) string {
	if !confine.HasSeccomp(a.engine) {
		return "the engine has no seccomp"
	}
	if slices.Contains(a.host().SecurityOpt, confine.SeccompOption+"unconfined") {
		return "it runs without a seccomp profile"
	}
	isProfile := func(o string) bool { return strings.HasPrefix(o, confine.SeccompOption) }
	if !slices.ContainsFunc(a.host().SecurityOpt, isProfile) {
		return "its profile is the engine's default, which allows more than this program's: it was created before this " +
			"release or by another program"
	}
	return ""
}

func cgroup(a audited) string {
	if h := a.host(); h.CgroupParent != "" || string(h.CgroupnsMode) == "host" && a.engine.CgroupVersion == "2" {
		return fmt.Sprintf("its control group is below %q, in the namespace %q", h.CgroupParent, h.CgroupnsMode)
	}
	return ""
}

func newPrivileges(a audited) string {
	for _, o := range a.host().SecurityOpt {
		if o == "no-new-privileges" || o == "no-new-privileges:true" || o == "no-new-privileges=true" {
			return ""
		}
	}
	return "programs in it may gain privileges"
}

func healthCheck(a audited) string {
	if h := a.container.Config.Healthcheck; h == nil || !slices.Equal(h.Test, []string{"NONE"}) {
		return "the engine runs the image's health check"
	}
	return ""
}

// otherNetworks finds every network except "none" and the sandbox's own.
func otherNetworks(a audited) string {
	var found []string
	own := objects.NetworkName(driver.Handle{
		LedgerID:  a.container.Config.Labels[objects.LabelLedger],
		SandboxID: a.container.Config.Labels[objects.LabelSandbox],
	})
	for name := range a.networks() {
		if name != dockerapi.NetworkNone && name != own {
			found = append(found, name)
		}
	}
	if found == nil {
		return ""
	}
	slices.Sort(found)
	return "it is on " + strings.Join(found, ", ")
}

func (a audited) networks() map[string]*dockerapi.EndpointSettings {
	if a.container.NetworkSettings == nil {
		return nil
	}
	return a.container.NetworkSettings.Networks
}

func engineSocket(a audited) string {
	for _, m := range a.container.Mounts {
		switch path.Base(m.Source) {
		case "docker.sock", "containerd.sock", "podman.sock":
			return fmt.Sprintf("%s is at %s", m.Source, m.Destination)
		}
	}
	return ""
}

func notTheGuest(a audited) string {
	if a.container.Path != guest.Path || containers.DeadlineOf(a.container.Config.Entrypoint).IsZero() {
		return fmt.Sprintf("its process 1 is %s", a.container.Path)
	}
	if a.host().Init == nil || *a.host().Init {
		return "its process 1 is the engine's init"
	}
	return ""
}

func logs(a audited) string {
	l := a.host().LogConfig
	if l.Type == "none" || l.Config["max-size"] != "" && l.Config["max-file"] != "" {
		return ""
	}
	return fmt.Sprintf("its %s log may grow without limit", l.Type)
}

func looseTmpfs(a audited) string {
	for at, options := range a.host().Tmpfs {
		list := strings.Split(options, ",")
		sized := slices.ContainsFunc(list, func(o string) bool { return strings.HasPrefix(o, "size=") })
		if !sized || !slices.Contains(list, "noexec") || !slices.Contains(list, "nosuid") || !slices.Contains(list, "nodev") {
			return fmt.Sprintf("%s is mounted with %s", at, options)
		}
		owned := slices.ContainsFunc(list, func(o string) bool { return strings.HasPrefix(o, "uid=") })
		if !owned {
			return fmt.Sprintf("%s has the mode of the image's directory: it does not belong to the sandbox's user, "+
				"so process 1 cannot restore it", at)
		}
	}
	return ""
}

func unmasked(a audited) string {
	if h := a.host(); len(h.MaskedPaths) == 0 || len(h.ReadonlyPaths) == 0 {
		return "/proc shows paths that the engine hides by default"
	}
	return ""
}

func extras(a audited) string {
	h := a.host()
	var found []string
	settings := maps.Clone(h.Sysctls)
	for name := range confine.Sysctls() {
		delete(settings, name) // rule S.7 checks it
	}
	for what, n := range map[string]int{
		"kernel settings":             len(settings),
		"groups":                      len(h.GroupAdd),
		"volumes of other containers": len(h.VolumesFrom),
		"links":                       len(h.Links),
	} {
		if n > 0 {
			found = append(found, what)
		}
	}
	if found == nil {
		return ""
	}
	slices.Sort(found)
	return "it is given " + strings.Join(found, ", ")
}

func pings(a audited) string {
	for name, want := range confine.Sysctls() {
		if have := a.host().Sysctls[name]; have != want && hasNetwork(a.container) {
			return fmt.Sprintf("its kernel setting %s is %q and not %q", name, have, want)
		}
	}
	return ""
}

// otherVolumes finds writable volumes that no limit of the sandbox covers, such as those that an image declares.
func otherVolumes(a audited) string {
	h := objects.HandleIn(a.container.Config.Labels)
	own := []string{objects.WorkspaceVolume(h), objects.DataVolume(h), objects.LeaseVolume(h)}
	for _, m := range a.container.Mounts {
		_, hidden := a.host().Tmpfs[m.Destination] // the engine mounts the directory in memory instead
		if m.Type == dockerapi.MountTypeVolume && m.RW && !hidden && !slices.Contains(own, m.Name) {
			return fmt.Sprintf("it can write to volume %s at %s", m.Name, m.Destination)
		}
	}
	return ""
}

// hasNetwork reports whether a sandbox's container was created with its own network.
func hasNetwork(c dockerapi.ContainerInspect) bool {
	return c.HostConfig != nil && !c.HostConfig.NetworkMode.IsNone()
}
