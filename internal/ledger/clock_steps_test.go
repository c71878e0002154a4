package ledger_test

import (
	"database/sql"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
)

// fixedTimes are the columns that do not move when the clock is stepped.
var fixedTimes = []string{
	// of the ledger and its clock
	"ledgers.created_at", "ledgers.detail_since", "ledgers.clock_seen_at", "ledgers.backed_up_at",
	"clocks.seen_at",
	// computed from other columns
	"sandboxes.wake_at", "sandboxes.expires_at",
	// dates set by a user or another system
	"tokens.expires_at", "logins.expires_at", "deliveries.occurred_at",
	// records of past events
	"environments.ended_at", "environments.created_at", "environments.updated_at", "environments.retired_at",
	"environments.unmade_since", "environment_secrets.updated_at", "price_books.added_at", "leases.created_at",
	"sandboxes.destroyed_at", "events.at", "deliveries.received_at", "usage_periods.rolled_at", "account_days.begun_at",
	"budget_thresholds.reached_at", "drift_findings.resolved_at", "retired_sandboxes.leased_at",
	"retired_sandboxes.ended_at", "retired_sandboxes.destroyed_at", "retired_sandboxes.retired_at",
	"saved_states.saved_at", "execs.finished_at", "execs.dropped_at", "sessions.created_at", "sessions.closed_at",
	"sessions.dropped_at", "session_events.at", "usage_samples.at", "tokens.created_at",
	"tokens.last_used_at", "tokens.revoked_at", "logins.created_at", "llm_calls.started_at", "llm_calls.ended_at",
}

// TestEveryTimeMovesWithTheClockOrIsKnownToStay: a time that does not move can stop work on a sandbox for the length of
// the step.
func TestEveryTimeMovesWithTheClockOrIsKnownToStay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := ledger.Open(t.Context(), "sqlite://"+path, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	known := append(ledger.SteppedTimes(), fixedTimes...)
	all := timeColumns(t, path)
	for _, column := range all {
		if !slices.Contains(known, column) {
			t.Errorf("%s is in no list: add it to steppedTimes if it is a time of something that lives, else to fixedTimes",
				column)
		}
	}
	for i, column := range known {
		if !slices.Contains(all, column) || slices.Contains(known[:i], column) {
			t.Errorf("%s is listed twice, or is not a time of the ledger", column)
		}
	}
}

// TestTimesWithinColumnsMoveWithTheClock: moveCompanions moves each time within the JSON of a companion's state.
func TestTimesWithinColumnsMoveWithTheClock(t *testing.T) {
	t.Parallel()
	var times []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[ledger.CompanionState]()) {
		if f.Type == reflect.TypeFor[time.Time]() {
			times = append(times, f.Name)
		}
	}
	if want := []string{"Since", "RestartAt", "CheckAt"}; !slices.Equal(times, want) {
		t.Errorf("a companion's state has the times %q, and moveCompanions moves %q", times, want)
	}
}

// timeColumns returns the columns of a ledger that are named like times, as table.column.
func timeColumns(t *testing.T, path string) (columns []string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	isTime := regexp.MustCompile(`(^|_)(at|until|since|owed|deadline|activity)$`)
	for _, table := range migrations.Tables {
		rows, err := db.QueryContext(t.Context(), "SELECT name FROM pragma_table_xinfo(?) WHERE type = 'INTEGER'", table)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }() // read to its end
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				t.Fatal(err)
			}
			if isTime.MatchString(name) {
				columns = append(columns, table+"."+name)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return columns
}
