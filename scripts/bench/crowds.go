package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

const (
	crowd    = 100_000 // leases in the ledger
	crowdDue = 1_000   // of them are due
	// idleFor is longer than the intervals of resyncs and of accounting, so that both have run.
	idleFor = 40 * time.Second
)

// crowds measures the costs of many idle leases: finding the due ones, and the memory of a reconciler. It also measures
// how many conditions per second the reconciler stores if each ends one lease. The leases are on an engine that the
// reconciler does not reach, so it has no other work.
func crowds(ctx context.Context, s *stage, o options) (_ []result, err error) {
	state := filepath.Join(s.state, "crowd")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	r := harness.NewReconciler(s.root, state)
	if err := fillLedger(ctx, r.Database); err != nil {
		return nil, err
	}
	look, err := findDue(ctx, r.Database)
	if err != nil {
		return nil, err
	}
	if err := r.Start(ctx, s.priceBook()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Stop(context.WithoutCancel(ctx))) }()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(idleFor):
	}
	memory, err := r.Memory()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	ending, err := receipts(ctx, r, o, "receipts that end a lease each", func(n int64) sandbox.Condition {
		return sandbox.Condition{Type: "game.finished", Timestamp: begin.UTC(),
			Data: sandbox.ConditionData{EnvironmentID: "crowd", AgentDID: fmt.Sprint("did:plc:", n)}}
	}, 1)
	return append([]result{
		atMost(fmt.Sprintf("finding %d due of %d leases", crowdDue, crowd), milliseconds(look), "ms of CPU", 100, ""),
		atMost(fmt.Sprintf("memory of an idle reconciler with %d leases", crowd), float64(memory)/1e6, "MB", 120,
			"resident, after a resync"),
	}, ending...), err
}

// fillLedger creates a ledger of sleeping leases, as copies of one row.
func fillLedger(ctx context.Context, path string) error {
	store, err := ledger.Open(ctx, "sqlite://"+path, ledger.Options{})
	if err != nil {
		return err
	}
	err = store.Write(ctx, func(tx *ledger.Tx) error {
		row := ledgertest.Sandbox(tx, "crowd", 1)
		row.ID, row.Phase = "first", sandbox.PhaseAsleep
		row.MaxLifetime, row.TTL = micro.SpanOf(sandbox.Duration(240*time.Hour)),
			micro.SpanOf(sandbox.Duration(240*time.Hour))
		row.Schedule.DueAt = tx.Now.Add(row.TTL)
		book, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, sandbox.PriceBook{Name: "free"})
		return errors.Join(err, ledgertest.Environment(tx, "crowd"), tx.AppendSandboxEvent(row, sandbox.EventReady, nil),
			tx.CreateSandbox(row), accounting.In(tx).EnterState(row, sandbox.PhaseAsleep, tx.Now, book))
	})
	if err = errors.Join(err, store.Close()); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	// Each copy is a lease of another agent.
	const id, agent = "printf('copy%022d', i)", "'did:plc:' || i"
	copies := map[string]string{"sandbox_id": id, "lease_id": agent + " || '::crowd'", "agent_did": agent}
	for _, table := range []string{"sandboxes", "usage_periods", "events"} {
		key := "sandbox_id"
		if table == "sandboxes" {
			key = "id"
			copies["id"] = id
			copies["due_at"] = fmt.Sprintf("CASE WHEN i %% %d = 1 THEN 1 ELSE due_at END", crowd/crowdDue)
		} else {
			copies["id"] = ""
			copies["due_at"] = ""
		}
		if err := copyRows(ctx, db, table, key, copies); err != nil {
			return err
		}
	}
	_, err = db.ExecContext(ctx, "INSERT INTO leases (id, agent_did, environment_id, generation, sandbox_id, created_at) "+
		"SELECT lease_id, agent_did, environment_id, generation, id, leased_at FROM sandboxes")
	return err
}

// copyRows copies the rows of the sandbox "first". expressions gives columns by the copy's number i; the database sets
// a column whose expression is empty.
func copyRows(ctx context.Context, db *sql.DB, table, key string, expressions map[string]string) error {
	found, err := db.QueryContext(ctx, "SELECT name FROM pragma_table_info(?)", table) // without generated columns
	if err != nil {
		return err
	}
	defer func() { _ = found.Close() }() // Err reports its error
	var columns, values []string
	for found.Next() {
		var name string
		if err := found.Scan(&name); err != nil {
			return err
		}
		value, special := expressions[name]
		if special && value == "" {
			continue
		}
		if !special {
			value = name
		}
		columns, values = append(columns, name), append(values, value)
	}
	if err := found.Err(); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (%s) WITH RECURSIVE n(i) AS (SELECT 1 "+
		"UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT %s FROM n, %s WHERE %s = 'first'",
		table, strings.Join(columns, ", "), crowd-1, strings.Join(values, ", "), table, key))
	return err
}

// findDue returns the CPU time of finding due work, with the query of the loop.
func findDue(ctx context.Context, path string) (time.Duration, error) {
	store, err := ledger.Open(ctx, "sqlite://"+path, ledger.Options{})
	if err != nil {
		return 0, err
	}
	before, err := cpuTime()
	if err != nil {
		return 0, errors.Join(err, store.Close())
	}
	err = store.Read(ctx, func(tx *ledger.Tx) error {
		ids, err := tx.DueSandboxes("engine", crowdDue)
		if err == nil && len(ids) != crowdDue {
			err = fmt.Errorf("%d leases are due, not %d", len(ids), crowdDue)
		}
		_, err2 := tx.NextDue("engine")
		return errors.Join(err, err2)
	})
	after, err2 := cpuTime()
	return after - before, errors.Join(err, err2, store.Close())
}

// cpuTime returns the CPU time of this process.
func cpuTime() (time.Duration, error) {
	var used syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), err
}
