package ledger

import (
	"errors"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgres"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// rawTx is what a store knows of a transaction. The package above embeds it in its own type, and works on it with this
// package's functions.
type rawTx struct {
	db *gorm.DB
	// Now is the transaction's time: everything in it happens at once.
	Now micro.Time
	// actor is the caller on whose behalf the transaction works.
	actor sandbox.Actor
	// changes are nil in a reading transaction.
	changes changes
	// keepsSchedule is set by KeepSchedule.
	keepsSchedule bool
	// session is the transaction of the package above.
	session rawSession
}

// Handle is a transaction: a type that embeds Tx.
type Handle interface{ core() *rawTx }

// rawSession is a transaction of the package above, which knows what the tables hold.
type rawSession interface {
	Handle
	// Pending returns the number of rows that wait for the commit, Drop drops all but the first n of them, and Flush
	// stores them.
	Pending() int
	Drop(n int)
	Flush() error
	// StepClock moves the times of live rows after a step of the clock.
	StepClock(step micro.Span) error
	// Restored turns a backup of a time into a ledger. Upgraded adapts the rows of an older schema, after its migration.
	Restored(backedUpAt micro.Time) error
	Upgraded(schema int64, o rawOptions) error
}

// Work is what a caller does in a transaction.
type Work interface{ Do(s rawSession) error }

// workFunc is the work of this package itself.
type workFunc func(s rawSession) error

// Do implements Work.
func (fn workFunc) Do(s rawSession) error { return fn(s) }

// newSession begins a transaction of the package above.
func newSession(begin func(tx rawTx) rawSession, tx rawTx) rawSession {
	s := begin(tx)
	s.core().session = s
	return s
}

func (tx *rawTx) core() *rawTx { return tx }

// KeepSchedule declares that a Write makes no sandbox due earlier, so that the commit need not wake the
// workers on due sandboxes. Commits of commands are by far the most frequent, and keep the schedule.
func (tx *rawTx) KeepSchedule() { tx.keepsSchedule = true }

// ActFor sets the actor for the rest of the transaction. Initially it is the caller; a transaction may serve
// several.
func (tx *rawTx) ActFor(a sandbox.Actor) { tx.actor = a }

// actorOf returns the actor of a transaction.
func actorOf(tx Handle) sandbox.Actor { return tx.core().actor }

// dbOf returns GORM's form of a transaction.
func dbOf(tx Handle) *gorm.DB { return tx.core().db }

// first loads one row by a condition, nil if there is none.
func first[T any](tx Handle, query string, args ...any) (*T, error) {
	row := new(T)
	found := tx.core().db.Where(query, args...).Limit(1).Find(row)
	if found.Error != nil {
		return nil, unavailable("reading the ledger", found.Error)
	}
	if found.RowsAffected == 0 {
		return nil, nil
	}
	return row, know(tx, row)
}

// find loads rows by a prepared query.
func find[T any](q *gorm.DB) ([]T, error) {
	var rows []T
	if err := q.Find(&rows).Error; err != nil {
		return nil, unavailable("reading the ledger", err)
	}
	return rows, nil
}

// create stores a new row. Errors: Conflict if its key exists.
func create(tx Handle, row any) error {
	return unavailable("writing to the ledger", tx.core().db.Create(row).Error)
}

// unavailable gives a database error a code. errors.Is still finds the cause.
func unavailable(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return sandbox.Errorf(sandbox.Conflict, "%s: the row exists already: %w", what, err)
	}
	if postgres.IsUnstorableText(err) {
		return sandbox.Errorf(sandbox.Invalid,
			"%s: a text contains a NUL character or is not UTF-8, which PostgreSQL cannot store: %w", what, err)
	}
	return sandbox.Errorf(sandbox.Unavailable,
		"%s: %w (retry; if it persists, check the database, its disk and its permissions)", what, err)
}

// rowCount returns the number of changed rows.
func rowCount(what string, res *gorm.DB) (int64, error) {
	return res.RowsAffected, unavailable(what, res.Error)
}

func pageSize(limit int) int {
	if limit <= 0 || limit > sandbox.MaxPage {
		return sandbox.MaxPage
	}
	return limit
}

// maxVariables limits the values of one IN: a statement has 32,766 variables on SQLite, and 65,535 on
// PostgreSQL.
const maxVariables = 500
