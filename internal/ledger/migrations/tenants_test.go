package migrations_test

import (
	"database/sql"
	"encoding/json"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/tokens"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// dial opens a ledger's database.
func dial(t *testing.T, ledgerURL string) (goose.Dialect, *sql.DB) {
	t.Helper()
	u, err := url.Parse(ledgerURL)
	if err != nil {
		t.Fatal(err)
	}
	dialect, driver, dsn := goose.DialectPostgres, "pgx", ledgerURL
	if u.Scheme == "sqlite" {
		dialect, driver, dsn = goose.DialectSQLite3, "sqlite", u.Path
	}
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return dialect, pool
}

// older creates a ledger as programs before tenants did. It has a lease with a state that all tokens share, one with a
// state of its environment, a command with output, and a session with a recording.
func older(t *testing.T, ledgerURL string) {
	t.Helper()
	if path, isFile := strings.CutPrefix(ledgerURL, "sqlite://"); isFile { // SQLite would make it readable for others
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dialect, pool := dial(t, ledgerURL)
	if err := ledgertest.MigrateTo(t.Context(), dialect, pool, 2); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`INSERT INTO ledgers (one, id, min_reader, created_at) VALUES (1, 'abcdefghijklmnop', 2, 1)`,
		`INSERT INTO environments (id, owner, type, backend, instance, spec, status, epoch, opened_at, created_at, updated_at)
			VALUES ('catan-1', 'o', 'catan', 'docker', 'e', '{}', 'open', 0, 1, 1, 1)`,
		`INSERT INTO sandboxes (id, lease_id, generation, environment_id, environment_type, agent_did, owner, backend, instance, image, memory_mb, cpu_millis,
			pids_limit, disk_mb, network, env, sleep_mode, ttl, max_lifetime, sleep_after, expiry_conditions, settings, desired, phase, leased_at, last_activity,
			due_at, state_spec, state_key, state_role)
			VALUES ('s1', 'did:plc:ann::catan-1', 1, 'catan-1', 'catan', 'did:plc:ann', 'o', 'docker', 'e', 'i', 1, 1, 1, 1, 'none', '{}', 'pause', 1, 1, 1, '[]', '{}',
			'present', 'awake', 1, 1, 1, '{"scope":"agent"}', 'did:plc:ann', 'holder')`,
		`INSERT INTO saved_states (key, agent_did, environment_id, sandbox_id, generation, saved_at, object, sha256, bytes, unpacked_bytes, files, skipped)
			VALUES ('did:plc:ann', 'did:plc:ann', 'catan-1', 's1', 1, 1, 'o1', 'x', 1, 1, 1, 0),
			('did:plc:ann::catan-1', 'did:plc:ann', 'catan-1', 's1', 1, 1, 'o2', 'x', 1, 1, 1, 0)`,
		`INSERT INTO execs (id, named, sandbox_id, lease_id, generation, sequence, command, env_names, cwd, run_as, timeout, detached, state, started_at, finished_at, stdout_kept, stderr_kept)
			VALUES ('x1', 0, 's1', 'did:plc:ann::catan-1', 1, 1, '[]', '[]', '', '', 1, 0, 'finished', 1, 2, 30, 12),
			('x2', 0, 's1', 'did:plc:ann::catan-1', 1, 2, '[]', '[]', '', '', 1, 0, 'finished', 1, 3, 0, 0)`,
		`INSERT INTO sessions (sandbox_id, id, lease_id, generation, asked, env_names, cwd, run_as, state, created_at, recorded)
			VALUES ('s1', 'shell', 'did:plc:ann::catan-1', 1, '{}', '[]', '', '', 'open', 5, 100)`,
		`INSERT INTO tokens (id, name, hash, scopes, environments, created_at, created_by) VALUES ('tok_1', 'b', '\x01', '["admin"]', '["b*"]', 1, 'o')`,
	} {
		if _, err := pool.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func TestALedgerFromBeforeTenantsLosesNothingAndSaysWhatStays(t *testing.T) {
	t.Parallel()
	for name, newURL := range ledgertest.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newURL(t)
			older(t, url)
			for range 2 { // the second opening logs nothing
				store := ledgertest.Open(t, url, ledger.Options{})
				err := store.Read(t.Context(), func(tx *ledger.Tx) error {
					wantUpgraded(t, tx)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func wantUpgraded(t *testing.T, tx *ledger.Tx) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	states, err := bucketobjects.In(tx).List(sandbox.SnapshotFilter{})
	must(err)
	if len(states) != 2 || states[0].Key != "did:plc:ann" || states[1].Key != "did:plc:ann::catan-1" {
		t.Errorf("the saved states are %+v", states)
	}
	s, err := tx.Sandbox("s1")
	must(err)
	if s.Snapshot.Key != "did:plc:ann" || s.Snapshot.Role != sandbox.RoleHolder || len(s.Snapshot.Namespace) != 0 ||
		s.Snapshot.Source != "" {
		t.Errorf("a living sandbox keeps %+v", s.Snapshot)
	}
	events, err := tx.Events(sandbox.EventFilter{})
	must(err)
	var told sandbox.SnapshotsKept
	if len(events) != 1 || events[0].Type != sandbox.EventSnapshotsKept || events[0].At.Before(time.Now().Add(-time.Hour)) ||
		events[0].At.After(time.Now()) || json.Unmarshal(events[0].Data, &told) != nil || told.Snapshots != 1 ||
		!slices.Equal(told.Keys, []string{"did:plc:ann"}) {
		t.Errorf("the events are %+v", events)
	}
	for scope, id := range map[ledger.KeptScope]string{
		ledger.KeptOfLease:       "did:plc:ann::catan-1",
		ledger.KeptOfEnvironment: "catan-1",
		ledger.KeptOfLedger:      "",
	} {
		sum, err := execs.In(tx).KeptSum(scope, id)
		must(err)
		if sum.Bytes != 142 || sum.Records != 2 {
			t.Errorf("the %s %s keeps %d bytes in %d records, want 142 in 2", sum.Scope, sum.ID, sum.Bytes, sum.Records)
		}
	}
	all, err := tokens.In(tx).All()
	must(err)
	if len(all) != 1 || !all[0].Ceiling.IsZero() {
		t.Errorf("the tokens are %+v", all)
	}
}

func TestAnInterruptedUpgradeStillSaysWhatStays(t *testing.T) {
	t.Parallel()
	for name, newURL := range ledgertest.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, schema := range []int64{3, 8, migrations.Newest} {
				url := newURL(t)
				older(t, url)
				dialect, pool := dial(t, url)
				if err := ledgertest.MigrateTo(t.Context(), dialect, pool, schema); err != nil {
					t.Fatal(err)
				}
				store := ledgertest.Open(t, url, ledger.Options{})
				err := store.Read(t.Context(), func(tx *ledger.Tx) error {
					wantUpgraded(t, tx)
					return nil
				})
				if err != nil || t.Failed() {
					t.Fatalf("the upgrade was interrupted at schema %d: %v", schema, err)
				}
			}
		})
	}
}

// A program without namespaces would share states between tokens again.
func TestAProgramFromBeforeTenantsIsRefused(t *testing.T) {
	t.Parallel()
	url := ledgertest.SQLiteURL(t)
	older(t, url)
	ledgertest.Open(t, url, ledger.Options{})
	if rows := query(t,
		"sqlite", strings.TrimPrefix(url, "sqlite://"))("SELECT 1 FROM ledgers WHERE min_reader >= 3"); len(rows) != 1 {
		t.Error("a program of schema 2 may still write to the ledger")
	}
}
