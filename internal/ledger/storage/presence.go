package storage

import "context"

// An open store proves that its process lives: on SQLite by a lock on a file next to the ledger, on
// PostgreSQL by an advisory lock of the session that listens for commits. Any end of the process releases the
// lock. On SQLite nothing else does. A PostgreSQL session may also break while the process lives; the process
// then continues to extend its claims.

// Process names this opening of the ledger, "" if nothing proves that it lives. Its claims start with it.
func (s *Store) Process() string { return s.process }

// Ended returns which of the given processes have died, and possibly others. Call forget once nothing of theirs is
// left. Errors: Unavailable.
func (s *Store) Ended(ctx context.Context, processes []string) (dead []string, forget func(), err error) {
	return s.db.ended(ctx, processes)
}
