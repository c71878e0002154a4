package cloudflare_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testLifecycle(w *world) {
	w.each(map[string]func(*world){
		"a sandbox is made once and tells what it is": spawnTwice,
		"it sleeps, and wakes with an empty disk":     sleepAndWake,
		"eight racing spawns start one container":     spawnRacing,
		"killed it is gone, but for its periods":      killTwice,
		"what is not there":                           absent,
		"another instance is unavailable":             otherInstance,
		"left alone it falls asleep":                  fallsAsleep,
		"a command keeps it awake":                    commandKeepsAwake,
		"left alone for its ttl it ends for good":     endsByTTL,
		"a process does not keep it awake":            processKeepsNotAwake,
		"a renewal changes when it sleeps":            renewalChangesSleep,
		"a renewal brings back what ended by its ttl": renewalBringsBack,
		"it ends at its deadline whatever it runs":    endsAtDeadline,
		"what it cannot be is refused":                refused,
		"its secrets are in no answer":                secretsUntold,
	})
}

func spawnTwice(w *world) {
	spec := w.spec()
	before := time.Now().Add(-time.Second)
	w.must(w.worker.Spawn(w.Context(), spec, cloudflare.Limits{}))
	first := w.inspect(spec.Handle)
	w.must(w.worker.Spawn(w.Context(), spec, cloudflare.Limits{}))
	if second := w.inspect(spec.Handle); second != first {
		w.Errorf("after the second spawn: %+v, want %+v", second, first)
	}
	want := cloudflare.SandboxStatus{
		EnvironmentID: spec.EnvironmentID,
		LeaseID:       spec.LeaseID,
		AgentDID:      spec.AgentDID,
		Image:         spec.Image,
		Generation:    3,
		Resources:     spec.Resources,
		Deadline:      spec.Deadline.UTC().Truncate(time.Microsecond),
		State:         sandbox.StateRunning,
		CreatedAt:     first.CreatedAt,
		UsedAt:        first.UsedAt,
		Period:        cloudflare.Period{Boot: 1, StartedAt: first.Period.StartedAt},
	}
	if first != want || first.CreatedAt.Before(before) || first.Period.StartedAt.Before(first.CreatedAt) {
		w.Errorf("its status is\n%+v, want\n%+v", first, want)
	}
	const script = `echo "$IS_SANDBOXED|$SANDBOX_VERSION|$AGENT_DID|$ENVIRONMENT_ID|$ENVIRONMENT_TYPE|$ALLOWED_ROOT_DIRECTORY|$FLAVOUR|$HOME"; cat /workspace/config.json; pwd; id -u`
	if got, want := w.sh(spec.Handle, script), "true|0.1.0|did:plc:worker|worker-1|custom|/workspace|of the "+
		"environment|/workspace\n{\"seat\":\"red\"}/workspace\n1000\n"; got != want {
		w.Errorf("inside it is %q, want %q", got, want)
	}
}

func sleepAndWake(w *world) {
	h := w.spawn(cloudflare.Limits{})
	w.sh(h, "echo kept > /workspace/kept")
	for range 2 { // the second time it is asleep already
		w.must(w.worker.Sleep(w.Context(), h))
	}
	if s := w.inspect(h); s.State != sandbox.StateStopped || s.Period.Cause != cloudflare.CauseSleep ||
		s.Period.Boot != 1 {
		w.Errorf("asleep its status is %+v", s)
	}
	for range 2 {
		w.must(w.worker.Wake(w.Context(), h))
	}
	if s := w.inspect(h); s.State != sandbox.StateRunning || s.Period.Boot != 2 {
		w.Errorf("awake its status is %+v", s)
	}
	if got := w.sh(h, "ls /workspace"); got != "config.json\n" {
		w.Errorf("after a sleep /workspace holds %q", got)
	}
}

func spawnRacing(w *world) {
	spec := w.spec()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := w.worker.Spawn(w.Context(), spec, cloudflare.Limits{}); err != nil {
				w.Errorf("spawn: %v", err)
			}
		})
	}
	all.Wait()
	if s := w.inspect(spec.Handle); s.State != sandbox.StateRunning || s.Period.Boot != 1 {
		w.Errorf("its status is %+v", s)
	}
}

func killTwice(w *world) {
	h := w.spawn(cloudflare.Limits{})
	for range 2 {
		w.must(w.worker.Kill(w.Context(), h))
		_, err := w.worker.Inspect(w.Context(), h)
		w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	}
	w.wantPeriods(h, cloudflare.CauseKill)
}

// wantPeriods checks why each period of a sandbox ended; "" is a period that continues.
func (w *world) wantPeriods(h driver.Handle, want ...cloudflare.Cause) []cloudflare.Period {
	w.Helper()
	periods, err := w.worker.Periods(w.Context(), h)
	w.must(err)
	var got []cloudflare.Cause
	var last time.Time
	for i, p := range periods {
		got = append(got, p.Cause)
		if p.Boot != int64(i+1) || p.StartedAt.Before(last) || !p.StoppedAt.IsZero() && p.StoppedAt.Before(p.StartedAt) {
			w.Errorf("period %d is %+v, after %s", i+1, p, last)
		}
		last = p.StoppedAt
	}
	if !slices.Equal(got, want) {
		w.Errorf("its periods ended by %q, want %q", got, want)
	}
	return periods
}

func absent(w *world) {
	h := w.spec().Handle
	w.wantError(w.worker.Sleep(w.Context(), h), sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	w.wantError(w.worker.Wake(w.Context(), h), sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	w.must(w.worker.Kill(w.Context(), h))
	w.wantPeriods(h)
}

func otherInstance(w *world) {
	spec := w.spec()
	spec.Instance = "another"
	check := func(err error) {
		w.Helper()
		w.wantError(err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
	}
	check(w.worker.Spawn(w.Context(), spec, cloudflare.Limits{}))
	check(w.worker.Sleep(w.Context(), spec.Handle))
	check(w.worker.Wake(w.Context(), spec.Handle))
	check(w.worker.Kill(w.Context(), spec.Handle))
	_, err := w.worker.Inspect(w.Context(), spec.Handle)
	check(err)
	got, err := w.worker.Instance(w.Context())
	w.must(err)
	if got != w.server.Instance {
		w.Errorf("instance %q answers, want %q", got, w.server.Instance)
	}
}

func fallsAsleep(w *world) {
	h := w.spawn(cloudflare.Limits{SleepAfter: time.Second})
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseIdle {
		w.Errorf("it stopped as %+v", p)
	}
	w.must(w.worker.Wake(w.Context(), h))
	w.awaitStopped(h)
	w.wantPeriods(h, cloudflare.CauseIdle, cloudflare.CauseIdle)
}

func commandKeepsAwake(w *world) {
	h := w.spawn(cloudflare.Limits{SleepAfter: 8 * time.Second})
	if got := w.sh(h, "sleep 12; echo done"); got != "done\n" {
		w.Errorf("a command that takes longer than sleep_after says %q", got)
	}
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseIdle {
		w.Errorf("it stopped as %+v", p)
	}
}

func endsByTTL(w *world) {
	h := w.spawn(cloudflare.Limits{TTL: time.Second})
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseTTL {
		w.Errorf("it stopped as %+v", p)
	}
	w.wantError(w.worker.Wake(w.Context(), h), sandbox.Failed, sandbox.ReasonStartFailed)
}

// processKeepsNotAwake: its caller follows a process for as long as it runs, which does not count as use.
func processKeepsNotAwake(w *world) {
	h := w.spawn(cloudflare.Limits{SleepAfter: time.Second})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// It ends with its sandbox, and may report how.
		_, _ = w.worker.RunProcess(w.Context(), h,
			driver.ProcessRun{ID: "server", Command: []string{"sleep", "7007"}, Cwd: "/workspace"})
	}()
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseIdle {
		w.Errorf("it stopped as %+v", p)
	}
	<-ended
}

// renewalChangesSleep gives a sandbox that would sleep soon more time, and then less.
func renewalChangesSleep(w *world) {
	const soon = 3 * time.Second
	lease := driver.Limits{TTL: sandbox.Duration(time.Minute)}
	h := w.spawn(cloudflare.Limits{SleepAfter: soon})
	before := w.inspect(h)
	s, err := w.worker.Touch(w.Context(), h, lease, cloudflare.Limits{SleepAfter: time.Hour})
	if w.must(err); s.UsedAt.Before(before.UsedAt) {
		w.Errorf("renewed its status is %+v, and was %+v", s, before)
	}
	w.must(w.worker.Wake(w.Context(), h)) // on a slow machine it sleeps already
	time.Sleep(2 * soon)                  //nolint:forbidigo // with its former limit it would sleep
	if s := w.inspect(h); s.State != sandbox.StateRunning {
		w.Errorf("with more time its status is %+v", s)
	}
	_, err = w.worker.Touch(w.Context(), h, lease, cloudflare.Limits{SleepAfter: time.Second})
	w.must(err)
	p := w.awaitStopped(h)
	if p.Cause != cloudflare.CauseIdle {
		w.Errorf("it stopped as %+v", p)
	}
	if s, err = w.worker.Touch(w.Context(), h, lease, cloudflare.Limits{SleepAfter: time.Hour}); err != nil ||
		s.State != sandbox.StateStopped || s.Period != p {
		w.Errorf("asleep it is renewed as %+v: %v", s, err)
	}
}

func renewalBringsBack(w *world) {
	h := w.spawn(cloudflare.Limits{TTL: time.Second})
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseTTL {
		w.Errorf("it stopped as %+v", p)
	}
	_, err := w.worker.Touch(w.Context(), h, driver.Limits{}, cloudflare.Limits{TTL: time.Hour})
	w.must(err)
	w.must(w.worker.Wake(w.Context(), h))
	w.wantPeriods(h, cloudflare.CauseTTL, "")
}

func endsAtDeadline(w *world) {
	began := time.Now()
	w.spawn(cloudflare.Limits{}) // to measure how long this machine takes
	deadline := time.Now().Add(15*time.Second + 3*time.Since(began))
	h := w.spawn(cloudflare.Limits{}, func(s *driver.SandboxSpec) { s.Deadline = deadline })
	_, err := w.exec(h, sandbox.ExecRequest{Command: []string{"sh", "-c", "trap '' TERM; sleep 7003"}})
	if err == nil {
		w.Error("a command that runs past the deadline has a result")
	}
	if late := time.Since(deadline); late > patience/3 {
		w.Errorf("it ended %s after its deadline", late)
	}
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseDeadline {
		w.Errorf("it stopped as %+v", p)
	}
	w.wantError(w.worker.Wake(w.Context(), h), sandbox.Failed, sandbox.ReasonStartFailed)
}

func refused(w *world) {
	for name, change := range map[string]func(*driver.SandboxSpec){
		"no deadline":  func(s *driver.SandboxSpec) { s.Deadline = time.Time{} },
		"a pool":       func(s *driver.SandboxSpec) { s.AgentDID = "" },
		"a mount":      func(s *driver.SandboxSpec) { s.Mounts = []sandbox.Mount{{}} },
		"large config": func(s *driver.SandboxSpec) { s.Config = make([]byte, 97<<10) },
	} {
		spec := w.spec()
		change(&spec)
		if err := w.worker.Spawn(w.Context(), spec, cloudflare.Limits{}); sandbox.CodeOf(err) != sandbox.Invalid {
			w.Errorf("%s: %v", name, err)
		}
	}
}

func secretsUntold(w *world) {
	const secret = "correct-horse-battery"
	spec := w.spec()
	spec.Env, spec.Config = map[string]string{"PASSWORD": secret}, []byte(`{"password":"`+secret+`"}`)
	told := ""
	seen := tamper(func(*http.Request) {})
	x, err := cloudflare.NewWorker(cloudflare.WorkerConfig{
		URL:  w.server.URL,
		Key:  w.server.Key,
		HTTP: &http.Client{Transport: eavesdropper{seen, &told}},
	})
	w.must(err)
	w.must(x.Spawn(w.Context(), spec, cloudflare.Limits{}))
	_, err = x.Inspect(w.Context(), spec.Handle)
	w.must(err)
	if got := w.sh(spec.Handle, "echo $PASSWORD; cat /workspace/config.json"); got != secret+"\n"+string(spec.Config) {
		w.Errorf("the sandbox has %q", got)
	}
	w.must(x.Sleep(w.Context(), spec.Handle))
	w.must(x.Wake(w.Context(), spec.Handle))
	if got := w.sh(spec.Handle, "echo $PASSWORD"); got != secret+"\n" {
		w.Errorf("woken the sandbox has %q", got)
	}
	_, err = x.List(w.Context(), w.server.Instance, spec.LedgerID)
	w.must(err)
	w.must(x.Kill(w.Context(), spec.Handle))
	if told == "" || strings.Contains(told, secret) {
		w.Errorf("the answers of the Worker contain the secret: %s", told)
	}
}

// eavesdropper records every answer.
type eavesdropper struct {
	http.RoundTripper
	all *string
}

func (e eavesdropper) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := e.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	*e.all += string(body)
	answer.Body = io.NopCloser(strings.NewReader(string(body)))
	return answer, err
}
