package leasing_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// smallDisk mounts a disk of a size and returns its directory, and a function that makes it larger.
func smallDisk(t *testing.T, size string) (dir string, grow func(size string)) {
	t.Helper()
	dir = ledgertest.MountDisk(t, size, 0)
	return dir, func(size string) {
		t.Helper()
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size="+size); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDiskLosesNothingThatWasAcknowledged fills the disk of a ledger under load. Refused requests leave no trace,
// and work continues once there is space.
func TestFullDiskLosesNothingThatWasAcknowledged(t *testing.T) {
	dir, grow := smallDisk(t, "16m")
	inWorldOn(t, "sqlite://"+filepath.Join(dir, "ledger.db"), func(w *world) {
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
		for i := range 20 {
			w.acquire(fmt.Sprintf("did:plc:a%d", i))
		}
		later(time.Second)
		acknowledged, refused := w.fill()
		t.Logf("%d conditions were acknowledged before the disk was full, %d refused", len(acknowledged), len(refused))

		w.acquireUntilRefused()

		grow("64m")
		began := time.Now()
		for _, d := range refused {
			r, err := w.engine.Deliver(w.Context(), d)
			if err != nil || r.Duplicate {
				t.Fatalf("%s was refused, and then answered %+v, %v", d.ID, r, err)
			}
		}
		t.Logf("all were stored %v after there was space", time.Since(began))
		w.acquire(ann)
		for _, d := range acknowledged {
			if r, err := w.engine.Deliver(w.Context(), d); err != nil || !r.Duplicate {
				t.Fatalf("%s was acknowledged, and then answered %+v, %v", d.ID, r, err)
			}
		}
		later(10 * time.Second)
		p, err := look(w.Context(), w.store, w.engine, w.backend.Sandboxes())
		if err != nil {
			t.Fatal(err)
		}
		k := known{sent: make(map[string]sandbox.Condition)}
		for _, d := range slices.Concat(acknowledged, refused) {
			k.sent[d.ID] = d.Condition
		}
		w.holds(p, k)
	})
}

// acquireUntilRefused acquires leases until one is refused. Small commits may still succeed after others were refused.
// The ledger then has every created sandbox, including that of a refused agent.
func (w *world) acquireUntilRefused() {
	w.Helper()
	var err error
	for i := 0; err == nil; i++ {
		if i > 1000 {
			w.Fatal("no agent is refused")
		}
		_, err = w.engine.Acquire(w.Context(),
			sandbox.Acquire{AgentDID: fmt.Sprintf("did:plc:b%d", i), EnvironmentID: game, Owner: "test"})
	}
	if sandbox.CodeOf(err) != sandbox.Unavailable {
		w.Errorf("an acquire returned %v", err)
	}
	leases, err := w.engine.ListLeases(w.Context(), sandbox.LeaseFilter{})
	if err != nil {
		w.Error(err)
	}
	known := make(map[string]bool)
	for _, l := range leases {
		known[l.SandboxID] = true
	}
	for _, s := range w.backend.Sandboxes() {
		if !known[s.SandboxID] {
			w.Errorf("sandbox %s was made, and no lease has it", s.SandboxID)
		}
	}
}

// fill sends conditions, several at the same time, until the disk has been full for a while.
func (w *world) fill() (acknowledged, refused []sandbox.Delivery) {
	w.Helper()
	for round := 0; len(refused) < 300; round++ {
		if round > 100 {
			w.Fatal("the disk is never full")
		}
		body := strings.Repeat("x", 8<<10)
		if round%3 == 2 {
			body = strings.Repeat("x", 200<<10) // together more than SQLite keeps in memory until the commit
		}
		var sent []sandbox.Delivery
		for i := range 20 {
			d := death(fmt.Sprintf("m-%d-%d", round, i), fmt.Sprintf("did:plc:a%d", i), body)
			if round%10 != 9 {
				d.Condition.Type = "weather.changed" // ends nothing
			}
			sent = append(sent, d)
		}
		_, errs := w.together(sent)
		for i, err := range errs {
			switch sandbox.CodeOf(err) {
			case "":
				acknowledged = append(acknowledged, sent[i])
			case sandbox.Unavailable:
				refused = append(refused, sent[i])
			default:
				w.Errorf("%s was answered %v", sent[i].ID, err)
			}
		}
	}
	return acknowledged, refused
}

// TestLeasesEndOnAFullDisk fills the disk of a ledger with a reserve. Conditions and new leases are refused, but leases
// still end on time.
func TestLeasesEndOnAFullDisk(t *testing.T) {
	dir, _ := smallDisk(t, "16m")
	inWorldOn(t, "sqlite://"+filepath.Join(dir, "ledger.db"), func(w *world) {
		w.close()
		w.reserve = 2 << 20
		w.open()
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) {
			p.Type, p.TTL = sandbox.TypeRPG, sandbox.Duration(10*time.Minute)
		})
		for i := range 20 {
			w.acquire(fmt.Sprintf("did:plc:a%d", i))
		}
		filler := filepath.Join(dir, "filler")
		ledgertest.FillDisk(t, filler)
		if _, err := w.engine.Deliver(w.Context(),
			death("m-1", "did:plc:a0", strings.Repeat("x", 4<<20))); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Fatalf("a large condition returned %v", err)
		}
		w.acquireUntilRefused()
		if err := w.engine.Ready(w.Context()); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("its readiness is %v", err)
		}
		later(11 * time.Minute)
		if left := w.backend.Sandboxes(); len(left) != 0 {
			t.Errorf("%d sandboxes are left", len(left))
		}
		for i := range 20 {
			w.want(w.lease(sandbox.LeaseID(fmt.Sprintf("did:plc:a%d", i), game)), sandbox.LeaseDestroyed, sandbox.EndedByTTL)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		w.acquire(ann)
	})
}

// TestACommandRunsOnOnAFullDisk fills the disk while a command runs for longer than the ttl of its lease. A use keeps a
// lease active, also while the ledger has no room for more.
func TestACommandRunsOnOnAFullDisk(t *testing.T) {
	dir, _ := smallDisk(t, "32m")
	inWorldOn(t, "sqlite://"+filepath.Join(dir, "ledger.db"), func(w *world) {
		w.close()
		w.reserve = 8 << 20
		w.open()
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) {
			soon := sandbox.Duration(time.Minute)
			p.Type, p.TTL, p.SleepAfter = sandbox.TypeRPG, sandbox.Duration(10*time.Minute), &soon
		})
		w.acquire(ann)
		w.start(sandbox.ExecRequest{Command: []string{"sleep", "30m"}, Timeout: sandbox.Duration(time.Hour)})
		filler := filepath.Join(dir, "filler")
		ledgertest.FillDisk(t, filler)
		w.acquireUntilRefused()
		for range 20 {
			later(time.Minute)
			l := w.lease(annLease)
			w.want(l, sandbox.LeaseActive, "")
			if l.Phase != sandbox.PhaseAwake {
				t.Fatalf("its sandbox is %s while a command runs", l.Phase)
			}
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		later(21 * time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByTTL)
	})
}

// TestABudgetEndsLeasesOnAFullDisk fills the disk before a budget is spent.
func TestABudgetEndsLeasesOnAFullDisk(t *testing.T) {
	dir, _ := smallDisk(t, "16m")
	inWorldOn(t, "sqlite://"+filepath.Join(dir, "ledger.db"), func(w *world) {
		w.close()
		w.reserve = 2 << 20
		w.open()
		w.startLoop()
		w.environment(awakeFor(48*time.Hour), func(p *sandbox.PutEnvironment) {
			p.Type, p.Budget = sandbox.TypeRPG, &sandbox.Budget{Monthly: 60_048_000} // six hours
			p.Resources, _ = sandbox.ResourcesOf("basic")                            // $0.010008 an hour
		})
		w.acquire(ann)
		ledgertest.FillDisk(t, filepath.Join(dir, "filler"))
		_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: bob, EnvironmentID: game, Owner: "test"})
		if sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Fatalf("an acquire on a full disk returned %v", err)
		}
		later(5 * time.Hour)
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		later(time.Hour + 10*time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByBudget)
	})
}
