// Package storage stores a ledger in SQLite or PostgreSQL: it commits, reads, watches and checks. What the tables hold
// is the subject of the package above, which embeds Tx in its own transactions.
//
// Every change goes through Store.Write. Concurrent writers are committed in one transaction with one sync to
// disk, each in its own savepoint: a failed writer rolls back only its own changes, and no caller gets a
// success before the data is on disk.
//
//	Write(work) ─┐
//	Write(work) ─┼─> writer goroutine: BEGIN IMMEDIATE; (SAVEPOINT; work; RELEASE)…; COMMIT ─> all answered
//	Write(work) ─┘
//
// Reads use separate connections, each Read in one snapshot.
//
// On PostgreSQL, which several reconcilers share, a commit starts with the function begin_commit instead of
// BEGIN IMMEDIATE. It takes a lock on the whole ledger and returns the database's clock and the oldest
// program that may write. So commits are serial there too: there are no deadlocks, times and event ids are in
// commit order, and a reader that follows events by id never skips a late commit. The server cuts off a
// process that freezes with the lock after 5 s. NOTIFY announces commits, once for all that are made
// together.
package storage
