package leasing_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestSnapshotAndFeedFitTogether makes agents lease, use and release at two engines of one ledger, while readers read
// all leases and follow from there. No event is missing, repeated or out of order. In the end, the readers know what
// the ledger has, and the live events equal the replayed ones.
func TestSnapshotAndFeedFitTogether(t *testing.T) {
	t.Parallel()
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFeed(t, fresh(t))
			var readers, writers sync.WaitGroup
			live := make([][]sandbox.Event, len(f.engines))
			for i, e := range f.engines {
				readers.Go(func() { live[i] = f.live(e) })
				readers.Go(func() { f.read(e) })
				readers.Go(func() { f.read(e) })
			}
			for i := range 6 {
				writers.Go(func() { f.use("did:plc:a" + strconv.Itoa(i)) })
			}
			writers.Wait()
			f.environment(theEnd)
			readers.Wait()
			replayed := f.replay()
			for i := range live {
				if !slices.EqualFunc(live[i], replayed, sameEvent) {
					t.Errorf("%d events were followed live at engine %d, and %d are replayed", len(live[i]), i, len(replayed))
				}
			}
		})
	}
}

// theEnd is the environment whose creation is the last event.
const theEnd = "the-end"

func ends(e sandbox.Event) bool {
	return e.EnvironmentID == theEnd && e.Type == sandbox.EventEnvironmentCreated
}

func sameEvent(a, b sandbox.Event) bool {
	return a.ID == b.ID && a.Sequence == b.Sequence && a.SandboxID == b.SandboxID && a.Type == b.Type &&
		a.At.Equal(b.At) && string(a.Data) == string(b.Data)
}

// feed is a ledger with two engines, which stand for two processes.
type feed struct {
	*testing.T
	engines [2]*leasing.Service
	turn    atomic.Int64
}

func newFeed(t *testing.T, url string) *feed {
	t.Helper()
	f := &feed{T: t}
	backend := fake.New("engine-1", nil)
	for i := range f.engines {
		store, err := ledger.Open(t.Context(), url, ledger.Options{Poll: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if f.engines[i], err = leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{backend}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(f.engines[i].Close(), store.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	f.environment(game)
	return f
}

// engine returns the engines in turn.
func (f *feed) engine() *leasing.Service { return f.engines[f.turn.Add(1)%int64(len(f.engines))] }

func (f *feed) environment(id string) {
	f.Helper()
	_, err := f.engine().PutEnvironment(f.Context(), sandbox.PutEnvironment{
		ID:    id,
		Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Image: "player", Network: sandbox.NetworkNone},
	})
	if err != nil {
		f.Fatal(err)
	}
}

// use makes an agent live through several generations.
func (f *feed) use(agent string) {
	id := sandbox.LeaseID(agent, game)
	for range 5 {
		_, err := f.engine().Acquire(f.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: "test"})
		_, err2 := f.engine().Renew(f.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: id}})
		_, err3 := f.engine().Sleep(f.Context(), sandbox.LeaseRef{ID: id})
		_, err4 := f.engine().Release(f.Context(), sandbox.LeaseRef{ID: id})
		if err := errors.Join(err, err2, err3, err4); err != nil {
			f.Error(err)
			return
		}
	}
}

// follow follows the events after an id until see returns true.
func (f *feed) follow(e *leasing.Service, after int64, see func(sandbox.Event) (enough bool)) {
	ctx, cancel := context.WithTimeout(f.Context(), 5*time.Minute) // only a limit for a hang; machines are busy
	defer cancel()
	enough := errors.New("enough")
	err := e.FollowEvents(ctx, sandbox.EventFilter{AfterID: after}, func(ev sandbox.Event) error {
		if see(ev) {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		f.Errorf("following after event %d: %v", after, err)
	}
}

// live follows from the beginning to the end.
func (f *feed) live(e *leasing.Service) (events []sandbox.Event) {
	f.follow(e, 0, func(ev sandbox.Event) bool {
		events = append(events, ev)
		return ends(ev)
	})
	return events
}

// replay reads the followed events again, in pages.
func (f *feed) replay() (events []sandbox.Event) {
	f.Helper()
	filter := sandbox.EventFilter{Limit: 17}
	for {
		page, err := f.engines[0].ListEvents(f.Context(), filter)
		if err != nil {
			f.Fatal(err)
		}
		events = append(events, page...)
		if len(page) < filter.Limit {
			return events
		}
		filter.AfterID = page[len(page)-1].ID
	}
}

// read reads all leases and follows for a while, repeatedly until the end.
func (f *feed) read(e *leasing.Service) {
	for over := false; !over && !f.Failed(); {
		sequences, at := f.snapshot(e)
		if f.isTheEnd(e, at) { // no event follows
			return
		}
		seen := 0
		f.follow(e, at, func(ev sandbox.Event) bool {
			if ev.ID <= at {
				f.Errorf("event %d follows the snapshot as of event %d", ev.ID, at)
			}
			if ev.SandboxID != "" {
				if want := sequences[ev.SandboxID] + 1; ev.Sequence != want {
					f.Errorf("after the snapshot as of event %d, sandbox %s continues with sequence %d, want %d",
						at, ev.SandboxID, ev.Sequence, want)
				}
				sequences[ev.SandboxID] = ev.Sequence
			}
			at = ev.ID
			seen++
			over = ends(ev)
			return over || seen == 20
		})
		if !over {
			continue
		}
		final, last := f.snapshot(e)
		for id, sequence := range final {
			if sequences[id] != sequence {
				f.Errorf("in the end sandbox %s is at sequence %d, and the reader at %d", id, sequence, sequences[id])
			}
		}
		if last != at {
			f.Errorf("in the end the ledger is at event %d, and the reader at %d", last, at)
		}
	}
}

// isTheEnd reports whether an event is the last one.
func (f *feed) isTheEnd(e *leasing.Service, id int64) bool {
	events, err := e.ListEvents(f.Context(), sandbox.EventFilter{AfterID: id - 1, Limit: 1})
	if err != nil {
		f.Error(err)
	}
	return len(events) == 1 && ends(events[0])
}

// snapshot reads all leases: the sequences of their sandboxes, and the event after which to follow.
func (f *feed) snapshot(e *leasing.Service) (sequences map[string]int64, at int64) {
	info, err := e.Ledger(f.Context())
	leases, err2 := e.ListLeases(f.Context(), sandbox.LeaseFilter{})
	if err := errors.Join(err, err2); err != nil {
		f.Error(err)
	}
	sequences, at = make(map[string]int64), info.LastEventID
	for _, l := range leases { // all from one snapshot
		sequences[l.SandboxID], at = l.LastSequence, l.LastEventID
	}
	return sequences, at
}

// TestFollowerThatFallsBehindRetentionGetsAnError removes events while their follower is still on the page before.
func TestFollowerThatFallsBehindRetentionGetsAnError(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		for range sandbox.MaxPage {
			w.condition("game.finished", bob)
		}
		w.acquire(ann)
		seen := 0
		err := w.engine.FollowEvents(w.Context(), sandbox.EventFilter{}, func(sandbox.Event) error {
			if seen++; seen == 1 {
				later(retention.DefaultTTL + time.Second)
				if _, err := w.engine.Purge(w.Context(), retention.DefaultTTL); err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		if seen != sandbox.MaxPage || sandbox.CodeOf(err) != sandbox.EventSequenceExpired {
			t.Errorf("after %d events it ended with %v", seen, err)
		}
	})
}

// TestQuietFollowerIsNotCutOff follows a lease without new events, while events of other leases come and are purged.
func TestQuietFollowerIsNotCutOff(t *testing.T) {
	inWorld(t, func(w *world) {
		const year = sandbox.Duration(8760 * time.Hour)
		w.environment(func(p *sandbox.PutEnvironment) { p.TTL, p.MaxLifetime = year, year })
		w.acquire(bob)
		ctx, stop := context.WithCancel(w.Context())
		var seen []sandbox.EventType
		done := make(chan error)
		go func() {
			done <- w.engine.FollowEvents(ctx, sandbox.EventFilter{LeaseID: sandbox.LeaseID(bob, game)},
				func(e sandbox.Event) error {
					seen = append(seen, e.Type)
					return nil
				})
		}()
		later(0)
		w.acquire(ann)
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			t.Fatal(err)
		}
		later(retention.DefaultTTL + time.Second)
		if err := w.engine.RollUp(w.Context()); err != nil {
			t.Fatal(err)
		}
		if done, err := w.engine.Purge(w.Context(), retention.DefaultTTL); err != nil || done.Sandboxes != 1 {
			t.Fatalf("purged %+v: %v", done, err)
		}
		if _, err := w.engine.Renew(w.Context(),
			sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: sandbox.LeaseID(bob, game)}}); err != nil {
			t.Fatal(err)
		}
		later(0)
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		if want := []sandbox.EventType{
			sandbox.EventAccepted, sandbox.EventPreparing, sandbox.EventReady, sandbox.EventRenewed,
		}; !slices.Equal(seen, want) {
			t.Errorf("it saw %v, want %v", seen, want)
		}
	})
}
