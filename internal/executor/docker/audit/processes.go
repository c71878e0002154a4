package audit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// processRules are the rules for a container's processes, as opposed to its configuration.
var processRules = []rule{
	{number: "S.8", title: "no process runs as root", finding: each(asRoot), needs: seesUsers},
	{number: "S.9", title: "no process has capabilities", finding: each(withCapabilities), needs: seesKernel},
	{
		number:  "S.10",
		title:   "no process gains privileges or makes unfiltered system calls",
		finding: each(unfiltered),
		needs:   seesKernel,
	},
}

// process is one process of a container, with all of its threads.
type process struct {
	pid  int
	name string
	// users are the real, effective and saved users; fileUsers are those for file access. All ids are as seen in the
	// container.
	users, fileUsers, groups []uint64
	kernel                   *kernelView
}

// kernelView is what only the kernel of the engine's machine shows.
type kernelView struct {
	started string // identifies a process, together with the pid
	// capabilities are the bits of all sets, including the bounding set.
	capabilities              uint64
	noNewPrivileges, filtered bool
}

// capabilityBits are the bits (linux/capability.h) of the capabilities that our containers get.
var capabilityBits = map[string]uint64{
	"CHOWN":        1 << 0,
	"DAC_OVERRIDE": 1 << 1,
	"FOWNER":       1 << 3,
	"KILL":         1 << 5,
	"SETGID":       1 << 6,
	"SETUID":       1 << 7,
	"SETPCAP":      1 << 8,
}

// keeperKeeps are the capabilities that process 1 keeps after it has switched from root to another user.
var keeperKeeps = capabilityBits["SETUID"] | capabilityBits["SETGID"] | capabilityBits["SETPCAP"] |
	capabilityBits["KILL"]

// keepsItself reports whether the container's process 1 starts as root and continues as guest.KeeperID, with exactly
// the capabilities for that.
func (a audited) keepsItself() bool {
	entry := a.container.Config.Entrypoint
	return len(entry) > 1 && entry[0] == guest.Path && entry[1] == "keep" && dropsAll(a.host()) &&
		!slices.ContainsFunc(a.host().CapAdd,
			func(c string) bool { return capabilityBits[strings.TrimPrefix(c, "CAP_")] == 0 })
}

// mayHold returns the capabilities that a process may have by the container's configuration. Only the users of process
// 1 and its helpers distinguish them from code of the sandbox, which cannot become guest.KeeperID.
func (a audited) mayHold(p process) uint64 {
	if objects.Role(a.container.Config.Labels[objects.LabelRole]) == objects.RoleRelay { // relayRules check its program
		return capabilityBits["CHOWN"]
	}
	if !a.keepsItself() || slices.ContainsFunc(p.users, func(u uint64) bool { return u != guest.KeeperID }) {
		return 0
	}
	return keeperKeeps
}

func asRoot(a audited, p process) string {
	user, group, _ := strings.Cut(a.container.Config.User, ":")
	if root := []string{"", "0", "root"}; !a.keepsItself() &&
		(slices.Contains(root, user) || slices.Contains(root[1:], group)) {
		return "" // rule 4.1 reports it
	}
	users := slices.Concat(p.users, p.fileUsers)
	if slices.Contains(users, 0) || slices.Contains(p.groups, 0) {
		return fmt.Sprintf("it has users %v and groups %v", slices.Compact(users), slices.Compact(p.groups))
	}
	return ""
}

func withCapabilities(a audited, p process) string {
	if excess := p.kernel.capabilities &^ a.mayHold(p); excess != 0 {
		return fmt.Sprintf("it has capabilities %#x", excess)
	}
	return ""
}

func unfiltered(_ audited, p process) string {
	switch {
	case !p.kernel.filtered:
		return "its system calls are not filtered"
	case !p.kernel.noNewPrivileges:
		return "it can gain privileges"
	}
	return ""
}

// each applies a check to all processes, and returns the first finding.
func each(broken func(audited, process) string) func(audited) string {
	return func(a audited) string {
		for _, p := range a.processes {
			if finding := broken(a, p); finding != "" {
				return fmt.Sprintf("process %d of the host, %q: %s", p.pid, p.name, finding)
			}
		}
		return ""
	}
}

func seesUsers(a audited) string { return a.unseen }

func seesKernel(a audited) string {
	if a.unseen == "" && slices.ContainsFunc(a.processes, func(p process) bool { return p.kernel == nil }) {
		return "its processes are visible only on the engine's machine"
	}
	return a.unseen
}

// suspect reports whether a process breaks an applicable rule.
func (a audited) suspect(p process) bool {
	return asRoot(a, p) != "" || p.kernel != nil && (withCapabilities(a, p) != "" || unfiltered(a, p) != "")
}

// settling is how long a process may break a rule: the engine starts each process as root and without a filter, and
// then drops both.
const settling = 3 * time.Second

// watchProcesses adds the container's processes. A process breaks a rule only if every sample shows that.
func (au Auditor) watchProcesses(ctx context.Context, a audited) audited {
	if s := a.container.State; s == nil || !s.Running {
		a.unseen = "it is not running"
		return a
	}
	var first []process
	_ = engine.Await(ctx, "its processes are settled", settling, func(ctx context.Context) (bool, error) {
		found, err := au.processesOf(ctx, a)
		if err != nil {
			if first == nil { // otherwise the time is up, or the container has ended
				a.unseen = "the engine does not show its processes: " + err.Error()
			}
			return false, err
		}
		if a.processes = found; first == nil {
			first = found
		}
		first = slices.DeleteFunc(slices.Clone(first), func(was process) bool {
			return !a.suspect(was) || !slices.ContainsFunc(found, func(p process) bool { return p.same(was) && a.suspect(p) })
		})
		return len(first) == 0, nil
	}) // first now holds the processes that were suspect in every sample
	a.processes = slices.DeleteFunc(a.processes, func(p process) bool {
		return a.suspect(p) && !slices.ContainsFunc(first, func(was process) bool { return p.same(was) })
	})
	return a
}

// same reports whether p and q are the same process.
func (p process) same(q process) bool {
	return p.pid == q.pid && (p.kernel == nil || q.kernel == nil || p.kernel.started == q.kernel.started)
}

// psColumns are the columns of ps, which the engine runs on its machine.
const psColumns = "-eo pid,ruid,euid,suid,fuid,rgid,egid,sgid,fgid,comm"

// processesOf lists the processes of a container.
func (au Auditor) processesOf(ctx context.Context, a audited) ([]process, error) {
	r := engine.Read("list processes of container", a.container.ID)
	r.Limit = engine.ListedLimit
	top, err := engine.Fetch(ctx, au.engine, r, func(ctx context.Context) (dockerapi.TopResponse, error) {
		return au.engine.API.ContainerTop(ctx, a.container.ID, []string{psColumns})
	})
	if err != nil {
		return nil, err
	}
	local := au.engine.IsLocal() && isOf(a.container.State.Pid, a.container.ID)
	var list []process
	for _, row := range top.Processes {
		p, err := readRow(row)
		if err != nil {
			return nil, err
		}
		if local {
			gone, err := p.look(a.container.ID)
			if err != nil {
				return nil, err
			}
			if gone {
				continue
			}
		} else if engine.MapsUsers(a.engine) {
			return nil, fmt.Errorf("it shows users of its machine instead of those of the container")
		}
		list = append(list, p)
	}
	return list, nil
}

// readRow parses a line of ps.
func readRow(row []string) (p process, err error) {
	const ids = 9
	if len(row) <= ids {
		return p, fmt.Errorf("unexpected output of ps: %q", row)
	}
	numbers := make([]uint64, ids)
	for i, field := range row[:ids] {
		if numbers[i], err = strconv.ParseUint(field, 10, 64); err != nil {
			return p, fmt.Errorf("unexpected output of ps: %q: %w", row, err)
		}
	}
	name := strings.Join(row[ids:], " ")
	return process{pid: int(numbers[0]), name: name, users: numbers[1:4], fileUsers: numbers[4:5], groups: numbers[5:]},
		nil
}
