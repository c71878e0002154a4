// Package lifecycle is the core of the lease service. It decides the next step of a sandbox, only from its
// row and the time, and defines the points at which other packages take part. It knows nothing but the life
// of a sandbox.
//
// # Hooks
//
// Each other subject is a package of its own. It hooks in at the points that it needs. The core calls the
// hooks of a point in a fixed order:
//
//	point       called                                          transaction
//	Plan        to decide the next step                         any; it only looks at the row
//	Admit       before a step is claimed                        inside the one that claims
//	Claimed     once it is claimed                              inside the one that claims
//	Released    once it is over, or was not claimed after all   outside
//	Awaited     while a caller waits for a sandbox              inside one that reads
//	Act         to take a step that a hook proposes             outside
//	Initializes to know whether code runs before it is ready    any; it only looks at the row
//	HasBegun    to know whether that code has begun             inside one that reads
//	Prepare     before a sandbox is filled                      inside one that reads
//	Fill        once the sandbox runs, before it is used        outside
//	Settle      when the step is settled that has filled        inside the one that settles the step
//	Settled     when a step has succeeded                       inside the one that settles the step
//	StepFailed  when a step has failed                          inside the one that settles the step
//	Failed      when a sandbox could not be made                inside the one that settles the step
//	Finished    once the success of a step is recorded          outside
//	Stopped     when a sandbox was stopped                      inside the one that records that
//	Vanished    when a sandbox is no longer there               inside the one that records that
//	Differs     to know whether a look shows something new      any; it only looks at the row
//	Observed    when a look is recorded                         inside the one that records that
//	Started     when a sandbox was started, and not by a step   inside the one that records that
//	Ended       when a lease ends                               inside the one that ends it
//	Leaving     before a sandbox is removed                     outside
//	Extension   with each heartbeat                             outside; what it returns, inside
//
// # Uses
//
// A package that works in sandboxes holds one by Core.Hold, which wakes it and returns a Use. While the use lasts, the
// lease is active. Use.On names the backend, and Use.Leave ends the use, with what it has to record.
//
// # The protocol
//
// Every generation of a lease is one row of sandboxes. A row says what is wanted (desired), what
// was last seen (phase), and when to look again (due_at). Whatever happens (a request, a
// condition, time, a backend's event) only changes rows; one function, Hooks.Decide, compares a row
// with the time and names the next action; one function, Core.Work, takes it:
//
//	claim   in a transaction: no other caller has the row; decide; put a claim on it
//	act     one idempotent call to the backend, outside of any transaction, with a deadline
//	settle  in a transaction: only if the claim still holds: record the outcome, decide again
//
// To follow one step, read work.go (claim), decide.go, act.go (the actions; begin.go has those that make a sandbox) and
// settle.go.
//
// # States
//
//	desired   phase     lease status   next action
//	present   pending   pending        spawn; assign, when it was taken from a warm pool
//	present   awake     active         renew when its backend does not know of a use; sleep when idle;
//	                                   save when a checkpoint is due
//	present   asleep    active         wake when used; save when a checkpoint is due
//	gone      pending   expired        kill
//	gone      awake     expired        save if it holds a state, which freezes it; kill
//	gone      asleep    expired        save if it holds a state; kill
//	gone      asleep    expired        kept until: halt; save if it holds a state; none, until then
//	gone      gone      destroyed      none, for ever
//
// A row without a lease waits in a warm pool: it is spawned, put to sleep at once, and ends by the
// pool's ttl. An acquire gives such a row to its lease, which makes it pending until its backend
// has assigned it to the lease (assign, which ends in a wake).
//
//	          spawn               sleep
//	pending ────────> awake <──────────────> asleep
//	   │                │         wake          │
//	   └───────┬────────┴───────────────────────┘
//	           │  ttl, max_lifetime, condition, release, environment,
//	           │  failed, crashed, vanished: desired = gone
//	           v           kill confirmed
//	        expired ────────────────────> destroyed
//
// Status is derived and not stored. Where the sandbox stands for its readers (pending, ready, asleep,
// stopped, failed, deleting, deleted) is what its events tell, and is stored with each of them.
// desired never goes back to present, and phase never leaves gone: the next life is the next
// generation, on its own row.
//
// # Backends that keep time
//
// A backend may put a sandbox to rest, and end it, while no reconciler works on the ledger (renewal.go). What it
// has stopped by itself is asleep (stopped, by idle_ttl), no crash and no finding. The core tells the backend of uses
// that it does not see and of changed limits (renew). It does so before a use of a sandbox that may be at rest, too:
// the answer shows that, and the core wakes the sandbox.
//
// # Crashes
//
// A sandbox that stops under us is asleep (stopped, by crashed) and down since then; its next step is a
// wake, which starts it in place (crash.go). What it had under /workspace and /data is there, its
// processes are not. It is well again once it has run for 30 s, and its lease ends by crashed when it was
// not for 5 minutes: a restart of the engine, which stops all of them, ends no game. Time in which its
// instance is away does not count, and what is missing is vanished, never made again. One that slept is
// started by its next use; one of a pool is ended at once.
//
// # Post-mortem
//
// A sandbox whose lease ends by crashed is kept until kept_until (postmortem.go): it is stopped (halt), and its
// state is saved and let go. It stands as failed until its time is over. The event sandbox.delete_requested
// reports that. Nothing else of its lease waits for it: the next
// generation has another sandbox id, by which everything is named. Whatever ends leases of its kind (release of
// its generation, a condition, its environment's end) or the cleanup ttl ends its time. What cannot be stopped
// is not kept, and one that was started from outside is stopped again by the next look.
//
// # What each may write
//
// Only the backend instance that the row names is believed. Every request and
// every step names one generation, by its sandbox id: what comes late for one never changes the next.
//
// Any caller may end a lease (desired, ended_*) and record activity, in a transaction of its own.
// Only the holder of the row's claim may change phase because of an action. Observations (Look)
// change phase only while no claim is held and no event was added since the row was read.
//
// # Instances
//
// A backend instance is known by its id and, where clones share that, by the witness that the ledger left on it
// (witness.go). Each generation takes the next number in the transaction that makes it; the step that makes it usable
// leaves the number on the instance, beside the spawn or assign, and succeeds only with it. So an instance shows at
// least the number of every generation that was ever usable, and a ledger that is older than that begins no lease.
//
// Nothing is claimed, and nothing is begun, for an instance that this process does not reach: another replica may. An
// environment moves to another instance only when that is named.
//
// # Failure handling
//
//	the process dies          its claims are not extended and run out after 8 s; the next worker
//	                          takes the same idempotent action again. A process that starts does
//	                          not wait for that: it frees the claims of the dead (ledger.FreeClaims)
//	a backend hangs           its own work waits; other backends have goroutines and workers of
//	                          their own, and no lock or transaction is held across a call
//	a sandbox hangs           it is a finding, and its steps time out and are retried; the resync,
//	                          and the steps of others, go on
//	the backend is away       nothing changes; attempts grow with backoff up to 30 s; all are
//	                          tried at once when the connection is back
//	another instance answers  the same: Unavailable, and never gone or vanished. So does a clone of the instance,
//	                          or an older copy of it, until adopt accepts that
//	the ledger was restored   it is noticed by the witness: leases that live go on and end, none begins and nothing is
//	from a copy               swept until adopt; the next generations are above all that were usable
//	the answer was lost       the same: the action is taken again
//	a post-start command      the same as a spawn that failed for good; a lease of a pool's sandbox is not
//	fails                     tried with another one, where it would fail as well
//	spawn failed for good     the lease ends by failed, and what is left of it is killed
//	a late answer             its claim does not hold any more: it is thrown away
//	a renewal is not told     it is owed, and told before the next use; what its backend has ended meanwhile
//	                          starts again
//	a stop is seen late       usage ends when the backend recorded it (usage.go)
//	the engine says 500       its executor asks a few times; then it failed for good
//	a removal not recorded    usage ends when the backend says that the sandbox did, else when it was last seen
//	                          (usage.go)
//	the caller goes away      the step goes on to its end and is recorded
//	the clock is stepped      the next transaction moves all that the clock timed by as much
//	                          (internal/ledger): nothing ends early, nothing lives on
//	the ledger was emptied    what carries its label is reported and not destroyed
//	a checkpoint fails        the lease lives on and says so; it is tried again at the pace of checkpoints,
//	                          and where /data is too large once it has changed
//	the last save fails       the sandbox stays, frozen and paid for, and the next generation waits; it is
//	                          tried for retry_for, or discard's three times, and then given up (lost).
//	                          While the backend is away nothing is given up
//	a state cannot be read    for now: the lease stays pending. For good: it ends by failed. It never
//	                          begins without; an operator deletes the saved state to begin anew
//	the sandbox vanished      its last checkpoint stands
package lifecycle
