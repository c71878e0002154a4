package cloudflare_test

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// check is the interval of alarms in these tests. The inactivity timeout is three times as long. Sandboxes get no
// requests for longer than that, so only alarms keep their containers.
const check = 30 * time.Second

// TestSandboxesLeftAloneLive sends no request for longer than the runtime keeps an inactive Durable Object's container
// (about 2 minutes), and for longer than an inactivity timeout that is set once.
func TestSandboxesLeftAloneLive(t *testing.T) {
	t.Parallel()
	leftAlone(t, 210*time.Second, check)
}

// TestSandboxesLeftAloneForTenMinutesLive does so with the interval of deployments.
func TestSandboxesLeftAloneForTenMinutesLive(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("takes 10 minutes: set SANDBOX_TEST_LONG=1")
	}
	t.Parallel()
	leftAlone(t, 10*time.Minute, 5*time.Minute)
}

func leftAlone(t *testing.T, alone, check time.Duration) {
	server := cloudflaretest.Start(t, cloudflaretest.Config{Check: check})
	w := &world{t, server, server.Worker()}
	idle := w.spawn(cloudflare.Limits{})
	detached := w.spawn(cloudflare.Limits{SleepAfter: alone / 4})
	process := w.spawn(cloudflare.Limits{})
	sleeps := w.spawn(cloudflare.Limits{SleepAfter: alone / 2})
	crashes := w.spawn(cloudflare.Limits{})
	deadline := time.Now().Add(alone * 3 / 4)
	ends := w.spawn(cloudflare.Limits{}, func(s *driver.SandboxSpec) { s.Deadline = deadline })

	id := sandbox.RandomIDs(sandbox.SandboxIDLength)
	w.dieUnder(detached, id, true)
	w.sh(process, "setsid sh -c 'while :; do date +%s > /workspace/next; mv /workspace/next /workspace/beat; sleep 1; done' >/dev/null 2>&1 &")
	kept := map[string]driver.Handle{"idle": idle, "detached": detached, "process": process}
	names := map[string]string{}
	for what, h := range kept {
		names[what] = strings.TrimSpace(w.sh(h, "echo kept > /workspace/note; hostname"))
	}
	w.sh(sleeps, "echo kept > /data/note")
	used := time.Now()
	w.crash(crashes)
	crashed := time.Now()

	time.Sleep(alone) //nolint:forbidigo // requests would keep them alive

	began := time.Now()
	for what, h := range kept {
		if got := w.sh(h, "cat /workspace/note; hostname"); got != "kept\n"+names[what]+"\n" {
			t.Errorf("%s: after %s without requests it has %q", what, alone, got)
		}
		w.wantPeriods(h, "")
	}
	if n := w.alive(detached, "sleep 7005"); n != 1 {
		t.Errorf("%d processes of the detached command run, want 1", n)
	}
	var beat int64
	if _, err := fmt.Sscan(w.sh(process, "cat /workspace/beat"), &beat); err != nil || beat < began.Unix()-2 {
		t.Errorf("the process did its last work at %d, before %d: %v", beat, began.Unix(), err)
	}
	if p := w.wantPeriods(sleeps, cloudflare.CauseIdle); p[0].StoppedAt.Before(used.Add(alone/2-5*time.Second)) ||
		p[0].StoppedAt.After(used.Add(alone/2+5*time.Second)) {
		t.Errorf("used at %s and asleep after %s, it is recorded to have slept at %s", used, alone/2, p[0].StoppedAt)
	}
	if p := w.wantPeriods(ends, cloudflare.CauseDeadline); p[0].StoppedAt.Sub(deadline).Abs() > 5*time.Second {
		t.Errorf("with its deadline at %s it is recorded to have ended at %s", deadline, p[0].StoppedAt)
	}
	// It ended right after its last request. The alarm, or the runtime, reports that later.
	if p := w.wantPeriods(crashes, cloudflare.CauseCrash); p[0].StoppedAt.After(crashed.Add(check)) {
		t.Errorf("it crashed at %s, and is recorded to have ended at %s", crashed, p[0].StoppedAt)
	}
}

// TestSandboxesSurviveADeployAloneLive: a deployment resets all Durable Objects. Objects without requests set their
// inactivity timeouts again, at the next alarm at the latest. Without this timeout the runtime ends a container about 2
// minutes after its object was last active.
func TestSandboxesSurviveADeployAloneLive(t *testing.T) {
	t.Parallel()
	const alone = 210 * time.Second
	server := cloudflaretest.Start(t, cloudflaretest.Config{}) // the next alarm comes after 5 min
	w := &world{t, server, server.Worker()}
	h := w.spawn(cloudflare.Limits{})
	host := w.sh(h, "echo kept > /workspace/note; hostname")
	server.Reset()
	time.Sleep(alone) //nolint:forbidigo // requests would keep it alive
	w.worker = server.Worker()
	if got := w.sh(h, "cat /workspace/note; hostname"); got != "kept\n"+host {
		t.Errorf("after %s without requests since a deployment it has %q", alone, got)
	}
	w.wantPeriods(h, "")
}

//go:embed testdata/endinalarm.js
var endInAlarm string

// TestContainersThatEndDuringAnAlarm: no request and no other alarm reports that they have ended.
func TestContainersThatEndDuringAnAlarm(t *testing.T) {
	t.Parallel()
	const check = 15 * time.Second
	server := cloudflaretest.Start(t, cloudflaretest.Config{Check: check, Append: endInAlarm})
	w := &world{t, server, server.Worker()}
	w.each(map[string]func(*world){
		"by itself": func(w *world) {
			h := w.spawn(cloudflare.Limits{}, func(s *driver.SandboxSpec) { s.Env = map[string]string{"ENDS": "in an alarm"} })
			w.wantListed(h, cloudflare.CauseCrash, time.Now().Add(3*check))
		},
		"at its deadline": func(w *world) {
			deadline := time.Now().Add(check * 2 / 3)
			h := w.spawn(cloudflare.Limits{}, func(s *driver.SandboxSpec) { s.Deadline = deadline })
			w.wantListed(h, cloudflare.CauseDeadline, deadline.Add(2*check))
		},
	})
}

// wantListed waits until the list shows the end of a container. It sends no request to the sandbox's object.
func (w *world) wantListed(h driver.Handle, want cloudflare.Cause, limit time.Time) {
	w.Helper()
	var listed cloudflare.Period
	testwait.Poll(time.Until(limit), func() bool {
		s, _ := w.find(h)
		listed = s.Period
		return listed.Cause != ""
	})
	if listed.Cause != want {
		w.Fatalf("it is listed with %+v, want it ended by %q", listed, want)
	}
}

// TestAlarmsReadWhatSandboxesUse: a list has the reading of each sandbox's last alarm. Alarms are more frequent for a
// sandbox that uses its CPU.
func TestAlarmsReadWhatSandboxesUse(t *testing.T) {
	t.Parallel()
	const check = 12 * time.Second
	server := cloudflaretest.Start(t, cloudflaretest.Config{Check: check})
	w := &world{t, server, server.Worker()}
	idle, busy := w.spawn(cloudflare.Limits{}), w.spawn(cloudflare.Limits{})
	w.sh(busy, "setsid sh -c 'while :; do :; done' >/dev/null 2>&1 &")
	// next waits for a reading after a time, and returns it.
	next := func(h driver.Handle, after time.Time) (r driver.Reading) {
		t.Helper()
		testwait.Until(t, 2*check, "there is a new reading of "+h.SandboxID+" within two alarms", func() bool {
			s, _ := w.find(h)
			r = s.Period.Reading
			return r.At.After(after)
		})
		return r
	}
	began := time.Now()
	idle1, busy1 := next(idle, began), next(busy, began)
	if idle1.Boot != 1 || idle1.MemoryBytes < 1<<20 || idle1.PIDs < 1 || idle1.CPUTime <= 0 {
		t.Errorf("the idle one's first reading is %+v", idle1)
	}
	busy2, idle2 := next(busy, busy1.At), next(idle, idle1.At)
	if apart := busy2.At.Sub(busy1.At); apart > check/2 || busy2.CPUTime <= busy1.CPUTime {
		t.Errorf("readings of the busy one are %s apart, %+v and %+v, want a shorter interval", apart, busy1, busy2)
	}
	if apart := idle2.At.Sub(idle1.At); apart < check-time.Second {
		t.Errorf("readings of the idle one are %s apart, want them every %s", apart, check)
	}
	w.must(w.worker.Sleep(t.Context(), idle))
	w.must(w.worker.Wake(t.Context(), idle))
	if s, _ := w.find(idle); s.Period.Boot != 2 || !s.Period.Reading.At.IsZero() {
		t.Errorf("woken it is listed with %+v", s.Period)
	}
}

// TestForgottenCommandsKeepNoSandboxAwake: a guest remembers the ends of 256 commands. A detached command that it has
// forgotten counts as ended, too.
func TestForgottenCommandsKeepNoSandboxAwake(t *testing.T) {
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{Check: check})
	w := &world{t, server, server.Worker()}
	h := w.spawn(cloudflare.Limits{SleepAfter: 20 * time.Second}) // no alarm asks before the guest forgets the end
	w.dieUnder(h, sandbox.RandomIDs(sandbox.SandboxIDLength), true)
	w.sh(h, "kill $(pidof sleep)")
	for range 257 {
		w.sh(h, ":")
	}
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseIdle {
		t.Errorf("it stopped as %+v", p)
	}
}

// TestMissedStopEndsAtTheLastProofOfLife ends a container while its Durable Object is not in memory.
func TestMissedStopEndsAtTheLastProofOfLife(t *testing.T) {
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{})
	w := &world{t, server, server.Worker()}
	h := w.spawn(cloudflare.Limits{})
	host := strings.TrimSpace(w.sh(h, "hostname"))
	used := time.Now()
	time.Sleep(15 * time.Second) //nolint:forbidigo // the runtime removes an inactive object from memory after 10 s
	server.Reset()
	cloudflaretest.Crash(t, host)
	time.Sleep(5 * time.Second) //nolint:forbidigo // nothing polls in this time
	w.worker = server.Worker()
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseCrash || p.StoppedAt.After(used.Add(10*time.Second)) {
		t.Errorf("last seen alive at %s, it is recorded as %+v", used, p)
	}
	w.wantPeriods(h, cloudflare.CauseCrash)
}
