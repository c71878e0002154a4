package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"testing"
	"time"

	"modernc.org/sqlite"
)

// openKeeping returns one connection that caches statements, with a table of three rows.
func openKeeping(t *testing.T) *sql.Conn {
	t.Helper()
	open, err := sqlite.NewConnector("file:" + t.TempDir() + "/kept.db")
	if err != nil {
		t.Fatal(err)
	}
	pool := sql.OpenDB(keepingConnector{open})
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, q := range []string{"CREATE TABLE players (id INTEGER PRIMARY KEY, name TEXT NOT NULL)",
		"INSERT INTO players VALUES (1, 'a'), (2, 'b'), (3, 'c')"} {
		if _, err := conn.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

const playersQuery = "SELECT id FROM players WHERE id > ? ORDER BY id"

// read returns the results of playersQuery, and calls each for each row.
func read(t *testing.T, conn *sql.Conn, after int, each func()) (ids []int, err error) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), playersQuery, after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
		each()
	}
	return ids, rows.Err()
}

func TestAKeptStatementThatIsBeingReadCanBeRunBeside(t *testing.T) {
	t.Parallel()
	conn := openKeeping(t)
	var inner [][]int
	outer, err := read(t, conn, 0, func() {
		ids, err := read(t, conn, 1, func() {})
		if err != nil {
			t.Error(err)
		}
		inner = append(inner, ids)
	})
	if got := fmt.Sprint(outer, inner); err != nil || got != "[1 2 3] [[2 3] [2 3] [2 3]]" {
		t.Errorf("a query within the same query found %s (%v)", got, err)
	}
}

func TestAKeptStatementIsNotSpoiledByFailuresAndANewSchema(t *testing.T) {
	t.Parallel()
	conn := openKeeping(t)
	const insert = "INSERT INTO players (id, name) VALUES (?, ?)"
	for i, step := range []struct {
		query string
		args  []any
		fails bool
	}{
		{query: insert, args: []any{4, "d"}},
		{query: insert, args: []any{4, "d"}, fails: true}, // the key exists
		{query: insert, args: []any{5, nil}, fails: true}, // the name is required
		{query: insert, args: []any{5, "e"}},
		{query: "ALTER TABLE players ADD COLUMN score INTEGER NOT NULL DEFAULT 7"},
		{query: insert, args: []any{6, "f"}},
		{query: "DELETE FROM players WHERE score <> ?", args: []any{7}},
	} {
		if _, err := conn.ExecContext(t.Context(), step.query, step.args...); (err != nil) != step.fails {
			t.Errorf("step %d, %s: %v", i, step.query, err)
		}
	}
	if ids, err := read(t, conn, 0, func() {}); err != nil || fmt.Sprint(ids) != "[1 2 3 4 5 6]" {
		t.Errorf("afterwards there are %v (%v)", ids, err)
	}
}

func TestAKeptStatementIsNotSpoiledByAnInterruption(t *testing.T) {
	t.Parallel()
	conn := openKeeping(t)
	count := func(ctx context.Context, to int) (n int, err error) {
		err = conn.QueryRowContext(ctx,
			"WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?) SELECT max(n) FROM c", to).Scan(&n)
		return n, err
	}
	for range 3 {
		brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		n, err := count(brief, math.MaxInt)
		cancel()
		if err == nil {
			t.Fatalf("counting to the largest number took 20 ms and found %d", n)
		}
		if n, err := count(t.Context(), 5); n != 5 || err != nil {
			t.Errorf("counting to 5 found %d (%v)", n, err)
		}
	}
}

func TestFewerStatementsAreKeptThanAreRun(t *testing.T) {
	t.Parallel()
	conn := openKeeping(t)
	for round := range 2 {
		for i := range 2 * keptStatements {
			var got int
			if err := conn.QueryRowContext(t.Context(), fmt.Sprintf("SELECT id + %d FROM players WHERE id = ?", i), 1).
				Scan(&got); err != nil || got != i+1 {
				t.Fatalf("round %d: statement %d returns %d (%v)", round, i, got, err)
			}
		}
	}
	err := conn.Raw(func(c any) error {
		if kept := c.(*keepingConn).kept.Len(); kept != keptStatements {
			return fmt.Errorf("%d statements are kept, want %d", kept, keptStatements)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAPragmaTakesEffectEachTime(t *testing.T) {
	t.Parallel()
	conn := openKeeping(t)
	for _, want := range []int{1, 0, 1, 0} {
		if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA foreign_keys(%d)", want)); err != nil {
			t.Fatal(err)
		}
		var got int
		if err := conn.QueryRowContext(t.Context(), "PRAGMA foreign_keys").Scan(&got); err != nil || got != want {
			t.Errorf("foreign_keys is %d after it was set to %d (%v)", got, want, err)
		}
	}
}
