package cloudflare_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// testObserve checks what can be observed of sandboxes without touching them.
func testObserve(w *world) {
	w.each(map[string]func(*world){
		"what runs is listed":                     listed,
		"a lease has one row, of its last life":   leaseRows,
		"a sample is of what runs, and no use":    sampled,
		"what expires by itself is written to D1": expired,
		"so is what expires asleep":               expiredAsleep,
		"more sandboxes than one page are there":  manyListed,
	})
}

// find returns a sandbox's entry in the list, false when it is not listed.
func (w *world) find(h driver.Handle) (cloudflare.SandboxStatus, bool) {
	w.Helper()
	list, err := w.worker.List(w.Context(), w.server.Instance, h.LedgerID)
	w.must(err)
	i := slices.IndexFunc(list, func(l cloudflare.Listed) bool { return l.SandboxID == h.SandboxID })
	if i < 0 {
		return cloudflare.SandboxStatus{}, false
	}
	return list[i].SandboxStatus, true
}

func listed(w *world) {
	spec := w.spec()
	spec.Resources = sandbox.Resources{MemoryMB: 256, CPUMillis: 62, DiskMB: 2000}
	w.must(w.worker.Spawn(w.Context(), spec, cloudflare.Limits{}))
	got, ok := w.find(spec.Handle)
	want := w.inspect(spec.Handle)
	got.UsedAt = want.UsedAt // the list has it a little later
	if !ok || got != want || got.State != sandbox.StateRunning || got.Resources != spec.Resources {
		w.Errorf("the list has\n%+v, and its status is\n%+v", got, want)
	}
	w.must(w.worker.Sleep(w.Context(), spec.Handle))
	if got, _ := w.find(spec.Handle); got.State != sandbox.StateStopped || got.Period.Cause != cloudflare.CauseSleep {
		w.Errorf("asleep it is listed as %+v", got)
	}
	w.must(w.worker.Kill(w.Context(), spec.Handle))
	if got, ok := w.find(spec.Handle); ok {
		w.Errorf("killed it is listed as %+v", got)
	}
	other := spec.Handle
	other.LedgerID = "ledgerofnobody22"
	if _, ok := w.find(other); ok {
		w.Error("another ledger has it")
	}
	_, err := w.worker.List(w.Context(), "another", spec.LedgerID)
	w.wantError(err, sandbox.Unavailable, sandbox.ReasonOtherInstance)
}

// lease returns the status, generation and settings of a lease, "" if it has no row.
func (w *world) lease(agent string) string {
	w.Helper()
	rows := w.server.Query(fmt.Sprintf(`SELECT * FROM sandbox_leases WHERE agent_did = '%s'`, agent))
	all := ""
	for _, r := range rows {
		all += fmt.Sprintf("%s %v %v %v %v %v", r["status"], r["generation"], r["environment_id"], r["ttl_ms"],
			r["sleep_after"], r["expiry_conditions"])
	}
	return all
}

func leaseRows(w *world) {
	agent := "did:plc:" + sandbox.RandomIDs(8)
	life := func(generation int64) driver.Handle {
		return w.spawn(cloudflare.Limits{}, func(s *driver.SandboxSpec) {
			s.AgentDID, s.LeaseID, s.Generation = agent, sandbox.LeaseID(agent, s.EnvironmentID), generation
			s.TTL, s.SleepAfter, s.ExpiryConditions = sandbox.Duration(time.Second), sandbox.Duration(5*time.Minute), []string{
				"agent.death",
			}
		})
	}
	check := func(want string) {
		w.Helper()
		if got := w.lease(agent); got != want {
			w.Errorf("the lease is %q, want %q", got, want)
		}
	}
	const settings = ` worker-1 1000 300s ["agent.death"]`
	first := life(1)
	check("active 1" + settings)
	view := w.server.Query(fmt.Sprintf("SELECT view FROM sandboxes WHERE id = '%s'", first.SandboxID))
	if got := fmt.Sprint(view); strings.Contains(got, "agent.death") || !strings.Contains(got, agent) {
		w.Errorf("a list, whose size is limited, has the conditions of the sandbox: %s", got)
	}
	second := life(2)
	check("active 2" + settings)
	w.must(w.worker.Kill(w.Context(), first)) // late
	check("active 2" + settings)
	w.must(w.worker.Kill(w.Context(), second))
	check("destroyed 2" + settings)
}

func sampled(w *world) {
	h := w.spawn(cloudflare.Limits{})
	w.sh(h, "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
	before := w.inspect(h).UsedAt
	u, err := w.worker.Usage(w.Context(), h)
	w.must(err)
	if u.CPUTime < 50*time.Millisecond || u.MemoryBytes <= 0 || u.PIDs < 1 {
		w.Errorf("it uses %+v", u)
	}
	if after := w.inspect(h).UsedAt; after != before {
		w.Errorf("used at %s, and at %s since it was sampled", before, after)
	}
	w.must(w.worker.Sleep(w.Context(), h))
	_, err = w.worker.Usage(w.Context(), h)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonInvalidState)
}

func expired(w *world) { w.expires(cloudflare.Limits{TTL: time.Second}) }

func expiredAsleep(w *world) {
	const ttl = 4 * time.Second
	h := w.expires(cloudflare.Limits{TTL: ttl, SleepAfter: time.Second})
	w.wantPeriods(h, cloudflare.CauseIdle)
}

// expires creates a sandbox with limits, and waits until D1 shows that it has ended by them.
func (w *world) expires(l cloudflare.Limits) driver.Handle {
	w.Helper()
	agent := "did:plc:" + sandbox.RandomIDs(8)
	h := w.spawn(l, func(s *driver.SandboxSpec) { s.AgentDID, s.LeaseID = agent, sandbox.LeaseID(agent, s.EnvironmentID) })
	testwait.NoError(w, patience, "D1 shows that the lease has ended", func() error {
		s, _ := w.find(h)
		if lease := w.lease(agent); s.State != sandbox.StateStopped || lease != `expired 3 worker-1 0 0s []` {
			return fmt.Errorf("the sandbox is %s, the lease %s", s.State, lease)
		}
		return nil
	})
	return h
}

func manyListed(w *world) {
	const rows, ledgerID = 450, "manysandboxes222"
	w.spawn(cloudflare.Limits{}) // creates the table
	w.server.Query(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO sandboxes (ledger, id, view) SELECT '%s', printf('%%026d', i), '{"settings":{},"period":{}}' FROM n`,
		rows, ledgerID))
	list, err := w.worker.List(w.Context(), w.server.Instance, ledgerID)
	w.must(err)
	seen := map[string]bool{}
	for _, l := range list {
		seen[l.SandboxID] = true
	}
	if len(list) != rows || len(seen) != rows {
		w.Errorf("%d sandboxes are listed, %d of them different, want %d", len(list), len(seen), rows)
	}
}
