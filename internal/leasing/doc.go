// Package leasing is the lease service: it puts the parts together, and answers requests about leases.
// A reconciler runs it with a loop (reconciler/loop); the Terraform provider can run it without one.
//
// Package lifecycle decides and takes the steps of sandboxes; its documentation describes the protocol. Packages that
// hook into it work inside of sandboxes, and around them: commands, sessions, processes, files, snapshots, secrets,
// warmpool and others. Package environments creates what sandboxes share. Service embeds the core, and the services
// that callers use.
//
// # Batches
//
// A batch of leases begins in one transaction, and package lifecycle takes each of its steps (batch.go). The rows of an
// all-or-none batch carry its id. No process owns it; the rows decide:
//
//	all were ready once      the batch is complete: nothing reads the id any more
//	a first step fails       the transaction that settles it ends every live lease of the batch (batchend.go), even
//	                         if the step could be retried
//	the pool's sandbox is    the same transaction begins the lease's next generation, in the batch
//	lost
//	its process dies         others take the steps, and settle them like all others
//
// A request that finds a lease in another batch waits for it. If that batch ends first, an all-or-none batch fails with
// Unavailable, and other requests begin the next generation.
//
// # What is kept
//
// A row that is gone stays for the cleanup ttl. A purge (internal/retention) then removes it with its events and usage
// periods, and leaves a short record: its owner, generation, last sequence, end and cost. So generations keep counting,
// ids are never reused, and readers see that it was purged. Costs stay, by day.
//
// # What is not in the ledger
//
// A resync lists the objects with the ledger's label on an instance (internal/orphans). An orphan (a sandbox, or a
// volume, helper or image of one, that no row needs) is recorded as a finding the first time and destroyed the second
// time, unless it is younger than the creation grace. A listing that fails does not count.
package leasing
