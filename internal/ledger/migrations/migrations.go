// Package migrations is the schema of a ledger: the SQL that creates and upgrades its tables on SQLite and on
// PostgreSQL.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"path"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed sqlite postgres
var files embed.FS

// dirs are the directories of the migrations.
var dirs = map[goose.Dialect]string{
	goose.DialectSQLite3:  "sqlite",
	goose.DialectPostgres: "postgres",
}

// Newest is the newest migration of this program. A higher min_reader means that this program would break the ledger.
const Newest = 17

// MinReader is the oldest schema version whose program may write to a ledger with this schema.
const MinReader = 11

// Provider returns the migrations of a database, to apply through a pool of connections.
func Provider(dialect goose.Dialect, pool *sql.DB) (*goose.Provider, error) {
	entries, err := files.ReadDir(dirs[dialect])
	if err != nil {
		return nil, err
	}
	all := make([]*goose.Migration, 0, len(entries))
	for _, e := range entries {
		version, err := goose.NumericComponent(e.Name())
		if err != nil {
			return nil, err
		}
		apply := applyFile(path.Join(dirs[dialect], e.Name()))
		all = append(all, goose.NewGoMigration(version, &goose.GoFunc{RunTx: apply}, nil))
	}
	return goose.NewProvider(dialect, pool, nil, goose.WithGoMigrations(all...), goose.WithDisableGlobalRegistry(true))
}

// applyFile returns a function that executes all statements of a migration at once. Both drivers take several. goose's
// own parser of SQL files would need 4 MB of memory for each of them.
func applyFile(name string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		content, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		var statements strings.Builder
		for line := range strings.Lines(string(content)) {
			if !strings.HasPrefix(line, "--") { // comments would become part of SQLite's copy of the schema
				statements.WriteString(line)
			}
		}
		_, err = tx.ExecContext(ctx, statements.String())
		return err
	}
}

// Tables are all tables of a ledger. Each follows the tables that it references.
var Tables = []string{
	"ledgers", "witnesses", "clocks", "environments", "environment_secrets", "price_books", "leases", "sandboxes", "holds",
	"events", "deliveries", "usage_periods", "sandbox_costs", "cost_days", "cost_months", "account_days",
	"budget_thresholds", "drift_findings", "retired_sandboxes",
	"saved_states", "doomed_objects", "egress_cursors", "execs", "retired_execs", "sessions", "session_events",
	"kept_outputs", "kept_sums", "processes", "usage_samples", "tokens", "logins",
	"llm_calls", "llm_days", "llm_months", "llm_cursors",
}

// Numbered are the tables whose row numbers are never reused.
var Numbered = []string{"events", "usage_periods", "drift_findings"}
