// Package lifecycle is the core of the lease service. It decides the next step of a sandbox, only from its
// row and the time, and defines the points at which other packages take part. It knows only the life of a sandbox.
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
// A package that works in sandboxes holds one by Core.BeginUse, which wakes it and returns a Use. While the use lasts,
// the lease is active. Use.On returns the backend, and Use.Leave ends the use and records its result.
//
// # The protocol
//
// Every generation of a lease is one row of sandboxes. A row says what is wanted (desired), what was last seen (phase),
// and when to look again (due_at). A request, a condition, time or a backend's event only changes rows. Hooks.Decide
// compares a row with the time and names the next action. Core.Work carries it out:
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
//	present   awake     active         renew when its backend has not seen a use; sleep when idle;
//	                                   save when a checkpoint is due
//	present   asleep    active         wake when used; save when a checkpoint is due
//	gone      pending   expired        kill
//	gone      awake     expired        freeze if a snapshot is pending; kill
//	gone      asleep    expired        save if a snapshot is pending; kill
//	gone      asleep    expired        kept until: halt; save if a snapshot is pending; none, until then
//	gone      gone      destroyed      none, forever
//
// A row without a lease waits in a warm pool: it is spawned, put to sleep immediately, and ends by the pool's ttl. An
// acquire gives such a row to its lease. Then the row is pending until the backend has assigned the sandbox to the
// lease (assign, which ends in a wake).
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
// The lease status is derived and not stored. The sandbox state that readers see (pending, ready, asleep, stopped,
// failed, deleting, deleted) follows from its events and is stored with each of them. desired never goes back to
// present, and phase never leaves gone: the next generation has its own row.
//
// # Backends that keep time
//
// A backend may put a sandbox to sleep, and end it, while no reconciler works on the ledger (renewal.go). A sandbox
// that it stopped is asleep (stopped, by idle_ttl). This is neither a crash nor a finding. The core reports changed
// limits, and uses that the backend does not see, to the backend (renew). It also does so before it uses a sandbox that
// may be asleep. The answer shows whether it sleeps; if so, the core wakes it.
//
// # Crashes
//
// A sandbox that stops on its own is asleep (stopped, by crashed) and down since then. Its next step is a wake, which
// restarts it in place (crash.go). It keeps /workspace and /data, and loses its processes. It has recovered once it has
// run for 30 s. If it does not recover within 5 minutes, its lease ends by crashed: a restart of the engine, which
// stops all sandboxes, ends no game. Time in which its instance is away does not count. A missing sandbox is vanished
// and never created again. The next use starts one that was asleep. One of a pool ends at once.
//
// # Post-mortem
//
// A sandbox whose lease ends by crashed is kept until kept_until (postmortem.go): it is stopped (halt), its snapshot is
// saved, and the next generation may use that. Its state is failed until the event sandbox.delete_requested. The next
// generation does not wait for it, because all its objects are named by another sandbox id. A release of its
// generation, a condition, its environment's end or the cleanup ttl removes it earlier. A sandbox that cannot be
// stopped is not kept. The next observation stops one that was started from outside.
//
// # What each may write
//
// Only answers of the backend instance that the row names count. Every request and every step names one generation, by
// its sandbox id: a late answer for one never changes the next.
//
// Any caller may end a lease (desired, ended_*) and record activity, in a transaction of its own.
// Only the holder of the row's claim may change phase because of an action. Observations (Look)
// change phase only while no claim is held and no event was added since the row was read.
//
// # Instances
//
// A backend instance is known by its id and, where clones share that, by the witness that the ledger left on it
// (witness.go). Each generation takes the next number in the transaction that makes it; the step that makes it usable
// leaves the number on the instance, in parallel with the spawn or assign, and succeeds only with it. So the number on
// an instance is at least that of every generation that was ever usable. A ledger that is older begins no lease.
//
// A process claims and begins nothing for an instance that it cannot reach, because another replica may reach it. An
// environment moves to another instance only if a request names that.
//
// # Failure handling
//
//	the process dies          its claims expire after 8 s; the next worker repeats the idempotent
//	                          action. A process that starts frees the claims of dead processes without that
//	                          wait (ledger.FreeClaims)
//	a backend hangs           only its own work waits; other backends have goroutines and workers of
//	                          their own, and no call holds a lock or a transaction
//	a sandbox hangs           it is a finding, and its steps time out and are retried; the resync,
//	                          and the steps of others, go on
//	the backend is away       nothing changes; retries back off up to 30 s; all are due immediately
//	                          when the connection is back
//	another instance answers  the same: Unavailable, and never gone or vanished. So does a clone of the instance,
//	                          or an older copy of it, until adopt accepts that
//	the ledger was restored   the witness shows it: live leases continue and end, none begins and no orphan is
//	from a copy               destroyed until adopt; the next generations are above all that were usable
//	the answer was lost       the action is repeated
//	a post-start command      as if the spawn failed permanently; a lease with a pool's sandbox does not try
//	fails                     another one, where the command would fail too
//	spawn fails permanently   the lease ends by failed, and the remains of its sandbox are killed
//	a late answer             its claim has expired: it is discarded
//	a renewal fails           it is pending, and sent before the next use; a sandbox that the backend ended
//	                          meanwhile starts again
//	a stop is seen late       usage ends when the backend recorded it (usage.go)
//	the engine answers 500    the executor retries a few times; then the failure is permanent
//	a removal not recorded    usage ends when the backend says that the sandbox did, else when it was last seen
//	                          (usage.go)
//	the caller leaves         the step continues to its end and is recorded
//	the clock is stepped      the next transaction moves all stored times by as much (internal/ledger):
//	                          nothing ends early or lives on
//	the ledger was emptied    objects with its label are reported and not destroyed
//	a checkpoint fails        the lease continues and shows it; a retry follows at the pace of checkpoints, or,
//	                          if /data is too large, once it has changed
//	many saves hang           others wait for their turn. The sandbox of an ended lease is frozen before it waits
//	the last save fails       the sandbox stays, frozen and billed, and the next generation waits; retries end
//	                          after retry_for, or three of them for discard, and the snapshot is lost.
//	                          No try counts while the backend is away
//	a snapshot is unreadable  temporarily: the lease stays pending. Permanently: it ends by failed. It never
//	                          begins without it; to begin empty, an operator deletes the snapshot
//	the sandbox vanished      its last checkpoint remains
package lifecycle
