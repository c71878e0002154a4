// Package leasing is the lease service: it decides when a sandbox is made, put to sleep, woken
// and destroyed, and keeps the ledger true about it. A reconciler runs it with a loop
// (reconciler/loop); the Terraform provider can run it without one.
//
// # The protocol
//
// Every generation of a lease is one row of sandboxes. A row says what is wanted (desired), what
// was last seen (phase), and when to look again (due_at). Whatever happens (a request, a
// condition, time, a backend's event) only changes rows; one function, decide, compares a row
// with the time and names the next action; one function, Work, takes it:
//
//	claim   in a transaction: nobody else has the row; decide; put a claim on it
//	act     one idempotent call to the backend, outside of any transaction, with a deadline
//	settle  in a transaction: only if the claim still holds: record the outcome, decide again
//
// # States
//
//	desired   phase     lease status   next action
//	present   pending   pending        spawn
//	present   awake     active         sleep when idle
//	present   asleep    active         wake when used
//	gone      pending   expired        kill
//	gone      awake     expired        kill
//	gone      asleep    expired        kill
//	gone      gone      destroyed      none, for ever
//
//	                 spawn               sleep
//	       pending ────────> awake <──────────────> asleep
//	          │                │         wake          │
//	          └───────┬────────┴───────────────────────┘
//	                  │  ttl, max_lifetime, condition, release, environment,
//	                  │  failed, crashed, vanished: desired = gone
//	                  v           kill confirmed
//	               expired ────────────────────> destroyed
//
// Status is derived and not stored. desired never goes back to present, and phase never leaves
// gone: the next life is the next generation, on its own row.
//
// # Who may write what
//
// Anybody may end a lease (desired, ended_*) and record activity, in a transaction of their own.
// Only the holder of the row's claim may change phase because of an action. Observations (Look)
// change phase only while nobody holds a claim and no event was added since the row was read.
//
// # Failure handling
//
//	the process dies          its claims are not extended and run out after 8 s; the next worker
//	                          takes the same idempotent action again
//	the backend is away       nothing changes; attempts grow with backoff up to 30 s; all are
//	                          tried at once when the connection is back
//	another instance answers  the same: Unavailable, and never gone or vanished
//	the answer was lost       the same: the action is taken again
//	spawn failed for good     the lease ends by failed, and what is left of it is killed
//	a late answer             its claim does not hold any more: it is thrown away
//	the caller goes away      the step goes on to its end and is recorded
package leasing
