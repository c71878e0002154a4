// Package leasing is the lease service: it puts the parts together, and answers requests about leases.
// A reconciler runs it with a loop (reconciler/loop); the Terraform provider can run it without one.
//
// Package lifecycle decides and takes the steps of sandboxes; its documentation describes the protocol. Packages that
// hook into it work inside of sandboxes, and around them: commands, sessions, processes, files, snapshots, secrets,
// warmpool and others. Package environments creates what sandboxes share. Service embeds the core, and those services
// of the packages that callers use.
//
// # Batches
//
// A batch of leases is begun in one transaction, and each of its steps is one of package lifecycle (batch.go). The rows
// of a batch that leases all or none carry its id. No process owns it; the rows decide:
//
//	all were ready once      the batch is complete: nothing reads the id any more
//	a first step fails       the transaction that settles it ends every lease of the batch that lives (batchend.go),
//	                         also where the step could be tried again
//	the pool's sandbox is    the same transaction begins the lease's next generation, in the batch
//	lost
//	its process dies         others take the steps, and settle them like all others
//
// A request that finds a lease in another batch waits for it. Where that batch ends first, a batch of all or none fails
// with Unavailable, and others begin the next generation.
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
