package storage

import (
	"errors"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgres"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Tx is the part of a transaction that a store knows. The package above embeds it in its own type, and works on it with
// this package's functions.
type Tx struct {
	db *gorm.DB
	// Now is the transaction's time. Everything in it has this time.
	Now micro.Time
	// actor is the caller on whose behalf the transaction works.
	actor sandbox.Actor
	// changes are nil in a reading transaction.
	changes changes
	// keepsSchedule is set by KeepSchedule.
	keepsSchedule bool
	// session is the transaction of the package above.
	session Session
}

// Handle is a transaction: a type that embeds Tx.
type Handle interface{ core() *Tx }

// Session is a transaction of the package above, which knows what the tables hold.
type Session interface {
	Handle
	// Pending returns the number of rows that wait for the commit, Drop drops all but the first n of them, and Flush
	// stores them.
	Pending() int
	Drop(n int)
	Flush() error
	// StepClock moves the times of live rows after a step of the clock.
	StepClock(step micro.Span) error
	// Restored turns a backup of a given time into a ledger.
	Restored(backedUpAt micro.Time) error
}

// Work is what a caller does in a transaction.
type Work interface{ Do(s Session) error }

// workFunc is the work of this package itself.
type workFunc func(s Session) error

// Do implements Work.
func (fn workFunc) Do(s Session) error { return fn(s) }

// newSession begins a transaction of the package above.
func newSession(begin func(tx Tx) Session, tx Tx) Session {
	s := begin(tx)
	s.core().session = s
	return s
}

func (tx *Tx) core() *Tx { return tx }

// KeepSchedule declares that a Write makes no sandbox due earlier, so that the commit need not wake the
// workers on due sandboxes. Commits of commands are by far the most frequent, and keep the schedule.
func (tx *Tx) KeepSchedule() { tx.keepsSchedule = true }

// ActFor sets the actor for the rest of the transaction. Initially it is the caller; a transaction may serve
// several.
func (tx *Tx) ActFor(a sandbox.Actor) { tx.actor = a }

// ActorOf returns the actor of a transaction.
func ActorOf(tx Handle) sandbox.Actor { return tx.core().actor }

// DB returns GORM's form of a transaction.
func DB(tx Handle) *gorm.DB { return tx.core().db }

// First loads one row by a condition, nil if there is none. Errors: Unavailable.
func First[T any](tx Handle, query string, args ...any) (*T, error) {
	row := new(T)
	found := tx.core().db.Where(query, args...).Limit(1).Find(row)
	if found.Error != nil {
		return nil, Error("reading the ledger", found.Error)
	}
	if found.RowsAffected == 0 {
		return nil, nil
	}
	return row, know(tx, row)
}

// Find loads rows by a prepared query. Errors: Unavailable.
func Find[T any](q *gorm.DB) ([]T, error) {
	var rows []T
	if err := q.Find(&rows).Error; err != nil {
		return nil, Error("reading the ledger", err)
	}
	return rows, nil
}

// Create stores a new row. Errors: Conflict if its key exists.
func Create(tx Handle, row any) error {
	return Error("writing to the ledger", tx.core().db.Create(row).Error)
}

// Error gives a database error a code: Conflict for a key that exists, Invalid for a text that cannot be stored,
// otherwise Unavailable. errors.Is still finds the cause. what names the failed operation. A nil error stays nil.
func Error(what string, err error) error {
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

// RowCount returns the number of rows that a statement changed. what names the operation in an error.
func RowCount(what string, res *gorm.DB) (int64, error) {
	return res.RowsAffected, Error(what, res.Error)
}

// PageSize returns the limit of a page: the given one if it is from 1 to sandbox.MaxPage, otherwise sandbox.MaxPage.
func PageSize(limit int) int {
	if limit <= 0 || limit > sandbox.MaxPage {
		return sandbox.MaxPage
	}
	return limit
}

// MaxVariables limits the values of one IN: a statement has 32,766 variables on SQLite, and 65,535 on
// PostgreSQL.
const MaxVariables = 500
