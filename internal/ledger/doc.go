// Package ledger keeps environments, leases, sandboxes, events, usage periods, webhook
// deliveries and drift findings in a GORM database. It stores and finds; the rules of
// leases are in internal/leasing.
//
// Every change goes through Store.Write. Writers that come at once are committed as one
// transaction with one sync to disk, each in a savepoint of its own: one writer's failure
// undoes only its own changes, and no caller gets a success before the disk has it.
//
//	Write(fn) ─┐
//	Write(fn) ─┼─> writer goroutine: BEGIN IMMEDIATE; (SAVEPOINT; fn; RELEASE)…; COMMIT ─> all answered
//	Write(fn) ─┘
//
// Reads run on connections of their own, each Read in one snapshot.
//
// On PostgreSQL, which several reconcilers share, a commit begins with the function begin_commit in
// place of BEGIN IMMEDIATE. It takes a lock of the whole ledger and tells the database's clock and
// the oldest program that may write. So commits are one after the other there as well: none waits
// for another that waits for it, moments and event ids are in the order of commits, and who follows
// events by id never skips one that commits late. A process that freezes with the lock is cut off
// by the server after 5 s. Commits are announced by NOTIFY, once for all that are made together.
package ledger
