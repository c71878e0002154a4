// Package ledger keeps environments, leases, sandboxes and their events. It finds and changes rows; the rules of leases
// are in internal/lifecycle. Package storage stores them, and packages beside it keep the rows of other subjects in the
// same transactions.
package ledger
