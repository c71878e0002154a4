package backupfile

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sqlite"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Info describes the contents of a backup.
type Info struct {
	File     string `json:"file"`
	LedgerID string `json:"ledger_id"`
	Schema   int64  `json:"schema"`
	// TakenAt is zero for a copy that was made by other means.
	TakenAt      time.Time `json:"taken_at,omitzero"`
	Bytes        int64     `json:"bytes"`
	Environments int64     `json:"environments"`
	Leases       int64     `json:"leases"`
	Living       int64     `json:"living_sandboxes"`
	Events       int64     `json:"events"`
	// Objects are the objects of the bucket that the backup names. Sealed has one text for each key under which secrets
	// are sealed.
	Objects []Object `json:"-"`
	Sealed  [][]byte `json:"-"`
}

// Object is an object of the bucket that a backup names: a snapshot, or large output of a command.
type Object struct {
	Object string
	Bytes  int64
	// SHA256 is the hexadecimal checksum of a snapshot, "" for output.
	SHA256 string
	// SnapshotOf is the key of a snapshot, "" for output. A lease cannot begin without its snapshot.
	SnapshotOf string
}

// Examine checks the whole file of a backup, and returns its contents. It changes nothing. Errors: Invalid for a file
// that is damaged or not a ledger; Conflict for a newer program's.
func Examine(ctx context.Context, file string) (c Info, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return c, sandbox.Errorf(sandbox.Invalid, "reading the backup: %w", err)
	}
	if info.Size() == 0 {
		return c, sandbox.Errorf(sandbox.Invalid, "the backup %s is empty: it was not finished", file)
	}
	db, err := sqlite.OpenFile(file,
		url.Values{"mode": {"ro"}, "_pragma": {"query_only(1)", "busy_timeout(" + sqlite.BusyTimeout + ")"}})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	c.File, c.Bytes = file, info.Size()
	if err := whole(ctx, db); err != nil {
		return c, sandbox.Errorf(sandbox.Invalid, "%s is damaged, or is not a backup of a ledger: %w", file, err)
	}
	if err := c.read(ctx, db); err != nil {
		return c, sandbox.Errorf(sandbox.Invalid, "%s is not a backup of a ledger: %w", file, err)
	}
	var oldest int64
	if err := scanOne(ctx, db, &oldest, "SELECT min_reader FROM ledgers"); err != nil || oldest > migrations.Newest {
		return c, sandbox.Errorf(sandbox.Conflict,
			"the backup needs a program of schema %d or newer, and this one knows schema %d: %w",
			oldest, migrations.Newest, errors.Join(err, errors.New("use the program that took it")))
	}
	return c, nil
}

// whole checks every page, index and reference.
func whole(ctx context.Context, db querier) error {
	found, err := texts(ctx, db, "SELECT integrity_check FROM pragma_integrity_check LIMIT 10")
	if err != nil {
		return err
	}
	if len(found) != 1 || found[0] != "ok" {
		return errors.New(strings.Join(found, "; "))
	}
	found, err = texts(ctx, db,
		`SELECT "table" || ' refers to a row of ' || parent || ' that is not there' FROM pragma_foreign_key_check LIMIT 10`)
	if err != nil || len(found) == 0 {
		return err
	}
	return errors.New(strings.Join(found, "; "))
}

func (c *Info) read(ctx context.Context, db *sql.DB) error {
	for query, into := range map[string]any{
		"SELECT id FROM ledgers": &c.LedgerID,
		"SELECT max(version_id) FROM goose_db_version WHERE is_applied":                &c.Schema,
		"SELECT count(*) FROM environments WHERE status <> 'destroyed'":                &c.Environments,
		"SELECT count(*) FROM leases":                                                  &c.Leases,
		"SELECT count(*) FROM sandboxes WHERE desired = 'present' AND phase <> 'gone'": &c.Living,
		"SELECT count(*) FROM events":                                                  &c.Events,
	} {
		if err := scanOne(ctx, db, into, query); err != nil {
			return err
		}
	}
	if c.LedgerID == "" {
		return errors.New("it has no identity")
	}
	if c.Schema < 2 {
		return nil
	}
	var taken micro.Time
	if err := scanOne(ctx, db, &taken, "SELECT backed_up_at FROM ledgers"); err != nil {
		return err
	}
	c.TakenAt = taken.Time()
	if err := c.readObjects(ctx, db); err != nil {
		return err
	}
	sealed, err := texts(ctx, db, `SELECT min(sealed) FROM (SELECT sealed FROM environment_secrets UNION ALL
		SELECT sealed_env FROM sessions WHERE length(sealed_env) > 0) GROUP BY substr(sealed, 1, 9)`)
	for _, s := range sealed {
		c.Sealed = append(c.Sealed, []byte(s))
	}
	return err
}

// readObjects reads the names of the objects, snapshots first: a replaced snapshot is soon deleted.
func (c *Info) readObjects(ctx context.Context, db querier) error {
	const saved = "SELECT object, bytes, sha256, key FROM saved_states ORDER BY object"
	err := each(ctx, db, saved, func(rows *sql.Rows) error {
		var o Object
		err := rows.Scan(&o.Object, &o.Bytes, &o.SHA256, &o.SnapshotOf)
		c.Objects = append(c.Objects, o)
		return err
	})
	if err != nil {
		return err
	}
	for _, stream := range []sandbox.ExecStream{sandbox.Stdout, sandbox.Stderr} {
		large := strings.ReplaceAll(`SELECT sandbox_id, id, holder, stream_kept FROM execs
			WHERE stream_kept > length(coalesce(stream_inline, '')) ORDER BY id`, "stream", string(stream))
		err := each(ctx, db, large, func(rows *sql.Rows) error {
			var x execs.Exec
			var bytes int64
			err := rows.Scan(&x.SandboxID, &x.ID, &x.Holder, &bytes)
			c.Objects = append(c.Objects, Object{Object: x.OutputObject(stream), Bytes: bytes})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls fn for each row of a query.
func each(ctx context.Context, db querier, query string, fn func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err reports all errors
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// texts reads the single column of a query.
func texts(ctx context.Context, db querier, query string) (all []string, err error) {
	err = each(ctx, db, query, func(rows *sql.Rows) error {
		var text string
		err := rows.Scan(&text)
		all = append(all, text)
		return err
	})
	return all, err
}
