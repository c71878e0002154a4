package leasing_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/backupfile"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestABackupUnderLoadLosesNothing takes backups while players come and go, and restores them to the same database and
// to the other one.
func TestABackupUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	sqlite := func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "ledger.db") }
	postgres := func(t *testing.T) string { return postgrestest.New(t) }
	for name, c := range map[string]struct{ from, to func(*testing.T) string }{
		"SQLite to SQLite":         {sqlite, sqlite},
		"SQLite to PostgreSQL":     {sqlite, postgres},
		"PostgreSQL to PostgreSQL": {postgres, postgres},
		"PostgreSQL to SQLite":     {postgres, sqlite},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := c.from(t)
			e := openEngine(t, url)
			if _, err := e.PutEnvironment(t.Context(), sandbox.PutEnvironment{
				ID:    game,
				Owner: "test",
				EnvironmentSpec: sandbox.EnvironmentSpec{
					Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone},
			}); err != nil {
				t.Fatal(err)
			}
			play := startPlay(t, e)
			play.await(20)
			before := play.finished()
			file := filepath.Join(t.TempDir(), "under-load")
			if _, err := backupfile.Take(t.Context(), url, file, ledger.Options{}); err != nil {
				t.Fatal(err)
			}
			play.await(5)
			play.stop()
			restored := restore(t, file, c.to(t))
			had, has := costsByLease(t, e), costsByLease(t, restored)
			for _, id := range before {
				if d := cmp.Diff(had[id], has[id]); d != "" || has[id].AwakeSeconds == 0 {
					t.Errorf("lease %s had ended before the backup; its costs were (-) and are (+):\n%s", id, d)
				}
			}

			quiet := filepath.Join(t.TempDir(), "quiet")
			if _, err := backupfile.Take(t.Context(), url, quiet, ledger.Options{}); err != nil {
				t.Fatal(err)
			}
			wantAlike(t, e, restore(t, quiet, c.to(t)))
		})
	}
}

// wantAlike compares a ledger with its restored backup.
func wantAlike(t *testing.T, was, is *leasing.Service) {
	t.Helper()
	if d := cmp.Diff(costsByLease(t, was), costsByLease(t, is)); d != "" {
		t.Errorf("costs were (-) and are (+):\n%s", d)
	}
	events, err := allEvents(t.Context(), was)
	if err != nil {
		t.Fatal(err)
	}
	restored, err := allEvents(t.Context(), is)
	if err != nil {
		t.Fatal(err)
	}
	if len(restored) != len(events)+1 || restored[len(events)].Type != sandbox.EventRestored {
		t.Fatalf("%d events became %d, and not one more that tells of the restoration", len(events), len(restored))
	}
	if d := cmp.Diff(events, restored[:len(events)]); d != "" {
		t.Errorf("events were (-) and are (+):\n%s", d)
	}
	if d := cmp.Diff(leasesOf(t, was), leasesOf(t, is)); d != "" {
		t.Errorf("leases were (-) and are (+):\n%s", d)
	}
}

// leasesOf lists leases without the position of the ledger's events, because the restoration is an event.
func leasesOf(t *testing.T, e *leasing.Service) []sandbox.Lease {
	t.Helper()
	leases, err := e.ListLeases(t.Context(), sandbox.LeaseFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range leases {
		leases[i].LastEventID = 0
	}
	return leases
}

// openEngine serves the ledger at a URL with its own backend, until the test ends.
func openEngine(t *testing.T, url string) *leasing.Service {
	t.Helper()
	store, err := ledger.Open(t.Context(), url, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{fake.New("engine-1", nil)},
		PriceBooks: map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: pricing.Cloudflare()}, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func restore(t *testing.T, file, url string) *leasing.Service {
	t.Helper()
	if _, err := backupfile.Restore(t.Context(), file, url, ledger.Options{}); err != nil {
		t.Fatal(err)
	}
	return openEngine(t, url)
}

func costsByLease(t *testing.T, e *leasing.Service) map[string]sandbox.CostRow {
	t.Helper()
	r, err := e.Costs(t.Context(), sandbox.CostQuery{})
	if err != nil {
		t.Fatal(err)
	}
	costs := make(map[string]sandbox.CostRow)
	for _, row := range r.Rows {
		costs[row.LeaseID] = row
	}
	return costs
}

// play has players that each lease a sandbox once, and release it.
type play struct {
	t       *testing.T
	ctx     context.Context
	cancel  context.CancelFunc
	players sync.WaitGroup
	count   atomic.Int64

	mu    sync.Mutex // guards ended
	ended []string   // leases with an acknowledged end
}

func startPlay(t *testing.T, e *leasing.Service) *play {
	ctx, cancel := context.WithCancel(context.Background())
	p := &play{t: t, ctx: ctx, cancel: cancel}
	t.Cleanup(p.stop)
	for i := range 4 {
		p.players.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				p.one(e, fmt.Sprintf("did:plc:p%d-%d", i, n))
			}
		})
	}
	return p
}

func (p *play) one(e *leasing.Service, agent string) {
	ctx := context.Background() // a player who has begun finishes
	_, err := e.Acquire(ctx, sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: "test"})
	if err == nil {
		_, err = e.Release(ctx, sandbox.LeaseRef{ID: sandbox.LeaseID(agent, game)})
	}
	if err != nil {
		p.t.Error(err)
		p.cancel()
		return
	}
	p.mu.Lock()
	p.ended = append(p.ended, sandbox.LeaseID(agent, game))
	p.mu.Unlock()
	p.count.Add(1)
}

// await waits until n more leases have ended, or one could not end.
func (p *play) await(n int64) {
	p.t.Helper()
	until := p.count.Load() + n
	testwait.Until(p.t, time.Minute, fmt.Sprintf("%d more leases have ended", n),
		func() bool { return p.count.Load() >= until || p.ctx.Err() != nil })
}

func (p *play) finished() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.ended...)
}

func (p *play) stop() {
	p.cancel()
	p.players.Wait()
}

// TestASandboxNewerThanTheBackupIsAdopted restores a backup, or a copy of the disk, that does not contain a live
// sandbox. By then the unused leases in the backup would have ended long ago.
func TestASandboxNewerThanTheBackupIsAdopted(t *testing.T) {
	t.Run("backup", func(t *testing.T) {
		restoredOlderThanASandbox(t, func(w *world, file string) {
			if _, err := backupfile.Take(w.Context(), w.url, file, ledger.Options{Now: w.now}); err != nil {
				w.Fatal(err)
			}
		}, func(w *world, file string) {
			if _, err := backupfile.Restore(w.Context(), file, w.url, ledger.Options{Now: w.now}); err != nil {
				w.Fatal(err)
			}
		})
	})
	t.Run("other means", func(t *testing.T) {
		restoredOlderThanASandbox(t, func(w *world, file string) {
			w.close()
			copyFile(w.T, w.path, file)
			w.open()
		}, func(w *world, file string) {
			copyFile(w.T, file, strings.TrimPrefix(w.url, "sqlite://"))
			if _, err := backupfile.NoteRestored(w.Context(), w.url, ledger.Options{Now: w.now}); err != nil {
				w.Fatal(err)
			}
		})
	})
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func restoredOlderThanASandbox(t *testing.T, take, putBack func(w *world, file string)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.acquire("did:plc:gone")
		file := filepath.Join(filepath.Dir(w.path), "backup")
		take(w, file)
		newer := w.acquire(bob)
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: sandbox.LeaseID("did:plc:gone", game)}); err != nil {
			w.Fatal(err)
		}
		w.close()
		later(24 * time.Hour) // both are in use all the time, which the backup does not show
		w.url = "sqlite://" + filepath.Join(filepath.Dir(w.path), "restored.db")
		putBack(w, file)
		w.open()
		w.startLoop()
		for range 4 {
			later(grace)
		}
		if l := w.lease(annLease); l.Status != sandbox.LeaseActive {
			w.Errorf("a lease that was in use is %s by %s", l.Status, l.EndedBy)
		}
		if l := w.lease(sandbox.LeaseID("did:plc:gone", game)); l.EndedBy != sandbox.EndedByVanished {
			w.Errorf("a lease that has ended since is %s by %q", l.Status, l.EndedBy)
		}
		w.wantThere(true, newer.SandboxID)
		if f := w.findings(sandbox.DriftOrphan,
			sandbox.DriftVanished); !strings.Contains(f[0].Resolution, "sandbox adopt") {
			w.Errorf("the finding does not say what to do: %+v", f)
		}
		if _, err := w.engine.Adopt(w.Context(), sandbox.AdoptRequest{}); err != nil {
			w.Fatal(err)
		}
		if l := w.lease(newer.ID); l.Status != sandbox.LeaseActive || l.SandboxID != newer.SandboxID {
			w.Errorf("adopted, it is %+v", l)
		}

		w.plantOrphan("later")
		later(3 * grace)
		w.wantThere(false, "later")
	})
}

// TestASandboxThatWaitedInAPoolAtABackupIsNotGivenOut: a lease may have had it since, and an agent may have left data
// in it.
func TestASandboxThatWaitedInAPoolAtABackupIsNotGivenOut(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withPool(1))
		later(time.Second)
		w.wantPool(1, 0)
		file := filepath.Join(filepath.Dir(w.path), "backup")
		if _, err := backupfile.Take(w.Context(), w.url, file, ledger.Options{Now: w.now}); err != nil {
			w.Fatal(err)
		}
		since := w.acquire(ann)
		later(time.Second)
		w.close()
		w.url = "sqlite://" + filepath.Join(filepath.Dir(w.path), "restored.db")
		if _, err := backupfile.Restore(w.Context(), file, w.url, ledger.Options{Now: w.now}); err != nil {
			w.Fatal(err)
		}
		w.open()
		if _, err := w.engine.Adopt(w.Context(), sandbox.AdoptRequest{}); err != nil {
			w.Fatal(err)
		}
		if l := w.acquire(bob); l.SandboxID == since.SandboxID {
			w.Error("an agent got the sandbox of another one")
		}
		w.startLoop()
		later(time.Second)
		w.wantThere(false, since.SandboxID)
		w.wantPool(1, 0)
	})
}
