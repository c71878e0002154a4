package executortest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testCompanions(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	w.needExec(t)
	if !w.x.Capabilities().Companions {
		t.Skip("the backend has no companions")
	}
	for name, test := range map[string]func(*testing.T, *world){
		"share the network of the sandbox, with network none too": companionsShareNetwork,
		"share nothing else with it":                              companionsShareNothingElse,
		"are not disturbed by hostile code in it":                 companionsUnderAttack,
		"stop with their program, whose output and code stay":     companionsEndWithProgram,
		"can be started again":                                    companionsStartAgain,
		"can be stopped while it runs":                            companionsStopAlone,
		"are paused with it":                                      companionsPause,
		"are stopped with it, and keep their files":               companionsStop,
		"get a new network when it stopped on its own":            companionsAfterCrash,
		"end at its deadline, without this program":               companionsDeadline,
		"of a pool end at the deadline of the lease":              companionsOfPool,
		"are gone with it, whatever is left of them":              companionsKilled,
		"get secrets as files":                                    companionsSecrets,
		"are spawned once":                                        companionsTwice,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, w) })
	}
}

// withCompanion gives a sandbox a companion db.
func (w *world) withCompanion(change ...func(*driver.SandboxSpec)) func(*driver.SandboxSpec) {
	return func(s *driver.SandboxSpec) {
		s.Companions = sandbox.Companions{"db": sandbox.Companion{
			Image: w.Image, Resources: sandbox.Resources{MemoryMB: 64, CPUMillis: 500, PIDs: 64, DiskMB: 1024},
			Env: map[string]string{"FLAVOUR": "of the companion"},
		}.WithDefaults()}
		for _, f := range change {
			f(s)
		}
	}
}

// run starts the program of a companion, and returns a function that waits for its end.
func (w *world) run(t *testing.T, h driver.Handle, script string) func() (sandbox.ExecResult, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var res sandbox.ExecResult
	var err error
	running.Go(func() {
		res, err = w.x.RunProcess(ctx, h, driver.ProcessRun{ID: driver.CompanionMain, Command: []string{"sh", "-c", script},
			Cwd: "/workspace"})
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return func() (sandbox.ExecResult, error) { running.Wait(); return res, err }
}

func (w *world) companion(t *testing.T, h driver.Handle) driver.CompanionObservation {
	t.Helper()
	o, err := w.x.Inspect(t.Context(), h)
	must(t, err)
	return o.Companions["db"]
}

func (w *world) awaitCompanion(t *testing.T, h driver.Handle, want sandbox.State) {
	t.Helper()
	eventually(t, "the companion is "+string(want), func() bool { return w.companion(t, h).State == want })
}

func companionsShareNetwork(t *testing.T, w *world) {
	h := w.spawn(t, w.withCompanion())
	w.run(t, h.Of("db"), "echo it answers > index.html && exec httpd -f -p 127.0.0.1:8765")
	must(t, w.x.AwaitPort(t.Context(), h, 8765))
	w.wantOutput(t, h, "wget -q -O - http://127.0.0.1:8765/", "it answers\n")
	w.wantOutput(t, h, "ls /sys/class/net", "lo\n")
	w.wantOutput(t, h.Of("db"), "ls /sys/class/net; echo $FLAVOUR", "lo\nof the companion\n")
}

func companionsShareNothingElse(t *testing.T, w *world) {
	h := w.spawn(t, w.withCompanion())
	db := h.Of("db")
	w.run(t, db, "sleep 7011")
	eventually(t, "the program runs", func() bool { return w.alive(t, db, "sleep 7011") == 1 })
	if n := w.alive(t, h, "sleep 7011"); n != 0 {
		t.Errorf("the sandbox sees %d processes of its companion", n)
	}
	for _, dir := range []string{"/workspace", "/data", "/tmp"} {
		w.sh(t, db, "echo mine > "+dir+"/of-the-companion")
		w.wantOutput(t, h, "ls "+dir+" | grep -c of-the-companion; true", "0\n")
	}
	for _, kind := range []string{"pid", "mnt", "ipc", "uts", "net"} {
		of := w.sh(t, h, "readlink /proc/self/ns/"+kind).stdout()
		theirs := w.sh(t, db, "readlink /proc/self/ns/"+kind).stdout()
		if shared := of == theirs; shared != (kind == "net") {
			t.Errorf("namespace %s: %s and %s", kind, of, theirs)
		}
	}
	if w.user(t, h) == w.user(t, db) {
		t.Error("the companion has the user of the sandbox")
	}
	w.wantOutput(t, db, "touch /outside 2>/dev/null; ls /.sandbox-egress 2>/dev/null; "+
		"grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t '", "CapEff:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n")
}

func companionsUnderAttack(t *testing.T, w *world) {
	h := w.spawn(t, w.withCompanion())
	db := h.Of("db")
	w.run(t, db, "echo it answers > index.html && exec httpd -f -p 127.0.0.1:8766")
	must(t, w.x.AwaitPort(t.Context(), h, 8766))
	w.sh(t, h, "for p in $(seq 1 4000); do [ $p = $$ ] || kill -STOP $p || kill -KILL $p; done 2>/dev/null; true")
	w.wantOutput(t, h,
		"for p in /proc/[0-9]*; do cat $p/root/workspace/index.html; done 2>/dev/null | grep -c answers; true", "0\n")
	w.wantOutput(t, h, "wget -q -O - http://127.0.0.1:8766/", "it answers\n")
	if o := w.companion(t, h); o.State != sandbox.StateRunning {
		t.Errorf("the companion is %s", o.State)
	}
}

func companionsEndWithProgram(t *testing.T, w *world) {
	h := w.spawn(t, w.withCompanion())
	wait := w.run(t, h.Of("db"), "echo out of it; echo its last words >&2; exit 7")
	if res, err := wait(); err == nil && res.ExitCode != 7 {
		t.Errorf("the program ended with %d", res.ExitCode)
	}
	w.awaitCompanion(t, h, sandbox.StateStopped)
	if o := w.companion(t, h); o.ExitCode != 7 || o.StoppedAt.IsZero() {
		t.Errorf("observed %+v, want exit code 7", o)
	}
	w.wantState(t, h, sandbox.StateRunning)
	if o := w.companion(t, h); !strings.Contains(o.Output, "out of it\nits last words\n") {
		t.Errorf("its output is %q", o.Output)
	}
}

func companionsStartAgain(t *testing.T, w *world) {
	h := w.spawn(t, w.withCompanion())
	x, ok := w.x.(driver.CompanionHost)
	if !ok {
		t.Fatal("the executor is no CompanionHost")
	}
	_, _ = w.run(t, h.Of("db"), "exit 1")()
	w.awaitCompanion(t, h, sandbox.StateStopped)
	must(t, x.ReviveCompanion(t.Context(), h.Of("db")))
	must(t, x.ReviveCompanion(t.Context(), h.Of("db")))
	w.run(t, h.Of("db"), "exec httpd -f -p 127.0.0.1:8767")
	must(t, w.x.AwaitPort(t.Context(), h, 8767))
	wantError(t, x.ReviveCompanion(t.Context(), h.Of("other")), sandbox.NotFound, sandbox.ReasonPartMissing)
	program, err := x.CompanionProgram(t.Context(), h.Of("db"))
	if must(t, err); len(program) > 0 && program[0] == "" {
		t.Errorf("the program of the image is %q", program)
	}
}

func companionsStopAlone(t *testing.T, w *world) {
	h := w.spawn(t, w.withCompanion())
	x, ok := w.x.(driver.CompanionHost)
	if !ok {
		t.Fatal("the executor is no CompanionHost")
	}
	db := h.Of("db")
	w.run(t, db, "sleep 7016")
	eventually(t, "the program runs", func() bool { return w.alive(t, db, "sleep 7016") == 1 })
	must(t, x.StopCompanion(t.Context(), db))
	must(t, x.StopCompanion(t.Context(), db))
	must(t, x.StopCompanion(t.Context(), h.Of("other")))
	w.awaitCompanion(t, h, sandbox.StateStopped)
	w.wantState(t, h, sandbox.StateRunning)
	must(t, x.ReviveCompanion(t.Context(), db))
	w.run(t, db, "sleep 7016")
	eventually(t, "the program runs again", func() bool { return w.alive(t, db, "sleep 7016") == 1 })
}

func companionsPause(t *testing.T, w *world) {
	if !w.x.Capabilities().Pause {
		t.Skip("the backend cannot pause")
	}
	h := w.spawn(t, w.withCompanion())
	w.run(t, h.Of("db"), "echo it answers > index.html && exec httpd -f -p 127.0.0.1:8768")
	must(t, w.x.AwaitPort(t.Context(), h, 8768))
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause))
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause))
	w.awaitCompanion(t, h, sandbox.StatePaused)
	wake(t, w.x, h)
	w.awaitCompanion(t, h, sandbox.StateRunning)
	w.wantOutput(t, h, "wget -q -O - http://127.0.0.1:8768/", "it answers\n")
}

func companionsStop(t *testing.T, w *world) {
	h := w.spawn(t, w.withCompanion())
	db := h.Of("db")
	w.sh(t, db, "echo kept > /data/kept")
	w.run(t, db, "exec httpd -f -p 127.0.0.1:8769")
	must(t, w.x.AwaitPort(t.Context(), h, 8769))
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	w.awaitCompanion(t, h, sandbox.StateStopped)
	wake(t, w.x, h)
	w.awaitCompanion(t, h, sandbox.StateRunning)
	w.wantOutput(t, db, "cat /data/kept", "kept\n")
	w.run(t, db, "exec httpd -f -p 127.0.0.1:8769") // the caller starts its program
	must(t, w.x.AwaitPort(t.Context(), h, 8769))
}

func companionsAfterCrash(t *testing.T, w *world) {
	h := w.spawn(t, w.withCompanion())
	db := h.Of("db")
	w.run(t, db, "exec httpd -f -p 127.0.0.1:8770")
	must(t, w.x.AwaitPort(t.Context(), h, 8770))
	w.StopBehindBack(t, h)
	w.awaitStopped(t, h)
	wake(t, w.x, h)
	w.awaitCompanion(t, h, sandbox.StateRunning)
	w.run(t, db, "exec httpd -f -p 127.0.0.1:8770")
	must(t, w.x.AwaitPort(t.Context(), h, 8770))
}

func companionsDeadline(t *testing.T, w *world) {
	h := w.spawn(t, w.withCompanion(deadlineIn(8*time.Second)))
	db := h.Of("db")
	w.run(t, db, "trap '' TERM INT HUP; while :; do sleep 1; done")
	eventually(t, "the program runs", func() bool { return w.alive(t, db, "sh -c trap") > 0 })
	w.awaitCompanion(t, h, sandbox.StateStopped)
	w.awaitStopped(t, h)
}

func companionsOfPool(t *testing.T, w *world) {
	if !w.x.Capabilities().WarmPool {
		t.Skip("the backend has no warm pool")
	}
	spec := w.spec()
	w.withCompanion()(&spec)
	lease, generation, agent, config := spec.LeaseID, spec.Generation, spec.AgentDID, spec.Config
	spec.LeaseID, spec.Generation, spec.AgentDID, spec.Config = "", 0, "", nil
	must(t, w.x.Spawn(t.Context(), spec))
	spec.LeaseID, spec.Generation, spec.AgentDID, spec.Config = lease, generation, agent, config
	spec.Deadline = time.Now().Add(3 * time.Second)
	must(t, w.x.Assign(t.Context(), spec))
	must(t, w.x.Assign(t.Context(), spec))
	w.awaitCompanion(t, spec.Handle, sandbox.StateStopped)
	w.awaitStopped(t, spec.Handle)
}

func companionsKilled(t *testing.T, w *world) {
	h := w.spawn(t, w.withCompanion())
	w.run(t, h.Of("db"), "sleep 7012")
	w.RemoveBehindBack(t, h) // its companion continues
	must(t, w.x.Kill(t.Context(), h))
	must(t, w.x.Kill(t.Context(), h))
	left, err := w.x.Dependents(t.Context(), w.ref.LedgerID)
	must(t, err)
	for _, l := range left {
		if l.SandboxID == h.SandboxID {
			t.Errorf("left behind: %s %s", l.Kind, l.Name)
		}
	}
	orphan := w.spawn(t, w.withCompanion())
	w.RemoveBehindBack(t, orphan)
	left, err = w.x.Dependents(t.Context(), w.ref.LedgerID)
	must(t, err)
	removed := 0
	for _, l := range left {
		if l.SandboxID == orphan.SandboxID {
			must(t, w.x.RemoveDependent(t.Context(), l))
			removed++
		}
	}
	if removed != 7 { // a container, two volumes and a channel of the companion; two volumes and a channel of the sandbox
		t.Errorf("%d dependents removed", removed)
	}
}

func companionsSecrets(t *testing.T, w *world) {
	h := w.spawn(t, w.withCompanion())
	must(t, w.x.PutSecrets(t.Context(), h.Of("db"), map[string]sandbox.Secret{"password": secretValue}))
	w.wantOutput(t, h.Of("db"), "cat /run/secrets/password", secretValue)
	w.wantOutput(t, h, "ls -A /run/secrets", "")
}

func companionsTwice(t *testing.T, w *world) {
	spec := w.spec()
	w.withCompanion()(&spec)
	var spawning sync.WaitGroup
	failed := make([]error, 2)
	for i := range failed {
		spawning.Go(func() { failed[i] = w.x.Spawn(t.Context(), spec) })
	}
	spawning.Wait()
	must(t, failed[0])
	must(t, failed[1])
	must(t, w.x.Spawn(t.Context(), spec))
	if o := w.companion(t, spec.Handle); o.State != sandbox.StateRunning {
		t.Errorf("the companion is %s", o.State)
	}
}
