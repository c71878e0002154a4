package storage_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/deliveries"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestWhatWasAcknowledgedSurvivesACrashOfPostgreSQL crashes the server under load. Every acknowledged write must
// survive, and later writes must succeed without a restart of this program.
func TestWhatWasAcknowledgedSurvivesACrashOfPostgreSQL(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	url := server.URL(t)
	s := ledgertest.Open(t, url, ledger.Options{Poll: time.Hour})
	listener := ledgertest.Open(t, url, ledger.Options{Poll: time.Hour})
	load := startLoad(s)
	defer load.stop()
	for range 3 {
		load.await(t, 200)
		server.StopImmediately(t)
		server.Start(t)
	}
	load.await(t, 200)
	load.stop()
	missing := 0
	err := s.Read(t.Context(), func(tx *ledger.Tx) error {
		for id := range load.acknowledged {
			known, err := deliveries.In(tx).Known([]deliveries.Key{{ID: id}})
			if err != nil {
				return err
			}
			if len(known) == 0 {
				missing++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d acknowledged, %d refused, %d missing", len(load.acknowledged), load.refused, missing)
	if missing > 0 {
		t.Errorf("%d of %d acknowledged writes are lost", missing, len(load.acknowledged))
	}
	for code := range load.codes {
		if code != sandbox.Unavailable {
			t.Errorf("a write failed as %s", code)
		}
	}
	awaitAnnouncement(t, s, listener)
}

// awaitAnnouncement writes until the listener, whose connection was lost, receives a notification again.
func awaitAnnouncement(t *testing.T, writer, listener *ledger.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i := 0; ; i++ {
		changed := listener.Changed()
		ledgertest.MakeEnvironment(t, writer, fmt.Sprint("e", i))
		select {
		case <-changed:
			return
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the listener did not connect again")
		}
	}
}

// load has eight writers that retry after a failure.
type load struct {
	end     chan struct{}
	once    sync.Once
	writers sync.WaitGroup
	done    atomic.Int64 // acknowledged so far

	mu           sync.Mutex // guards what follows
	acknowledged map[string]bool
	codes        map[sandbox.Code]bool // of failures
	refused      int
}

func startLoad(s *ledger.Store) *load {
	l := &load{end: make(chan struct{}), acknowledged: make(map[string]bool), codes: make(map[sandbox.Code]bool)}
	for w := range 8 {
		l.writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.end:
					return
				default:
					l.write(s, fmt.Sprintf("%d-%d", w, i))
				}
			}
		})
	}
	return l
}

func (l *load) write(s *ledger.Store, id string) {
	err := s.Write(context.Background(), func(tx *ledger.Tx) error {
		_, err := deliveries.In(tx).Create([]deliveries.Delivery{{ID: id, Body: []byte(id), Status: sandbox.DeliveryUnmatched}})
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.refused++
		l.codes[sandbox.CodeOf(err)] = true
		return
	}
	l.acknowledged[id] = true
	l.done.Add(1)
}

// await waits until n more writes were acknowledged.
func (l *load) await(t testing.TB, n int64) {
	t.Helper()
	until := l.done.Load() + n
	testwait.Until(t, time.Minute, fmt.Sprintf("%d more writes were acknowledged", n),
		func() bool { return l.done.Load() >= until })
}

func (l *load) stop() {
	l.once.Do(func() { close(l.end) })
	l.writers.Wait()
}
