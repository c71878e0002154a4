// Package ledger keeps environments, leases, sandboxes, events, usage periods, webhook
// deliveries and drift findings in a GORM database. It stores and finds; the rules of
// leases are in internal/leasing.
//
// Every change goes through Store.Write. Writers that come at once are committed as one
// transaction with one sync to disk, each in a savepoint of its own: one writer's failure
// undoes only its own changes, and nobody is told of success before the disk has it.
//
//	Write(fn) ─┐
//	Write(fn) ─┼─> writer goroutine: BEGIN IMMEDIATE; (SAVEPOINT; fn; RELEASE)…; COMMIT ─> all answered
//	Write(fn) ─┘
//
// Reads run on connections of their own, each Read in one snapshot.
package ledger
