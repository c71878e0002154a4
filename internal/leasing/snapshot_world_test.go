package leasing_test

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// bucket is a snapshot store whose calls can be made to fail or wait.
type bucket struct {
	*snapshotstore.Store

	mu      sync.Mutex // guards what follows
	before  func(ctx context.Context) error
	objects map[string]bool
}

func newBucket(t *testing.T) *bucket {
	t.Helper()
	s, err := snapshotstore.Open(t.Context(), "mem://")
	if err != nil {
		t.Fatal(err)
	}
	return &bucket{Store: s, objects: make(map[string]bool)}
}

var bucketDown = sandbox.Errorf(sandbox.Unavailable, "the bucket is down")

// fault makes every call to the bucket call f first; nil ends that.
func (b *bucket) fault(f func(ctx context.Context) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = f
}

func (b *bucket) fail(err error) { b.fault(func(context.Context) error { return err }) }

// stall makes every call to the bucket hang until its caller gives up, or until heal is called.
func (b *bucket) stall() (heal func()) {
	healed := make(chan struct{})
	b.fault(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return bucketDown
		case <-healed:
			return nil
		}
	})
	return func() {
		b.fault(nil)
		close(healed)
	}
}

func (b *bucket) enter(ctx context.Context) error {
	b.mu.Lock()
	f := b.before
	b.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx)
}

// Save reads all of the data before it fails, like a bucket that fails during a write.
func (b *bucket) Save(ctx context.Context, object string, data io.Reader, limit int64) (snapshotstore.Archive, error) {
	all, err := io.ReadAll(data)
	if err != nil {
		return snapshotstore.Archive{}, err
	}
	if err := b.enter(ctx); err != nil {
		return snapshotstore.Archive{}, err
	}
	a, err := b.Store.Save(ctx, object, strings.NewReader(string(all)), limit)
	if err == nil {
		b.mu.Lock()
		b.objects[object] = true
		b.mu.Unlock()
	}
	return a, err
}

func (b *bucket) Load(ctx context.Context, a snapshotstore.Archive) (io.ReadCloser, error) {
	if err := b.enter(ctx); err != nil {
		return nil, err
	}
	return b.Store.Load(ctx, a)
}

func (b *bucket) Put(ctx context.Context, object string, content io.Reader) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	b.objects[object] = true
	b.mu.Unlock()
	return b.Store.Put(ctx, object, content)
}

func (b *bucket) Delete(ctx context.Context, object string) error {
	if err := b.enter(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	delete(b.objects, object)
	b.mu.Unlock()
	return b.Store.Delete(ctx, object)
}

func (b *bucket) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.objects))
}

// kept makes an environment keep snapshots of /data. change modifies the defaults.
func kept(change ...func(s *sandbox.SnapshotSpec)) func(p *sandbox.PutEnvironment) {
	return func(p *sandbox.PutEnvironment) {
		p.Type, p.Snapshot = sandbox.TypeRPG, &sandbox.SnapshotSpec{}
		for _, c := range change {
			c(p.Snapshot)
		}
	}
}

func never(s *sandbox.SnapshotSpec) { var d sandbox.Duration; s.CheckpointEvery = &d }

func discard(s *sandbox.SnapshotSpec) { s.OnPersistFailure = sandbox.PersistDiscard }

const story = "/data/memory/story.md"

// write stores a story in an agent's sandbox, as a command in it would.
func (w *world) write(leaseID, text string) {
	w.Helper()
	w.exec(leaseID, "echo", "writing")
	w.backend.PutFile(w.lease(leaseID).SandboxID, story, text)
	w.exec(leaseID, "echo", "written")
}

// die ends ann's life after one more second.
func (w *world) die() {
	w.Helper()
	later(time.Second)
	w.condition("agent.death", ann)
}

// remembers checks the story in a lease's sandbox.
func (w *world) remembers(l sandbox.Lease, want string) {
	w.Helper()
	if got, _ := w.backend.FileOf(l.SandboxID, story); got != want {
		w.Errorf("generation %d begins with the story %q, want %q", l.Generation, got, want)
	}
}

func (w *world) count(sandboxID string, t sandbox.EventType) (n int) {
	w.Helper()
	events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: sandboxID})
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range events {
		if e.Type == t {
			n++
		}
	}
	return n
}
