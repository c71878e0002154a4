package docker_test

import (
	"maps"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// soon audits a sandbox until exactly these rules have findings.
func (w *world) soon(t *testing.T, sandboxID string, rules ...string) {
	t.Helper()
	var found map[string]string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		found, _ = w.findings(t, sandboxID)
		if slices.Equal(slices.Sorted(maps.Keys(found)), rules) {
			return
		}
	}
	t.Errorf("findings: %v, want of %v", found, rules)
}

// TestTheAuditLooksAtWhatRuns makes the engine start processes that weaken a correctly created sandbox.
func TestTheAuditLooksAtWhatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	for name, row := range map[string]struct {
		options, rules []string
	}{
		"as root":    {[]string{"--user", "0"}, []string{"S.8", "S.9"}},
		"in group 0": {[]string{"--user", "1000:0"}, []string{"S.8", "S.9"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := w.spec()
			spec.Resources.DiskMB = 1024
			must(t, w.x.Spawn(t.Context(), spec))
			w.soon(t, spec.SandboxID)
			must(t, exec.CommandContext(t.Context(), "docker", slices.Concat([]string{"exec", "-d"}, row.options,
				[]string{"sandbox-" + spec.LedgerID + "-" + spec.SandboxID, "/bin/sleep", "600"})...).Run())
			w.soon(t, spec.SandboxID, row.rules...)
			must(t, w.x.Kill(t.Context(), spec.Handle))
		})
	}
}

// TestTheAuditOfAnEngineElsewhereKnowsUsersAlone uses an address that may be another machine's.
func TestTheAuditOfAnEngineElsewhereKnowsUsersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	h := w.spawn(t)
	far := httptest.NewServer(dockertest.NewProxy(t))
	t.Cleanup(far.Close)
	x, err := docker.New(docker.Config{Host: "tcp://" + far.Listener.Addr().String()})
	must(t, err)
	t.Cleanup(func() { must(t, x.Close()) })
	verdicts := func() map[string]sandbox.Verdict {
		checks, err := x.Audit(t.Context(), w.ref.LedgerID)
		must(t, err)
		of := make(map[string]sandbox.Verdict)
		for _, c := range checks {
			if c.SandboxID == h.SandboxID && slices.Contains([]string{"S.8", "S.9", "S.10"}, c.Rule) {
				of[c.Rule] = c.Verdict
			}
		}
		return of
	}
	want := map[string]sandbox.Verdict{
		"S.8":  sandbox.VerdictPass,
		"S.9":  sandbox.VerdictInapplicable,
		"S.10": sandbox.VerdictInapplicable,
	}
	if got := verdicts(); !maps.Equal(got, want) {
		t.Errorf("the verdicts are %v, want %v", got, want)
	}
	must(t, exec.CommandContext(t.Context(), "docker", "exec", "-d", "--user", "0", name(h), "/bin/sleep", "600").Run())
	want["S.8"] = sandbox.VerdictFinding
	for end := time.Now().Add(30 * time.Second); !maps.Equal(verdicts(), want); {
		if time.Now().After(end) {
			t.Fatalf("the verdicts are %v, want %v", verdicts(), want)
		}
	}
}

// TestTheAuditDoesNotMindProcessesThatTheEngineStarts: each is root's and unfiltered for a moment.
func TestTheAuditDoesNotMindProcessesThatTheEngineStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	spec := w.spec()
	spec.Resources.DiskMB = 1024
	must(t, w.x.Spawn(t.Context(), spec))
	enough := make(chan struct{})
	var busy sync.WaitGroup
	for range 3 {
		busy.Go(func() {
			for {
				select {
				case <-enough:
					return
				default:
					w.exec(t, spec.Handle, "true")
				}
			}
		})
	}
	for range 10 {
		if found, _ := w.findings(t, spec.SandboxID); len(found) != 0 {
			t.Errorf("findings: %v", found)
		}
	}
	close(enough)
	busy.Wait()
}

// keeper stands in for a process 1 that starts as root, keeps four capabilities as its own user, and starts code
// without any. Its argument names a deviation.
const keeper = `package main

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"
)

const user, keeps = 65533, 1<<5 | 1<<6 | 1<<7 | 1<<8

func all(number, a, b uintptr) {
	if _, _, errno := syscall.AllThreadsSyscall(number, a, b, 0); errno != 0 {
		println(number, a, errno.Error())
		os.Exit(1)
	}
}

func main() {
	otherwise := os.Args[2]
	for c := uintptr(0); c <= 3; c++ {
		all(syscall.SYS_PRCTL, 24, c) // PR_CAPBSET_DROP
	}
	all(syscall.SYS_PRCTL, 8, 1) // PR_SET_KEEPCAPS
	if err := syscall.Setresgid(user, user, user); err != nil {
		panic(err)
	}
	if otherwise != "stay root" {
		if err := syscall.Setresuid(user, user, user); err != nil {
			panic(err)
		}
	}
	header, data := [2]uint32{0x20080522, 0}, [6]uint32{keeps, keeps}
	all(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)))
	runtime.LockOSThread() // the thread that starts the code has no bounding set to give it
	if otherwise != "bound code" {
		for c := uintptr(5); c <= 8; c++ {
			syscall.RawSyscall(syscall.SYS_PRCTL, 24, c, 0)
		}
	}
	code := exec.Command("/bin/sleep", "600")
	code.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	if otherwise == "root code" {
		code.SysProcAttr.Credential = &syscall.Credential{}
	}
	if err := code.Start(); err != nil {
		panic(err)
	}
	_ = code.Wait()
}
`

func TestTheAuditKnowsWhatProcess1Keeps(t *testing.T) {
	t.Parallel()
	api := dockertest.Engine(t)
	program := dockertest.File{Name: ".sandbox/guest", Mode: 0o755, Content: executortest.Compile(t, keeper)}
	image := dockertest.Import(t,
		append(dockertest.BusyboxFiles(t), dockertest.File{Name: ".sandbox/", Mode: 0o755}, program))
	w := newWorld(t, dockertest.Busybox(t))
	spec := w.spec()
	spec.Resources.DiskMB = 1024
	must(t, w.x.Spawn(t.Context(), spec))
	model, err := api.ContainerInspect(t.Context(), name(spec.Handle))
	must(t, err)
	kept := []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "SETPCAP", "KILL"}
	for _, row := range []struct {
		otherwise string
		weaken    func(h *dockerapi.HostConfig)
		rules     []string
	}{
		{otherwise: "nothing"},
		{otherwise: "stay root", rules: []string{"S.8", "S.9"}},
		{otherwise: "root code", rules: []string{"S.8"}},
		{otherwise: "bound code", rules: []string{"S.9"}},
		{"nothing", func(h *dockerapi.HostConfig) { h.CapAdd = append(slices.Clone(kept), "NET_ADMIN") },
			[]string{"4.1", "5.4", "S.9"}},
		{"nothing", func(h *dockerapi.HostConfig) { h.SecurityOpt = []string{"seccomp=unconfined"} },
			[]string{"5.22", "5.26", "S.10"}},
	} {
		t.Run(strings.Join(append([]string{row.otherwise}, row.rules...), " "), func(t *testing.T) {
			c, h := *model.Config, *model.HostConfig
			id := sandbox.RandomIDs(sandbox.SandboxIDLength)
			c.Labels = maps.Clone(c.Labels)
			c.Labels["io.sandbox-lease.sandbox"] = id
			c.Image, c.User, c.Cmd = image, "0:0", nil
			c.Entrypoint = []string{"/.sandbox/guest", "keep", row.otherwise, "-deadline", "1900000000000000"}
			h.CapAdd, h.Mounts = kept, nil
			if row.weaken != nil {
				row.weaken(&h)
			}
			made, err := api.ContainerCreate(t.Context(), &c, &h, nil, nil, "")
			must(t, err)
			defer func() {
				must(t, api.ContainerRemove(t.Context(), made.ID, dockerapi.ContainerRemoveOptions{Force: true}))
			}()
			must(t, api.ContainerStart(t.Context(), made.ID, dockerapi.StartOptions{}))
			w.soon(t, id, row.rules...)
		})
	}
}
