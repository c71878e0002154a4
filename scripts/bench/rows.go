package main

import (
	"context"
	"database/sql"
	"strings"

	_ "modernc.org/sqlite"
)

// rows stores messages with the minimum for a durable receipt: one row of three columns per message, and one commit for
// all waiting messages. It shows the costs of a receipt that no reconciler can avoid.
type rows struct {
	db       *sql.DB
	arrivals chan arrival
}

// arrival is a message that waits for its commit.
type arrival struct {
	id   string
	body []byte
	done chan error
}

// rowsOfABatch limits the rows of a commit.
const rowsOfABatch = 256

// openRows creates a database that syncs each commit to disk, as a ledger does.
func openRows(ctx context.Context, file string) (*rows, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx,
		"CREATE TABLE messages (id TEXT NOT NULL PRIMARY KEY, size INTEGER NOT NULL, body BLOB NOT NULL)"); err != nil {
		return nil, err
	}
	return &rows{db: db, arrivals: make(chan arrival)}, nil
}

// store returns once a message is on disk.
func (s *rows) store(id string, body []byte) error {
	a := arrival{id, body, make(chan error, 1)}
	s.arrivals <- a
	return <-a.done
}

// run commits messages until ctx ends.
func (s *rows) run(ctx context.Context) {
	inserts := make(map[int]*sql.Stmt) // by number of rows
	for {
		var batch []arrival
		select {
		case <-ctx.Done():
			return
		case a := <-s.arrivals:
			batch = s.waiting(a)
		}
		err := s.commit(ctx, inserts, batch)
		for _, a := range batch {
			a.done <- err
		}
	}
}

// waiting adds the messages that already wait.
func (s *rows) waiting(first arrival) []arrival {
	batch := []arrival{first}
	for len(batch) < rowsOfABatch {
		select {
		case a := <-s.arrivals:
			batch = append(batch, a)
		default:
			return batch
		}
	}
	return batch
}

func (s *rows) commit(ctx context.Context, inserts map[int]*sql.Stmt, batch []arrival) (err error) {
	insert := inserts[len(batch)]
	if insert == nil {
		values := strings.Repeat(", (?, ?, ?)", len(batch))[2:]
		if insert, err = s.db.PrepareContext(ctx, "INSERT INTO messages VALUES "+values+" ON CONFLICT DO NOTHING"); err != nil { //nolint:sqlclosecheck // with the process
			return err
		}
		inserts[len(batch)] = insert
	}
	args := make([]any, 0, 3*len(batch))
	for _, a := range batch {
		args = append(args, a.id, len(a.body), a.body)
	}
	_, err = insert.ExecContext(ctx, args...)
	return err
}
