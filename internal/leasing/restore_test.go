package leasing_test

import (
	"context"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The bucket hangs while a lease begins with its snapshot. A caller that ends the lease does not wait for the bucket,
// and the snapshot stays.
func TestALeaseEndsWhileItsSnapshotIsBeingRestored(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(kept())
		w.startLoop()
		w.write(w.acquire(ann).ID, "chapter 1")
		w.die()
		later(time.Minute)
		hangs := w.bucket.hang()
		_, err := w.engine.Acquire(w.Context(),
			sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test", NoWait: true})
		if err != nil {
			t.Fatal(err)
		}
		<-hangs
		w.bucket.fault(nil)
		w.releasesSoon()
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByRelease)
		w.remembers(w.acquire(ann), "chapter 1")
	})
}

// The bucket hangs while a checkpoint is uploaded, and the sandbox runs meanwhile. The end of its lease does not wait
// for the checkpoint, because the last save replaces it.
func TestALeaseEndsWhileACheckpointIsBeingUploaded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(awakeFor(2*time.Hour), kept(func(s *sandbox.SnapshotSpec) {
			every := sandbox.Duration(10 * time.Second)
			s.CheckpointEvery = &every
		}))
		w.startLoop()
		w.write(w.acquire(ann).ID, "chapter 1")
		later(time.Minute)
		hangs := w.bucket.hang()
		w.write(annLease, "chapter 2")
		<-hangs
		w.bucket.fault(nil)
		w.releasesSoon()
		failed, err := w.engine.ListEvents(w.Context(),
			sandbox.EventFilter{EnvironmentID: game, Type: string(sandbox.EventSnapshotSaveFailed)})
		if err != nil || len(failed) > 0 {
			t.Errorf("an end of a lease is reported as a failed save: %+v, %v", failed, err)
		}
		w.remembers(w.acquire(ann), "chapter 2")
	})
}

// hang makes the next call to the bucket hang, and returns a channel that is closed once it does.
func (b *bucket) hang() <-chan struct{} {
	hangs := make(chan struct{})
	b.fault(func(ctx context.Context) error {
		close(hangs)
		<-ctx.Done()
		return sandbox.Errorf(sandbox.Unavailable, "the bucket: %w", ctx.Err())
	})
	return hangs
}

// releasesSoon releases Ann's lease, and checks that this takes at most 10 s.
func (w *world) releasesSoon() {
	w.Helper()
	began := time.Now()
	if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
		w.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		w.Errorf("the lease was gone %s after its release", took)
	}
}
