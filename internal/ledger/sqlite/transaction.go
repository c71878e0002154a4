package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"gorm.io/gorm"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// pool makes GORM's transactions on connections of its own. Those of database/sql start a goroutine for each
// transaction and for each query in it, which takes as long as a query.
//
// pool and transaction embed an interface, and not the pointer in it: the race detector of Go 1.26 never sees the end
// of a method that is promoted from a pointer. Each of these calls would make later ones slower.
type pool struct {
	gorm.ConnPool // db
	db            *sql.DB
	begin         string // the statement that begins a transaction
}

var (
	_ gorm.ConnPoolBeginner = pool{}
	_ gorm.GetDBConnector   = pool{}
	_ gorm.ConnPool         = (*transaction)(nil)
	_ gorm.TxCommitter      = (*transaction)(nil)
)

// GetDBConn implements gorm.GetDBConnector.
func (p pool) GetDBConn() (*sql.DB, error) { return p.db, nil }

// BeginTx implements gorm.ConnPoolBeginner. SQLite has no options. The end of ctx does not interrupt the statement: the
// driver could report a failure although the transaction has begun.
func (p pool) BeginTx(ctx context.Context, _ *sql.TxOptions) (gorm.ConnPool, error) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), p.begin); err != nil {
		if failed, ok := errors.AsType[*sqlite.Error](err); ok && failed.Code() == sqlite3.SQLITE_ERROR {
			// An earlier transaction could not be ended, so the connection is closed.
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // it returns this error
		}
		return nil, errors.Join(err, release(conn))
	}
	return &transaction{ConnPool: conn, conn: conn}, nil
}

// release returns a connection to its pool, if it was not closed.
func release(conn *sql.Conn) error {
	if err := conn.Close(); !errors.Is(err, sql.ErrConnDone) {
		return err
	}
	return nil
}

// transaction has a connection until it ends.
type transaction struct {
	gorm.ConnPool // conn
	conn          *sql.Conn
	ended         bool
}

// Commit implements gorm.TxCommitter.
func (t *transaction) Commit() error {
	if t.ended {
		return sql.ErrTxDone
	}
	_, err := t.ExecContext(context.Background(), "COMMIT")
	if err != nil {
		return errors.Join(err, t.discard())
	}
	return t.end()
}

// Rollback implements gorm.TxCommitter.
func (t *transaction) Rollback() error {
	if t.ended {
		return sql.ErrTxDone
	}
	return t.discard()
}

// discard rolls back. After some errors, a full disk for example, SQLite has already done so, and the statement fails.
func (t *transaction) discard() error {
	_, _ = t.ExecContext(context.Background(), "ROLLBACK")
	return t.end()
}

func (t *transaction) end() error {
	t.ended = true
	return release(t.conn)
}
