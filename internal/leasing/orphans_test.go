package leasing_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// grace is a little longer than the grace period of an orphan.
const grace = 2*time.Minute + time.Second

// handle names a sandbox of this ledger without a row.
func (w *world) handle(id string) driver.Handle {
	return driver.Handle{LedgerID: w.store.ID(), EnvironmentID: game, SandboxID: id, Instance: "engine-1"}
}

func (w *world) plantOrphan(id string) { w.backend.Plant(driver.SandboxSpec{Handle: w.handle(id)}) }

func (w *world) resyncNow() {
	w.Helper()
	if err := w.engine.Resync(w.Context(), sandbox.Docker); err != nil {
		w.Fatal(err)
	}
}

// wantThere checks whether the backend has the named sandboxes and objects.
func (w *world) wantThere(there bool, names ...string) {
	w.Helper()
	boxes, objects := w.backend.Sandboxes(), w.backend.Objects()
	for _, name := range names {
		_, isBox := boxes[name]
		_, isObject := objects[name]
		if (isBox || isObject) != there {
			w.Fatalf("%s is there: %t, want %t", name, !there, there)
		}
	}
}

func TestAnOrphanIsDestroyedOnTheSecondLook(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.plantOrphan("orphan")
		w.backend.Plant(driver.SandboxSpec{
			Handle: driver.Handle{LedgerID: "another", EnvironmentID: game, SandboxID: "neighbour", Instance: "engine-1"},
		})
		later(grace)
		w.resyncNow()
		later(grace)
		w.wantThere(true, "orphan")
		w.resyncNow()
		w.wantThere(false, "orphan")
		w.wantThere(true, "neighbour", w.lease(annLease).SandboxID)
		f := w.findings(sandbox.DriftOrphan)[0]
		if f.FirstSeenAt.Add(grace) != f.LastSeenAt || f.ResolvedAt != f.LastSeenAt ||
			!strings.Contains(f.Resolution, "destroyed by a resync") {
			t.Errorf("%+v", f)
		}
	})
}

func TestAnOrphanYoungerThanTheGraceIsKept(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.plantOrphan("young")
		later(grace - 2*time.Second)
		w.resyncNow()
		w.findings() // by its creation time it is no orphan yet
		later(2 * time.Second)
		for range 4 { // looked at often, but first seen a moment ago
			w.resyncNow()
			later(20 * time.Second)
		}
		w.findings(sandbox.DriftOrphan)
		w.wantThere(true, "young")
		later(time.Minute)
		w.resyncNow()
		w.wantThere(false, "young")
	})
}

func TestAnOrphanOfEachKindIsDestroyedOnTheSecondLook(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		l := w.acquire(ann)
		gone := w.handle("gonegonegone")
		elsewhere := gone
		elsewhere.EnvironmentID, elsewhere.SandboxID = "chess-1", ""
		for name, o := range map[string]driver.Dependent{
			"a": {Handle: gone, Kind: driver.DependentPopulator}, "b": {Handle: gone, Kind: driver.DependentWorkspace},
			"c": {Handle: gone, Kind: driver.DependentData}, "d": {Handle: elsewhere, Kind: driver.DependentGuest},
			"e": {Handle: elsewhere, Kind: driver.DependentTemplate},
		} {
			o.Name = name
			w.backend.PlantDependent(o)
		}
		foreign := gone
		foreign.LedgerID = "another"
		w.backend.PlantDependent(driver.Dependent{Handle: foreign, Kind: driver.DependentWorkspace, Name: "foreign"})
		all := len(w.backend.Objects())
		later(grace)
		w.resyncNow()
		later(grace)
		if n := len(w.backend.Objects()); n != all {
			t.Fatalf("%d objects after the first look, want %d", n, all)
		}
		w.resyncNow()
		w.wantThere(false, "a", "b", "c", "d", "e")
		w.wantThere(true, "foreign", l.SandboxID)
		if n := len(w.backend.Objects()); n != all-5 {
			t.Errorf("%d objects are left, want those of the living lease and its environment too", n)
		}
		fields := make(map[string]bool)
		left := sandbox.DriftLeftover
		for _, f := range w.findings(left, left, left, left, left) {
			fields[f.Field] = true
			if f.ResolvedAt.IsZero() || !strings.Contains(f.Resolution, "destroyed by a resync") {
				t.Errorf("%+v", f)
			}
		}
		for _, want := range []string{"carrier a", "workspace b", "data c", "guest d", "seed e"} {
			if !fields[want] {
				t.Errorf("no finding for %s: %v", want, fields)
			}
		}
	})
}

func TestOrphansOfADestroyedEnvironmentAreDestroyed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		if err := w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game, Force: true}); err != nil {
			t.Fatal(err)
		}
		h := w.handle("")
		w.backend.PlantDependent(driver.Dependent{Handle: h, Kind: driver.DependentTemplate, Name: "seed"})
		later(grace)
		w.resyncNow()
		later(grace)
		w.resyncNow()
		w.wantThere(false, "seed")
	})
}

func TestTheFindingOfAnOrphanThatIsNeededAgainOrGoneIsResolved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		other := w.handle("")
		other.EnvironmentID = "chess-1"
		w.backend.PlantDependent(driver.Dependent{Handle: other, Kind: driver.DependentGuest, Name: "guest"})
		w.plantOrphan("orphan")
		later(grace)
		w.resyncNow()
		w.findings(sandbox.DriftLeftover, sandbox.DriftOrphan)
		w.environment(func(p *sandbox.PutEnvironment) { p.ID = "chess-1" })
		w.backend.Remove("orphan")
		later(grace)
		w.resyncNow()
		w.wantThere(true, "guest")
		found := w.findings(sandbox.DriftLeftover, sandbox.DriftOrphan)
		if r := found[0].Resolution; !strings.Contains(r, "wants it") {
			t.Errorf("resolution of the object that is wanted again: %q", r)
		}
		if r := found[1].Resolution; !strings.Contains(r, "no longer exists") {
			t.Errorf("resolution of the object that disappeared: %q", r)
		}
	})
}

func TestErrorsDestroyNothing(t *testing.T) {
	for _, op := range []fake.Op{fake.OpList, fake.OpDependents, fake.OpInspect} {
		t.Run(string(op), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment()
				w.acquire(ann)
				w.plantOrphan("orphan")
				later(grace)
				w.resyncNow()
				later(grace)
				w.backend.Fail(op, sandbox.Errorf(sandbox.Internal, "500"))
				if err := w.engine.Resync(w.Context(), sandbox.Docker); err == nil {
					t.Error("the resync hides the error")
				}
				w.wantThere(true, "orphan")
				w.backend.Fail(op, nil)
				w.resyncNow()
				w.wantThere(false, "orphan")
			})
		})
	}
}

func TestAnOrphanThatCannotBeRemovedKeepsNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.plantOrphan("orphan1")
		w.plantOrphan("orphan2")
		later(grace)
		w.resyncNow()
		later(grace)
		failed := false
		w.backend.Fault(fake.OpKill, func(context.Context) error {
			if failed {
				return nil
			}
			failed = true
			return sandbox.Errorf(sandbox.Internal, "500")
		})
		if err := w.engine.Resync(w.Context(), sandbox.Docker); err == nil {
			t.Error("the resync hides the error")
		}
		if n := len(w.backend.Sandboxes()); n != 2 {
			t.Errorf("%d sandboxes, want the lease's and the one that could not be removed", n)
		}
		w.resyncNow()
		w.wantThere(false, "orphan1", "orphan2")
	})
}

func TestALedgerThatNeverHadASandboxDestroysNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.plantOrphan("orphan")
		w.backend.PlantDependent(driver.Dependent{Handle: w.handle("gonegonegone"), Kind: driver.DependentData, Name: "data"})
		for range 5 {
			later(grace)
			w.resyncNow()
		}
		w.wantThere(true, "orphan", "data")
		for _, f := range w.findings(sandbox.DriftLeftover, sandbox.DriftOrphan) {
			if !f.ResolvedAt.IsZero() || !strings.Contains(f.Resolution, "sandbox adopt") {
				t.Errorf("the finding does not say what to do: %+v", f)
			}
		}
	})
}

// TestAnOrphanThatIsAdoptedDuringACollectionIsKept: an operator adopts all orphans while the first ones, at most eight,
// are destroyed.
func TestAnOrphanThatIsAdoptedDuringACollectionIsKept(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		const orphans, atOnce = 20, 8
		for i := range orphans {
			agent := fmt.Sprintf("did:plc:stray%02d", i)
			w.backend.Plant(driver.SandboxSpec{
				Handle: w.handle(fmt.Sprintf("orphan-%02d", i)), LeaseID: sandbox.LeaseID(agent, game), AgentDID: agent,
				Generation: 1, Image: "player", Deadline: w.now().Add(5 * time.Hour),
				Resources: sandbox.Resources{MemoryMB: 256, CPUMillis: 100, PIDs: 64, DiskMB: 1000},
			})
		}
		later(grace)
		w.resyncNow()
		later(grace)
		adopts := sync.OnceFunc(func() {
			if _, err := w.engine.Adopt(w.Context(), sandbox.AdoptRequest{EnvironmentID: game}); err != nil {
				t.Error(err)
			}
		})
		w.backend.Fault(fake.OpKill, func(context.Context) error { adopts(); return nil })
		w.resyncNow()
		kept := 0
		for i := range orphans {
			if w.exists(fmt.Sprintf("orphan-%02d", i)) == "" {
				continue
			}
			kept++
			if l := w.lease(sandbox.LeaseID(fmt.Sprintf("did:plc:stray%02d", i), game)); l.Status != sandbox.LeaseActive {
				t.Errorf("an adopted lease is %s", l.Status)
			}
		}
		if kept < orphans-atOnce {
			t.Errorf("%d of %d orphans were kept, want all but %d", kept, orphans, atOnce)
		}
	})
}
