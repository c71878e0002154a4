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
// has been told whose it is (assign, which ends in a wake).
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
// A backend may put a sandbox to rest, and end it, while no reconciler works on the ledger (renewal.go). What it has stopped
// by itself is asleep (stopped, by idle_ttl), no crash and no finding. It is told of uses that it does not see and of
// changed limits (renew), and before a use of a sandbox that it may have put to rest: then it is known, and woken.
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
// A sandbox whose lease ends by crashed is kept until kept_until (postmortem.go): it is stopped (halt), its
// state is saved and let go, and then nothing is done until its time is over, which is told by
// sandbox.delete_requested; until then it stands as failed. Nothing else of its lease waits for it: the next
// generation has another sandbox id, by which everything is named. Whatever ends leases of its kind (release of
// its generation, a condition, its environment's end) or the cleanup ttl ends its time. What cannot be stopped
// is not kept, and one that was started from outside is stopped again by the next look.
//
// # State
//
// Where an environment keeps /data, a sandbox has a role to what its key names (state.go):
//
//	              first step, nobody holds it
//	(new) ───────────────────────────────────────> holder ───> done   saved for the last time
//	  │ │   the holder has ended      let go          │
//	  │ └────────────────────> waiting ───────────────┘ └─────> lost   it never could be
//	  └────────────────────────────────────────────────────────> copy   the holder lives
//	        (scope agent only)
//
// At most one sandbox holds a key, which an index of the ledger sees to, and it alone publishes. Role
// and publication change in transactions only: the claim of the first step gives the role, the settling
// of a save publishes, and only while its claim holds. So a late save of generation g never replaces
// what g+1 saved, and each generation begins with what was published last. The steps:
//
//	spawn, assign   also restore: what was published, or initial_state; then the skills. Nobody uses
//	                the sandbox before, so it may be done again.
//	save, checkpoint   freeze, read, thaw, upload, publish. Uses wait for the thaw, not for the upload.
//	save, the last one freeze for good, read, upload, publish, let go; the next step is kill.
//	thaw            what a process left frozen that died while it read
//
// An object's name is stored, as doomed, before anything is uploaded under it; publishing takes it off
// that list and puts the one that it replaces there. CollectStates deletes what is doomed and due.
//
// # Commands
//
// A command is a row of execs, made in the transaction that begins its use of the sandbox and settled in
// the one that ends it. Its holder, the process that runs or follows it, has it until held_until, which the
// heartbeat extends; only the holder settles it, or the kill that makes its sandbox gone.
//
//	            result            the holder has the backend's word how it ended
//	running ──────────────> finished
//	   │ └────────────────> failed      it was not run, or the sandbox knows nothing of it any more
//	   └──────────────────> cancelled   cancel_at is set, its caller left, or its lease ended by the rules
//
// The commands of an environment's post_start are part of the step that spawns or assigns: its last
// part (poststart.go). Their ids come of the sandbox's, so a step that is taken again finds what was
// begun: what has ended stays as it ended, what runs is followed by the holder of the claim alone,
// and what no sandbox ever heard of is started. Once the first has begun, files and /data are not
// given again.
//
// When its holder dies, the command goes on: the sandbox keeps its first output and its end (Runner.Follow).
// Who finds held_until passed takes the command over, and follows it from its beginning. Until then
// its use keeps the lease awake (commandTTL). An object with its output is doomed before it is stored,
// and settling publishes it.
//
// # Sessions
//
// A session is a row of a sandbox, with variables (sealed), a directory and a recording; no process lives for
// it. A command of a session is a command like any other: the transaction that begins it sees that no other
// one runs there, and takes the row's variables and directory; the one that settles it keeps in the row what a
// line of the shell has left behind, as against what the line began with. What it reads of the command, its
// holder appends to the recording, every 50 ms at the most, while it is the holder; the rest with the settling.
// So a recording has a beginning of each stream, whose length the ledger knows: who takes the command over
// follows it from its beginning and leaves out as much.
//
// # Processes
//
// A process is a row of processes, which says what is wanted: its state is pending or running, or it is over.
// It holds no sandbox, so it is no activity. A reconciler that finds a pending one due, in a sandbox that is awake, makes
// it running, and follows it to its end; due_at is until when it is his, which the heartbeat extends, and who
// finds that passed takes it over.
//
//	         due             its sandbox was stopped: declared, or restart always
//	pending ────> running ──────────────────────────────────────────> pending, under the same run
//	                │ └──> ended by itself: pending after a pause (always), exited, failed
//	                └────> killed (kill_at is set), stopped (with its sandbox)
//
// A run is one id of the backend, which starts it at most once for each life of the sandbox: a start whose
// answer was lost, or that comes late, finds its own run. So a run that a stop has ended keeps its id for the
// next start, and only one that ended by itself gets another.
//
// # Who may write what
//
// Only the backend instance that the row names is believed. Every request and
// every step names one generation, by its sandbox id: what comes late for one never changes the next.
//
// Anybody may end a lease (desired, ended_*) and record activity, in a transaction of their own.
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
// Nothing is claimed, and nothing is begun, for an instance that this engine does not reach: another replica may. An
// environment moves to another instance only when that is named.
//
// # Failure handling
//
//	the process dies          its claims are not extended and run out after 8 s; the next worker
//	                          takes the same idempotent action again. A process that starts does
//	                          not wait for that: it frees the claims of the dead (ledger.FreeClaims)
//	a backend hangs           its own work waits; other backends have goroutines and workers of
//	                          their own, and no lock or transaction is held across a call
//	a sandbox hangs           it is a finding, and its steps time out and are retried; the survey,
//	                          and the steps of others, go on
//	the backend is away       nothing changes; attempts grow with backoff up to 30 s; all are
//	                          tried at once when the connection is back
//	another instance answers  the same: Unavailable, and never gone or vanished. So does a clone of the instance,
//	                          or an older copy of it, until adopt accepts that
//	the ledger is put back    it is noticed by the witness: leases that live go on and end, none begins and nothing is
//	by a copy                 swept until adopt; the next generations are above all that were usable
//	the answer was lost       the same: the action is taken again
//	a post-start command      the same as a spawn that failed for good; a lease of a pool's sandbox is not
//	fails                     tried with another one, where it would fail as well
//	spawn failed for good     the lease ends by failed, and what is left of it is killed
//	a late answer             its claim does not hold any more: it is thrown away
//	a renewal is not told     it is owed, and told before the next use; what its backend has ended meanwhile
//	                          starts again
//	a stop is seen late       usage ends when the backend recorded it (record.go)
//	the engine says 500       its executor asks a few times; then it failed for good
//	a removal not recorded    usage ends when the backend says that the sandbox did, else when it was last seen (record.go)
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
//
// # Environments
//
// What an environment has on its backend is made, changed and removed under a claim on its row, by one request at a
// time (provisioning.go). Until it was made once it gives out no lease: an acquire waits for that.
//
// # Batches
//
// A batch of leases is begun in one transaction, and each of its steps is one as above (batch.go). The rows of a batch that
// leases all or none carry its id. No process owns it; the rows decide:
//
//	all were ready once      it stands: nothing looks at the id any more
//	a first step fails       the transaction that settles it ends every lease of the batch that lives (batchend.go),
//	                         also where the step could be tried again
//	the pool's sandbox is    the same transaction begins the lease's next generation, in the batch
//	lost
//	its process dies         others take the steps, and settle them as above
//
// A request that finds a lease in another batch waits for it. Where that batch ends first, a batch of all or none fails
// with Unavailable, and others begin the next generation.
//
// # What is kept
//
// A row that is gone stays for the cleanup ttl. A purge (internal/retention) then removes it with its events and usage
// periods, and leaves a short record: whose it was, its generation, its last sequence, its end and its
// cost. So a lease counts on, no sandbox id comes back, and readers are told. Costs stay, by day.
//
// # What is not in the ledger
//
// A survey lists what carries the ledger's label on an instance. What no row wants (a sandbox, or a
// volume, helper or image that is left of one) is a finding on the first look and destroyed on the
// second, unless it is younger than the creation grace. An error is no look.
package leasing
