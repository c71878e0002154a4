package leasing_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// inDiskWorld runs a test on a backend that keeps the disks of sleeping sandboxes if their environment wants that.
func inDiskWorld(t *testing.T, keep bool, f func(w *world, l sandbox.Lease)) {
	inWorld(t, func(w *world) {
		w.backend.Record()
		w.backend.KeepTime(keeperGrace)
		w.backend.TellDisk(sandbox.KeptDisk{})
		w.environment(resting(restAfter), func(p *sandbox.PutEnvironment) { p.KeepDisk = keep })
		f(w, w.acquire(ann))
	})
}

// events returns the data of a sandbox's events of a type.
func events[T any](w *world, sandboxID string, t sandbox.EventType) (all []T) {
	w.Helper()
	page, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: sandboxID, Type: string(t)})
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range page {
		var data T
		if len(e.Data) > 0 {
			if err := json.Unmarshal(e.Data, &data); err != nil {
				w.Fatal(err)
			}
		}
		all = append(all, data)
	}
	return all
}

type ofDisk struct {
	Disk *sandbox.KeptDisk `json:"disk"`
}

// wantDisks checks what the last stop and the last start of a sandbox say about its disk, and which starts lost it.
func (w *world) wantDisks(id string, stopped, awake *sandbox.KeptDisk, lost ...sandbox.DiskLost) {
	w.Helper()
	check := func(t sandbox.EventType, want *sandbox.KeptDisk) {
		w.Helper()
		all := events[ofDisk](w, id, t)
		if len(all) == 0 {
			w.Fatalf("there is no event %s", t)
		}
		got := all[len(all)-1].Disk
		if (got == nil) != (want == nil) || got != nil && (!got.SavedAt.Equal(want.SavedAt) || got.Lost != want.Lost) {
			w.Errorf("the last %s tells of the disk %+v, want %+v", t, got, want)
		}
	}
	check(sandbox.EventStopped, stopped)
	check(sandbox.EventAwake, awake)
	got := events[sandbox.DiskLost](w, id, sandbox.EventDiskLost)
	if len(got) != len(lost) || len(lost) > 0 && got[len(got)-1] != lost[len(lost)-1] {
		w.Errorf("disks were lost by %+v, want %+v", got, lost)
	}
}

func TestEventsTellWhatBecameOfAKeptDisk(t *testing.T) {
	inDiskWorld(t, true, func(w *world, l sandbox.Lease) {
		kept, lost := sandbox.KeptDisk{SavedAt: time.Now().UTC()}, sandbox.KeptDisk{Lost: "its snapshot failed"}
		w.startLoop()
		w.backend.TellDisk(kept)
		later(restAfter + time.Second)
		w.exec(annLease, "echo")
		w.wantDisks(l.SandboxID, &kept, &kept)
		w.backend.TellDisk(lost)
		later(restAfter + time.Second)
		w.exec(annLease, "echo")
		w.wantDisks(l.SandboxID, &lost, &lost, sandbox.DiskLost{Reason: lost.Lost})
	})
}

func TestEventsTellOfTheDiskOfWhatItsBackendPutToRest(t *testing.T) {
	inDiskWorld(t, true, func(w *world, l sandbox.Lease) {
		kept, lost := sandbox.KeptDisk{SavedAt: time.Now().UTC()}, sandbox.KeptDisk{Lost: "its snapshot has expired"}
		later(20 * time.Minute)
		w.backend.TellDisk(kept)
		if err := w.engine.Look(w.Context(), l.SandboxID); err != nil {
			w.Fatal(err)
		}
		w.backend.TellDisk(lost)
		w.exec(annLease, "echo")
		w.wantDisks(l.SandboxID, &kept, &lost, sandbox.DiskLost{Reason: lost.Lost})
	})
}

func TestEventsTellOfNoDiskThatIsNotKept(t *testing.T) {
	inDiskWorld(t, false, func(w *world, l sandbox.Lease) {
		w.backend.TellDisk(sandbox.KeptDisk{Lost: "of another sandbox"})
		w.startLoop()
		later(restAfter + time.Second)
		w.exec(annLease, "echo")
		w.wantDisks(l.SandboxID, nil, nil)
	})
}
