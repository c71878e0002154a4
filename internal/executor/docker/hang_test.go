package docker_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// hang makes the engine hang on the container of a sandbox or companion, as code in it can. It stops the process that
// runc starts for a command. The engine waits for that process and holds the container's lock. heal ends that.
func hang(t *testing.T, h driver.Handle) (heal func()) {
	t.Helper()
	container := name(h)
	if h.Companion != "" {
		container += "." + h.Companion
	}
	c, err := dockertest.Engine(t).ContainerInspect(t.Context(), container)
	must(t, err)
	for range 300 {
		command := exec.Command("docker", "exec", c.ID, "/bin/true")
		must(t, command.Start())
		var pid int
		for end := time.Now().Add(2 * time.Second); pid == 0 && command.ProcessState == nil && time.Now().Before(end); {
			pid = stopInit(t, c.ID)
		}
		if pid == 0 {
			_ = command.Wait()
			continue
		}
		release := letGo(t, pid)
		heal := sync.OnceFunc(func() {
			release()
			_ = command.Wait() // it may have been cut off
		})
		t.Cleanup(heal)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := dockertest.Engine(t).ContainerInspect(ctx, c.ID)
		cancel()
		if err != nil {
			return heal
		}
		heal() // it was too late
	}
	t.Fatal("no runc was stopped in time")
	return nil
}

// letGo returns a function that continues a stopped process. A separate process does so, even if the test is killed: a
// stopped runc would prevent the engine from removing the container forever.
func letGo(t *testing.T, pid int) (release func()) {
	t.Helper()
	// It reads until the test or its process ends. An interrupt of the test does not reach it.
	watcher := exec.Command("/bin/sh", "-c", fmt.Sprintf("read -r _; kill -CONT %d 2>/dev/null || true", pid))
	watcher.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	end, err := watcher.StdinPipe()
	if err == nil {
		err = watcher.Start()
	}
	if err != nil {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
		t.Fatalf("watch over a stopped runc: %v", err)
	}
	return sync.OnceFunc(func() {
		_ = end.Close() // it may have ended already
		if err := watcher.Wait(); err != nil {
			t.Errorf("let runc go on: %v", err)
		}
	})
}

// stopInit stops the process in which runc is about to become a container's command. It returns its id, 0 if there is
// none.
func stopInit(t *testing.T, container string) int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	must(t, err)
	for _, name := range slices.Backward(names) {
		comm, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(comm), "runc:[2:INIT]") {
			continue
		}
		cgroup, err := os.ReadFile(filepath.Join(filepath.Dir(name), "cgroup"))
		if err != nil || !strings.Contains(string(cgroup), container) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		must(t, err)
		if syscall.Kill(pid, syscall.SIGSTOP) == nil {
			return pid
		}
	}
	return 0
}

// TestAContainerThatHangsHoldsUpNoOther stops runc in one of two sandboxes, or in its companion, so that the engine
// hangs on it.
func TestAContainerThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, companion := range map[string]string{"sandbox": "", "companion": "db"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holdsUpNoOther(t, companion)
		})
	}
}

func holdsUpNoOther(t *testing.T, companion string) {
	w := newWorld(t, dockertest.Busybox(t))
	spec := w.spec()
	if companion != "" {
		spec.Companions = sandbox.Companions{companion: {Image: w.image, Resources: spec.Resources}}
	}
	must(t, w.x.Spawn(t.Context(), spec))
	stuck, well := spec.Handle, w.spawn(t)
	heal := hang(t, stuck.Of(companion))

	began := time.Now()
	list, err := w.x.List(t.Context(), w.ref.LedgerID)
	must(t, err)
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the list took %s", took)
	}
	hangs := make(map[string]bool)
	for _, o := range list {
		hangs[o.SandboxID] = o.Hangs
	}
	if len(hangs) != 2 || !hangs[stuck.SandboxID] || hangs[well.SandboxID] {
		t.Errorf("of the two in the list these hang: %v", hangs)
	}

	// These are more requests about it than the executor makes at the same time.
	asking, stop := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	for range 64 {
		asked.Go(func() { _, _ = w.x.Inspect(asking, stuck) }) // they end with asking
	}
	killing, giveUp := context.WithTimeout(t.Context(), 10*time.Second)
	defer giveUp()
	killed := make(chan error, 1)
	go func() { killed <- w.x.Kill(killing, stuck) }()
	began = time.Now()
	if out := w.exec(t, well, "echo", "hello"); out != "hello\n" {
		t.Errorf("the other one says %q", out)
	}
	must(t, w.x.Kill(t.Context(), well))
	next := w.spawn(t)
	must(t, w.x.Kill(t.Context(), next))
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("a command, two kills and a spawn beside it took %s", took)
	}
	// It succeeds if the channel reached process 1: its end ends what the engine waits for.
	if err := <-killed; err != nil && !sandbox.IsRetryable(err) {
		t.Errorf("killing the one that hangs: %v", err)
	}
	stop()
	asked.Wait()

	heal()
	must(t, w.x.Kill(t.Context(), stuck))
}
