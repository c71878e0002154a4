package docker_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// gvisor is the variable with the runsc for the contract, as scripts/gvisor prints it.
const gvisor = "SANDBOX_TEST_GVISOR"

// Differences on gVisor. Its kernel runs as processes of the host, which count towards the limits of the sandbox.
const (
	endsWhole     = "the limits end all of a sandbox, because they hold for gVisor's kernel too"
	followsLinks  = "gVisor opens the directory that a link leads to, whatever O_NOFOLLOW says"
	ownKernel     = "gVisor's kernel has other files, devices and calls"
	noNamelessOut = "gVisor has no files without a name on volumes, so that output is kept in memory, up to 1 MiB"
	unfiltered    = "gVisor filters its own calls to the host, and none of a sandbox"
	holes         = "gVisor tells the length of a file with holes as its size on disk"
	noPriorities  = "gVisor's priorities and affinities have no effect, and it refuses no change of them"
)

var withoutOnGVisor = map[string]string{
	"Network": "the test's engine has no networks",
	"Observer/a command out of memory is reported as such": endsWhole,
	"Follow/output":                                           noNamelessOut,
	"Processes/a log keeps the latest":                        noNamelessOut,
	"Files/nothing is written outside":                        followsLinks,
	"Files/nothing is read outside":                           followsLinks,
	"Files/a link that comes first leads nowhere":             followsLinks,
	"Files/a race for the path leads nowhere":                 followsLinks,
	"Files/a race for one path leads nowhere":                 followsLinks,
	"Files/single files stay inside":                          followsLinks,
	"Files/what lies on disk is counted":                      holes,
	"Hardening/a file as large as the disk cannot be written": holes,
	"Hardening/seccomp filters":                               unfiltered,
	"Hardening/seccomp filters process 1":                     unfiltered,
	"Hardening/read-only root": "gVisor refuses a write for its user before " +
		"it looks at the file system",
	"Hardening/process 1 dies of the host's memory before the host's own": ownKernel,
	"Hardening/no network but loopback":                                   ownKernel,
	"Hardening/no device of the host":                                     ownKernel,
	"Hardening/kernel memory and keys are masked":                         ownKernel,
	"Hardening/its processes are fewer than the sandbox may have":         "the test's sandboxes may have others",
	"Hardening/the kernel refuses what would lead out":                    ownKernel,
	"Hardening/the kernel does what programs need":                        ownKernel,
	"Hardening/a fork bomb ends with its timeout, and is alone":           endsWhole,
	"Hardening/a memory bomb ends alone, and is told apart":               endsWhole,
	"Hardening/a bomb in the memory of /tmp is bounded":                   endsWhole,
	"Attacks/no process of another user can be reached":                   noPriorities,
	"Deadline/nice":      noPriorities,
	"Deadline/scheduler": noPriorities,
	"Deadline/affinity":  noPriorities,
	"Attacks/no command is traced before it runs":                         "gVisor runs no program that cannot be read",
	"Attacks/no result of a verifier is forged":                           "an attack can keep a verifier from beginning",
	"Attacks/spinning processes do not put the deadline off":              endsWhole,
	"Attacks/what a sandbox uses up is its own":                           endsWhole,
	"Attacks/what another user of a sandbox uses up is the sandbox's own": endsWhole,
	"Attacks/a bomb does not put its end off":                             endsWhole,
	"Attacks/a bomb does not put the end of its sandbox off":              endsWhole,
}

func TestContractOnGVisor(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_LONG") == "" || os.Getenv(gvisor) == "" {
		t.Skip("takes minutes: set SANDBOX_TEST_LONG=1 and " + gvisor + ", or run make test-long")
	}
	d := runtimesOf(t,
		map[string]dockertest.Runtime{"runsc": {Path: os.Getenv(gvisor), Args: []string{"--host-uds=open"}}})
	cfg := contractOn(d.Connect(), d.Host(), d.Busybox())
	cfg.Runtime, cfg.FewAttempts, cfg.Without = "runsc", true, withoutOnGVisor
	cfg.Resources = sandbox.Resources{MemoryMB: 64, CPUMillis: 1000, PIDs: 512} // gVisor's own threads count
	// gVisor's processes are not visible on the host.
	cfg.BreakChannel = nil
	executortest.Run(t, cfg)
}

// TestAGVisorThatLacksSomethingIsRefusedByItsVersion runs with the newer release and with Debian's of 2022.
func TestAGVisorThatLacksSomethingIsRefusedByItsVersion(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("takes minutes: set SANDBOX_TEST_LONG=1, or run make test-long")
	}
	runtimes := map[string]dockertest.Runtime{}
	if newer := os.Getenv(gvisor); newer != "" {
		runtimes["closed"] = dockertest.Runtime{Path: newer}
		runtimes["limitless"] = dockertest.Runtime{Path: newer, Args: []string{"--host-uds=open", "--ignore-cgroups"}}
		runtimes["runsc"] = dockertest.Runtime{Path: newer, Args: []string{"--host-uds=open"}}
	}
	old, err := exec.LookPath("runsc")
	if version, _ := exec.CommandContext(t.Context(), old, "--version").Output(); err == nil &&
		strings.Contains(string(version), "0.0~2022") {
		runtimes["old"] = dockertest.Runtime{
			Path: old,
			Args: []string{"--host-uds=open", "--network=none", "--platform=ptrace"},
		}
	}
	d := runtimesOf(t, runtimes)
	w := newWorldAt(t, newExecutorOn(t, d.Host()), d.Connect(), d.Busybox(), func(*sandbox.EnvironmentSpec) {})
	for name, says := range map[string][]string{
		"closed":    {"4.19.0-gvisor", "the channel's socket", "--host-uds=open"},
		"limitless": {"--ignore-cgroups"},
		"old":       {"gVisor with kernel 4.4.0", "PR_CAP_AMBIENT", "4.19.0-gvisor", "install"},
		"runsc":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			if _, there := runtimes[name]; !there {
				t.Skip("this machine has no such gVisor")
			}
			err := w.x.Provision(t.Context(), w.ref, w.on(name))
			if says == nil {
				must(t, err)
				return
			}
			wantRefused(t, err, says...)
		})
	}
}
