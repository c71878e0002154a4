package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// keptStatements is the number of compiled statements that a connection caches: a few times as many as this
// package has.
const keptStatements = 512

// keepingConnector opens connections that cache compiled statements: SQLite takes longer to compile most of
// ours than to run them. database/sql only caches what its callers prepare, and those end with each
// transaction.
type keepingConnector struct{ driver.Connector }

// Connect implements driver.Connector.
func (k keepingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	open, err := k.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c, ok := open.(sqliteConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the SQLite driver's connection %T lacks a method", open), open.Close())
	}
	kept, err := simplelru.NewLRU(keptStatements, func(_ string, s *keptStatement) { s.forget() })
	if err != nil {
		return nil, errors.Join(err, open.Close())
	}
	return &keepingConn{sqliteConn: c, kept: kept}, nil
}

// sqliteConn, sqliteStmt and sqliteRows are what the driver's types can do.
type (
	sqliteConn interface {
		driver.Conn
		driver.ConnBeginTx
		driver.ConnPrepareContext
		driver.Pinger
		driver.SessionResetter
		driver.Validator
	}
	sqliteStmt interface {
		driver.Stmt
		driver.StmtExecContext
		driver.StmtQueryContext
	}
	sqliteRows interface {
		driver.Rows
		driver.RowsColumnTypeDatabaseTypeName
		driver.RowsColumnTypeScanType
	}
)

// keepingConn is a connection. Like every connection, it has one user at a time.
type keepingConn struct {
	sqliteConn
	kept *simplelru.LRU[string, *keptStatement]
}

// keptStatement is a compiled statement. While it is in use, another one with the same text is compiled.
type keptStatement struct {
	sqliteStmt
	query            string
	inUse, forgotten bool
}

// forget closes a statement that is no longer in use. The result of its work is already known.
func (s *keptStatement) forget() {
	s.forgotten = true
	if !s.inUse {
		_ = s.Close()
	}
}

// release ends the use of a statement. A failed one is not reused.
func (c *keepingConn) release(s *keptStatement, err error) {
	s.inUse = false
	switch {
	case s.forgotten:
		s.forget()
	case err != nil:
		c.kept.Remove(s.query)
	}
}

// statement returns the compiled form of a query, in use.
func (c *keepingConn) statement(ctx context.Context, query string) (*keptStatement, error) {
	known, isKept := c.kept.Get(query)
	if isKept && !known.inUse {
		known.inUse = true
		return known, nil
	}
	prepared, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	stmt, ok := prepared.(sqliteStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the SQLite driver's statement %T lacks a method", prepared), prepared.Close())
	}
	s := &keptStatement{sqliteStmt: stmt, query: query, inUse: true, forgotten: isKept || !isKeepable(query)}
	if !s.forgotten {
		c.kept.Add(query, s)
	}
	return s, nil
}

// isKeepable reports whether a statement does the same in each run. A PRAGMA may take effect when it is
// compiled.
func isKeepable(query string) bool {
	verb, _, _ := strings.Cut(query, " ")
	switch verb {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK":
		return true
	default:
		return false
	}
}

// ExecContext implements driver.ExecerContext.
func (c *keepingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	result, err := s.ExecContext(ctx, args)
	c.release(s, err)
	return result, err
}

// QueryContext implements driver.QueryerContext.
func (c *keepingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	found, err := s.QueryContext(ctx, args)
	if err != nil {
		c.release(s, err)
		return nil, err
	}
	rows, ok := found.(sqliteRows)
	if !ok {
		err := errors.Join(fmt.Errorf("the SQLite driver's rows %T lack a method", found), found.Close())
		c.release(s, err)
		return nil, err
	}
	return &keptRows{sqliteRows: rows, conn: c, statement: s}, nil
}

// Close implements driver.Conn.
func (c *keepingConn) Close() error {
	c.kept.Purge()
	return c.sqliteConn.Close()
}

// keptRows are the rows of a cached statement, which is in use until they are closed.
type keptRows struct {
	sqliteRows
	conn      *keepingConn
	statement *keptStatement
}

// Close implements driver.Rows. It fails if reading failed.
func (r *keptRows) Close() error {
	err := r.sqliteRows.Close()
	r.conn.release(r.statement, err)
	return err
}
