package storage_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestAFullDiskUndoesACommitAsAWhole commits several changes together, one of which finds the disk full. SQLite then
// undoes all of them, and none of their events may be stored either.
func TestAFullDiskUndoesACommitAsAWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := ledger.Open(t.Context(), ledgertest.SQLiteURL(t), ledger.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		if err := s.BoundPages(1); err != nil {
			t.Fatal(err)
		}
		sizes := map[string]int{"before": 1, "large": 1 << 20, "after": 1}
		for id, err := range together(s, sizes) {
			if sandbox.CodeOf(err) != sandbox.Unavailable {
				t.Errorf("%q was answered %v", id, err)
			}
		}
		wantStored(t, s, 0)

		if err := s.BoundPages(1 << 20); err != nil {
			t.Fatal(err)
		}
		for id, err := range together(s, sizes) {
			if err != nil {
				t.Errorf("with space again, the write of %q returned %v", id, err)
			}
		}
		wantStored(t, s, len(sizes))
	})
}

// together creates environments with settings of given sizes, each with an event, in one commit.
func together(s *ledger.Store, sizes map[string]int) map[string]error {
	held := make(chan struct{})
	go func() { _ = s.Write(context.Background(), func(*ledger.Tx) error { <-held; return nil }) }()
	synctest.Wait()
	answers := make(map[string]chan error)
	for _, id := range []string{"before", "large", "after"} {
		answers[id] = make(chan error, 1)
		go func() {
			answers[id] <- s.Write(context.Background(), func(tx *ledger.Tx) error { return changeBoth(tx, id, sizes[id]) })
		}()
		synctest.Wait()
	}
	close(held)
	errs := make(map[string]error)
	for id, answer := range answers {
		errs[id] = <-answer
	}
	return errs
}

func changeBoth(tx *ledger.Tx, id string, size int) error {
	if err := ledgertest.Environment(tx, id); err != nil {
		return err
	}
	err := tx.UpdateEnvironment(id, func(e *ledger.Environment) error {
		e.Spec.Image = strings.Repeat("x", size)
		return nil
	})
	if err != nil {
		return err
	}
	return tx.AppendEnvironmentEvent(id, sandbox.EventEnvironmentCreated, nil)
}

func wantStored(t *testing.T, s *ledger.Store, n int) {
	t.Helper()
	err := s.Read(t.Context(), func(tx *ledger.Tx) error {
		environments, err := tx.Environments()
		if err != nil {
			return err
		}
		events, err := tx.Events(sandbox.EventFilter{})
		if len(environments) != n || len(events) != n {
			t.Errorf("%d environments and %d events are stored, want %d of each", len(environments), len(events), n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
