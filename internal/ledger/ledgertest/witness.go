package ledgertest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/witnesses"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// witness issues generations, finds that the ledger is older than its instance, and accepts that instance.
func (s suite) witness(t *testing.T) {
	t.Parallel()
	url := s.fresh(t)
	store := open(t, url, nil)
	next := func(instance string, last int64) (generation int64, err error) {
		err = store.Write(t.Context(), func(tx *ledger.Tx) (err error) {
			generation, err = witnesses.In(tx).NextGeneration(instance, last)
			return err
		})
		return generation, err
	}
	wantNext := func(instance string, last, want int64) {
		t.Helper()
		if got, err := next(instance, last); err != nil || got != want {
			t.Errorf("after generation %d on %s comes %d, want %d: %v", last, instance, got, want, err)
		}
	}
	want := func(w witnesses.Witness) {
		t.Helper()
		read(t, store, func(tx *ledger.Tx) error {
			got, err := witnesses.In(tx).Of(w.Instance)
			if d := cmp.Diff(w, got); d != "" {
				t.Errorf("want (-), got (+):\n%s", d)
			}
			return err
		})
	}
	wantNext("account", 4, 5)
	want(witnesses.Witness{Instance: "account"}) // its id is unique

	write(t, store, func(tx *ledger.Tx) error {
		if err := Environment(tx, "e"); err != nil {
			return err
		}
		return witnesses.In(tx).Issue("engine")
	})
	wantNext("engine", 0, 1)
	wantNext("engine", 1, 2)
	for _, n := range []int64{3, 2} {
		write(t, store, func(tx *ledger.Tx) error { return witnesses.In(tx).Witnessed("engine", n) })
	}
	want(witnesses.Witness{Instance: "engine", Issued: 3, Witnessed: 3})
	write(t, store, func(tx *ledger.Tx) error {
		n, err := witnesses.In(tx).Withdraw("engine", "another")
		if n != 0 {
			t.Errorf("an instance with an environment loses number %d", n)
		}
		return err
	})

	write(t, store, func(tx *ledger.Tx) error {
		return tx.BeginGeneration(nil, Sandbox(tx, "e", 40))
	})
	for _, found := range []int64{3, 10, 10, 12} {
		write(t, store, func(tx *ledger.Tx) error {
			isNew, err := witnesses.In(tx).FindBehind("engine", found)
			restored, readErr := tx.RestoredAt()
			if isNew && restored != tx.Now {
				t.Errorf("it was activated at %d", restored)
			}
			return errors.Join(err, readErr)
		})
	}
	want(witnesses.Witness{Instance: "engine", Issued: 3, Witnessed: 3, Found: 12})
	if _, err := next("engine", 2); sandbox.ReasonOf(err) != sandbox.ReasonLedgerBehind {
		t.Errorf("a ledger that is behind begins a generation: %v", err)
	}
	write(t, store, func(tx *ledger.Tx) error { return witnesses.In(tx).Issue("engine") })
	want(witnesses.Witness{Instance: "engine", Issued: 3, Witnessed: 3, Found: 12})
	store = open(t, url, nil)
	write(t, store, func(tx *ledger.Tx) error {
		_, err := witnesses.In(tx).Accept("engine", 13)
		return err
	})
	want(witnesses.Witness{Instance: "engine", Issued: 14})
	wantNext("engine", 2, 51) // above 40 and the ten unknown ones
	wantNext("engine", 60, 61)
	wantNext("account", 0, 51)
	events := 0
	read(t, store, func(tx *ledger.Tx) error {
		found, err := tx.Events(sandbox.EventFilter{})
		for _, e := range found {
			if e.Type == sandbox.EventRestored {
				events++
			}
		}
		return err
	})
	if events != 1 {
		t.Errorf("%d events say that it was put back", events)
	}
}
