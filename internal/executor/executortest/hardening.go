package executortest

import (
	_ "embed"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testHardening(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	w.needExec(t)
	if !w.x.Capabilities().Confined {
		t.Skip("the backend shuts sandboxes in by itself")
	}
	shared := w.spawn(t)
	for _, row := range hardened {
		t.Run(row.name, func(t *testing.T) {
			cfg.skip(t, "Hardening/"+row.name)
			t.Parallel()
			if res := w.sh(t, shared, row.script); res.stdout() != row.want {
				t.Errorf("got %q, want %q (%s)", res.stdout(), row.want, res.Stderr)
			}
		})
	}
	for name, test := range map[string]func(*testing.T, *world){
		"another user has no capability either":             otherUser,
		"the kernel refuses what would lead out":            probeKernel,
		"the kernel does what programs need":                exerciseKernel,
		"a file as large as the disk cannot be written":     fileSize,
		"no sandbox sees another's files or processes":      otherSandbox,
		"a fork bomb ends with its timeout, and is alone":   forkBomb,
		"a memory bomb ends alone, and is told apart":       memoryBomb,
		"a bomb in the memory of /tmp is bounded":           tmpBomb,
		"descriptors that are used up are the command's":    descriptorBomb,
		"what fills its own directory stops nobody's files": fullTmp,
	} {
		t.Run(name, func(t *testing.T) {
			cfg.skip(t, "Hardening/"+name)
			t.Parallel()
			test(t, w)
		})
	}
}

// hardened are checks that run in a sandbox.
var hardened = []struct{ name, script, want string }{
	{"workspace belongs to the user",
		"for f in /workspace /data /workspace/config.json; do [ $(stat -c %u:%g $f) = $(id -u):$(id -g) ] && echo yes; done",
		"yes\nyes\nyes\n"},
	{"no capability", "grep -E '^Cap(Eff|Prm|Bnd|Inh|Amb)' /proc/self/status | tr -s '\\t ' ' ' | cut -d' ' -f2 | sort -u",
		"0000000000000000\n"},
	{"process 1 keeps what starts and ends commands",
		"grep -E '^Cap(Eff|Prm|Bnd)' /proc/1/status | tr -s '\\t ' ' ' | cut -d' ' -f2 | sort -u", "00000000000001e0\n"},
	{"process 1 has a user of its own", "grep -E '^[UG]id' /proc/1/status | tr -s '\\t ' ' ' | cut -d' ' -f2- | sort -u",
		"65533 65533 65533 65533\n"},
	{"no new privileges", "grep NoNewPrivs /proc/self/status | tr -d '\\t'", "NoNewPrivs:1\n"},
	{"seccomp filters", "grep '^Seccomp:' /proc/self/status | tr -d '\\t'", "Seccomp:2\n"},
	{"seccomp filters process 1", "grep '^Seccomp:' /proc/1/status | tr -d '\\t'", "Seccomp:2\n"},
	{"read-only root", "touch /etc/x /bin/x /x 2>&1 | grep -c 'Read-only'", "3\n"},
	{"nothing is writable but what is named",
		"for d in $(find / -xdev -type d -writable 2>/dev/null); do echo $d; done", ""},
	{"the guest cannot be replaced", "echo > /.sandbox/guest; rm /.sandbox/guest; ls /.sandbox", "guest\n"},
	{"commands die of memory before process 1",
		"[ $(cat /proc/self/oom_score_adj) -gt $(cat /proc/1/oom_score_adj) ] && echo yes", "yes\n"},
	{"process 1 dies of the host's memory before the host's own",
		"[ $(cat /proc/1/oom_score_adj) -gt 0 ] && echo yes", "yes\n"},
	{"nothing in /tmp runs", "cp /bin/busybox /tmp/x && chmod 755 /tmp/x && /tmp/x true 2>/dev/null; echo $?", "126\n"},
	{"nothing in /run runs",
		"cp /bin/busybox /run/x && chmod 755 /run/x && /run/x true 2>/dev/null; echo $?; rm /run/x", "126\n"},
	// The sandbox has 64 MB.
	{"/tmp, /run and /dev/shm leave memory",
		"df -m /tmp /run /dev/shm | tail -n 3 | tr -s ' ' | cut -d' ' -f2", "32\n4\n8\n"},
	{"programs in /workspace run", "cp /bin/busybox /workspace/busybox && /workspace/busybox echo ran", "ran\n"},
	{"no network but loopback", "ls /sys/class/net", "lo\n"},
	{"no engine socket", "find / -xdev -type s 2>/dev/null; ls /var/run/docker.sock /run/docker.sock 2>/dev/null", ""},
	{"no process of the host", "ls /proc/1/root >/dev/null 2>&1 || echo hidden; cat /proc/1/comm; for p in " +
		"/proc/[0-9]*; do [ ${p#/proc/} -gt 100000 ] && echo $p; done; true", "hidden\nsandbox-ready\n"},
	{"process 1 cannot be read",
		"cat /proc/1/environ /proc/1/maps /proc/1/mem 2>/dev/null | head -c 1; ls /proc/1/fd 2>/dev/null; true", ""},
	{"no device of the host", "find /dev -type b; ls /dev | grep -vx core",
		"fd\nfull\nmqueue\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero\n"},
	{"kernel settings are read-only", "echo x 2>/dev/null >/proc/sys/kernel/hostname || echo refused; echo " +
		"1 2>/dev/null >/proc/sys/vm/drop_caches || echo refused; echo b 2>/dev/null >/proc/sysrq-trigger || echo refused; " +
		"find /proc/sys -writable -type f | head -n 1", "refused\nrefused\nrefused\n"},
	{"/sys is read-only", "find /sys -xdev -type f -writable 2>/dev/null | head -n 1; mkdir /sys/fs/cgroup/memory/x " +
		"/sys/fs/cgroup/x 2>/dev/null || echo refused", "refused\n"},
	{"kernel memory and keys are masked",
		"wc -c < /proc/keys; wc -c < /proc/timer_list; head -c 1 /proc/kcore | wc -c; ls /proc/acpi /sys/firmware",
		"0\n0\n0\n/proc/acpi:\n\n/sys/firmware:\n"},
	{"no core dumps", "ulimit -Sc; ulimit -Hc; ulimit -c 1 2>/dev/null || echo refused; cd /workspace && sh -c 'kill " +
		"-SEGV $$'; ls /workspace | grep core; true", "0\n0\nrefused\n"},
	{"open files are limited", "ulimit -Sn; ulimit -Hn; ulimit -n 16385 2>/dev/null || echo refused",
		"16384\n16384\nrefused\n"},
	{"its processes are fewer than the sandbox may have",
		"ulimit -Su; ulimit -Hu; ulimit -u 41 2>/dev/null || echo refused", "40\n40\nrefused\n"},
}

// allowRoot allows commands of a sandbox to run as user 0.
func allowRoot(s *driver.SandboxSpec) { s.Confinement.AllowRoot = true }

func otherUser(t *testing.T, w *world) {
	res := w.exec(t, w.spawn(t, allowRoot), sandbox.ExecRequest{User: "0:0", Command: []string{"sh", "-c",
		"id -u; grep CapEff /proc/self/status | tr -d '\\t'; cat /workspace/config.json >/dev/null && touch /workspace/x " +
			"2>/dev/null || echo refused; mount -t tmpfs none /mnt 2>/dev/null || echo refused"}})
	if want := "0\nCapEff:0000000000000000\nrefused\nrefused\n"; res.stdout() != want {
		t.Errorf("as user 0: %q, want %q", res.stdout(), want)
	}
}

// prober tries forbidden system calls one after another.
//
//go:embed testdata/prober.go
var prober string

func probeKernel(t *testing.T, w *world) {
	program := Compile(t, prober)
	for _, user := range []string{"", "0:0"} {
		h := w.spawn(t, func(s *driver.SandboxSpec) { s.Confinement.AllowRoot = user != "" })
		must(t, w.x.CopyTo(t.Context(), h, "/workspace", pack(t, executable("prober", program))))
		w.sh(t, h, "mkdir -p /workspace/probe && chmod 777 /workspace /workspace/probe")
		res := w.exec(t, h, sandbox.ExecRequest{Command: []string{"/workspace/prober"}, User: user})
		if n := strings.Count(res.stdout(), "\n"); res.ExitCode != 0 || n < 90 {
			t.Fatalf("as user %q: exit code %d after %d answers: %s", user, res.ExitCode, n, res.Stderr)
		}
		for line := range strings.Lines(res.stdout()) {
			if line = strings.TrimSpace(line); !strings.Contains(line, ": refused: ") && !(user == "0:0" && permitted[line]) {
				t.Errorf("as user %q: %s", user, line)
			}
			name, got, _ := strings.Cut(line, ": refused: ")
			if want := refusals[name]; want != 0 && got != want.Error() {
				t.Errorf("as user %q: %s is refused by %q, want %q", user, name, got, want)
			}
		}
	}
}

// refusals are the errors after which programs do without a call.
var refusals = map[string]syscall.Errno{
	"io_uring_setup":         syscall.ENOSYS,
	"io_setup":               syscall.ENOSYS,
	"clone3 user namespace":  syscall.ENOSYS,
	"a call of the future":   syscall.ENOSYS,
	"unshare user namespace": syscall.EPERM,
	"clone user namespace":   syscall.EPERM,
	"mount tmpfs":            syscall.EPERM,
	"keyctl":                 syscall.EPERM,
	"bpf":                    syscall.EPERM,
	"userfaultfd":            syscall.EPERM,
	"perf_event_open":        syscall.EPERM,
	"vsock stream":           syscall.EAFNOSUPPORT,
	"alg":                    syscall.EAFNOSUPPORT,
	"netlink to netfilter":   syscall.EPROTONOSUPPORT,
}

// permitted are calls that change nothing for user 0.
var permitted = map[string]bool{"setuid 0: succeeded with 0": true, "setgid 0: succeeded with 0": true}

// exerciser uses the system calls that programs need, one group after another.
//
//go:embed testdata/exerciser.go
var exerciser string

func exerciseKernel(t *testing.T, w *world) {
	h := w.spawn(t)
	must(t, w.x.CopyTo(t.Context(), h, "/workspace", pack(t, executable("exerciser", Compile(t, exerciser)))))
	res := w.exec(t, h, sandbox.ExecRequest{Command: []string{"/workspace/exerciser"}})
	lines := strings.Split(strings.TrimSpace(res.stdout()), "\n")
	if res.ExitCode != 0 || len(lines) < 25 {
		t.Fatalf("exit code %d after %d answers: %s", res.ExitCode, len(lines), res.Stderr)
	}
	for _, line := range lines {
		if !strings.HasSuffix(line, ": done") {
			t.Error(line)
		}
	}
}
