package processes

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// processLasts is how long a process must run before its start counts as successful.
	processLasts = 30 * time.Second
	// stopTakes is how long a sandbox that is being stopped lets its processes end by themselves.
	stopTakes = 10 * time.Second
	// followFor bounds one call that waits for a process: a backend may hang.
	followFor = time.Hour
	// reconcileBatch limits the due processes of one pass.
	reconcileBatch = 100
)

// Prepare implements lifecycle.Preparer: a sandbox gets the processes that its environment declares when it becomes
// ready.
func (v *Service) Prepare(_ *ledger.Tx, _ *ledger.Sandbox, b lifecycle.Beginning) (lifecycle.Fill, error) {
	if b.Action != lifecycle.Spawn && b.Action != lifecycle.Assign || len(b.Spec.Processes) == 0 {
		return nil, nil
	}
	return func(context.Context, *lifecycle.Step) (lifecycle.Settle, error) {
		return func(tx *ledger.Tx, s *ledger.Sandbox) error { return declare(tx, s, b.Spec.Processes) }, nil
	}, nil
}

// declare creates the rows of the processes that an environment declares.
func declare(tx *ledger.Tx, s *ledger.Sandbox, declared []sandbox.ProcessSpec) error {
	var rows []*execs.Process
	for _, p := range declared {
		p, err := p.Normalize(s.Rules())
		if err != nil {
			return err
		}
		rows = append(rows, execs.NewProcess(s, p, true, tx.Now))
	}
	return execs.In(tx).CreateProcesses(rows)
}

// Settled implements lifecycle.Settler.
func (v *Service) Settled(tx *ledger.Tx, s *ledger.Sandbox, t *lifecycle.Step) error {
	if t.Action != lifecycle.Kill {
		return nil
	}
	return execs.In(tx).StopProcesses(s.ID, "its sandbox was destroyed")
}

// Ended implements lifecycle.Ender. A sandbox that is not kept is killed soon, which settles its processes.
func (v *Service) Ended(tx *ledger.Tx, s *ledger.Sandbox, end lifecycle.Ending) error {
	if !s.Kept() {
		return nil
	}
	return execs.In(tx).StopProcesses(s.ID, "its lease ended by "+string(end.By))
}

// Extension implements lifecycle.Extender: it extends the claims on the processes that this program follows.
func (v *Service) Extension() lifecycle.Extension {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.holders) == 0 {
		return nil
	}
	holders := slices.Collect(maps.Keys(v.holders))
	return func(tx *ledger.Tx, until micro.Time) error { return execs.In(tx).ExtendProcesses(holders, until) }
}

// startsAgain reports whether a process restarts after its sandbox has lost it.
func startsAgain(p *execs.Process) bool {
	return p.KillAt == 0 && (bool(p.Declared) || p.Restart == sandbox.RestartAlways)
}

// Stopped implements lifecycle.Stopper: the processes of a sandbox stop with it.
func (v *Service) Stopped(tx *ledger.Tx, s *ledger.Sandbox, why string) error {
	rows, err := execs.In(tx).Processes(s.ID)
	for i := range rows {
		p := &rows[i]
		// A stopping sandbox may have ended a process that then reported its exit first.
		stopped := p.State == sandbox.ProcessExited && bool(p.Declared) && p.ExitedAt.Add(micro.SpanOf(stopTakes)) >= tx.Now
		if err != nil || p.State != sandbox.ProcessRunning && !stopped {
			continue
		}
		loseProcess(p, tx.Now, why)
		err = execs.In(tx).SaveProcess(p)
	}
	return err
}

// loseProcess records that a process ended because its sandbox stopped.
func loseProcess(p *execs.Process, now micro.Time, why string) {
	p.ExitedAt, p.ExitCode, p.OOMKilled, p.Error, p.Holder = now, 0, false, why, ""
	switch {
	case startsAgain(p):
		p.State, p.DueAt, p.Lost = sandbox.ProcessPending, now, true
	case p.KillAt != 0:
		endProcess(p, sandbox.ProcessKilled)
	default:
		endProcess(p, sandbox.ProcessStopped)
	}
}

// endProcess marks a process as ended for good. It drops the values of the variables, but not those of a declared
// process: the sandbox's stop may have ended that, and it may then restart.
func endProcess(p *execs.Process, state sandbox.ProcessState) {
	p.State, p.Holder = state, ""
	if !p.Declared {
		p.Env = map[string]string{}
	}
}

// Finished implements lifecycle.Finisher: it starts the processes that waited for an awake sandbox. The loop would do
// so later.
func (v *Service) Finished(t *lifecycle.Step) {
	switch {
	case t.Row.Pooled():
		return
	case t.Action != lifecycle.Wake && t.Action != lifecycle.Spawn && t.Action != lifecycle.Assign:
		return
	}
	if _, err := v.tend(v.Core.Life(), t.Row.ID); err != nil && v.Core.Life().Err() == nil {
		v.Log.Warn("processes: starting those of a sandbox", lifecycle.About(&t.Row), "error", err)
	}
}

// Reconcile starts the processes that are due, follows those whose follower has died, and ends those that were killed.
// It returns when to look again. The zero time means after the next change.
func (v *Service) Reconcile(ctx context.Context) (next time.Time, err error) {
	looked, err := v.tend(ctx, "")
	if err == nil {
		err = v.endKilled(ctx)
	}
	if err != nil {
		return next, err
	}
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		at, err := execs.In(tx).NextProcess(looked) // some may have become due since
		if err == nil && at != micro.Never {
			next = at.Time()
		}
		return err
	})
	return next, err
}

// endKilled begins to end the killed processes, whose callers may have left. It does not wait for a backend. A process
// that still starts is ended by a later pass.
func (v *Service) endKilled(ctx context.Context) error {
	var killed []execs.Process
	err := v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		killed, err = execs.In(tx).KilledProcesses(v.Core.InReach(), reconcileBatch)
		return err
	})
	for i := range killed {
		v.Core.EndRunSoon(runOf(&killed[i]))
	}
	return err
}

// tend starts or follows the processes that are due, in one sandbox or in all. It returns when it looked for them.
func (v *Service) tend(ctx context.Context, sandboxID string) (looked micro.Time, err error) {
	var due []execs.Process
	err = v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		looked = tx.Now
		due, err = execs.In(tx).DueProcesses(v.Core.InReach(), sandboxID, reconcileBatch)
		return err
	})
	for i := range due {
		if err == nil {
			err = v.takeProcess(ctx, due[i].SandboxID, due[i].Name)
		}
	}
	return looked, err
}

// takeProcess starts a process that is due, or follows one without a follower.
func (v *Service) takeProcess(ctx context.Context, sandboxID, name string) error {
	var r *processRun
	err := v.Store.Write(ctx, func(tx *ledger.Tx) error {
		r = nil
		s, err := lifecycle.MustSandbox(tx, sandboxID)
		if err != nil {
			return err
		}
		p, err := execs.In(tx).Process(sandboxID, name)
		if err != nil || p == nil || !p.State.Live() || p.DueAt > tx.Now || s.Phase != sandbox.PhaseAwake ||
			s.Desired == ledger.Gone || isStopping(s, tx.Now) {
			return err
		}
		return tx.UpdateRow(s, func(s *ledger.Sandbox) error {
			r, err = v.holdProcess(tx, s, p)
			return err
		})
	})
	if err == nil && r != nil {
		r.begin()
	}
	return err
}

// processRun is a start of a process that this program follows.
type processRun struct {
	service *Service
	row     execs.Process
	box     ledger.Sandbox
	start   bool // start it before following it
}

// holdProcess gives a process to this program, within an update of its sandbox.
func (v *Service) holdProcess(tx *ledger.Tx, s *ledger.Sandbox, p *execs.Process) (*processRun, error) {
	r := &processRun{service: v, start: p.State == sandbox.ProcessPending}
	p.Holder, p.DueAt = v.IDs(sandbox.LedgerIDLength), tx.Now.Add(micro.SpanOf(lifecycle.ClaimTTL))
	if r.start {
		if !p.Lost {
			p.Run = v.IDs(sandbox.SandboxIDLength)
		}
		p.State, p.StartedAt, p.Lost = sandbox.ProcessRunning, tx.Now, false
		p.Starts++
		data := map[string]any{"name": p.Name, "program": p.Command[0], "start": p.Starts}
		if err := tx.AppendSandboxEvent(s, sandbox.EventProcessStarted, data); err != nil {
			return nil, err
		}
	}
	r.row, r.box = *p, *s
	return r, execs.In(tx).SaveProcess(p)
}

// begin follows the process in the background, until it has ended or another reconciler follows it.
func (r *processRun) begin() {
	v := r.service
	v.mu.Lock()
	v.holders[r.row.Holder] = struct{}{}
	v.mu.Unlock()
	if !v.Core.Background(r.run) {
		r.drop()
	}
}

// drop leaves the process to the reconciler that takes it over.
func (r *processRun) drop() {
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	delete(r.service.holders, r.row.Holder)
}

func (r *processRun) run() {
	defer r.drop()
	v := r.service
	for tries := int64(1); r.isOurs(); tries++ {
		res, err := r.call()
		switch {
		case v.Core.Life().Err() != nil:
			return
		case !goesOn(err) || r.start && isAsleep(err):
			r.settle("recording the end of a process", func(tx *ledger.Tx, s *ledger.Sandbox, p *execs.Process) error {
				return settleProcess(tx, s, p, res, err)
			})
			return
		case isAsleep(err), sandbox.ReasonOf(err) == sandbox.ReasonSandboxNotFound:
			r.leave() // it is paused, or its sandbox is missing
			return
		}
		v.Log.Debug("processes: a process is followed again", lifecycle.About(&r.box), "process", r.row.Name,
			"attempt", tries, "error", err)
		select {
		case <-time.After(lifecycle.Backoff(tries)):
		case <-v.Core.Life().Done():
		}
	}
}

// call starts the process, or follows it, to its end.
func (r *processRun) call() (sandbox.ExecResult, error) {
	v, p := r.service, &r.row
	ctx, cancel := context.WithTimeout(v.Core.Life(), followFor)
	defer cancel()
	x, h, err := v.Core.On(&r.box)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	if !r.start {
		return x.Follow(ctx, h, sandbox.Replay{ID: p.Run})
	}
	res, err := x.RunProcess(ctx, h, driver.ProcessRun{
		ID: p.Run, Command: p.Command, Env: p.Env, Cwd: p.Cwd, User: p.RunAs,
	})
	if sandbox.ReasonOf(err) != sandbox.ReasonOtherSettings {
		return res, err
	}
	r.start = false // this run was started before, and the answer was lost
	_, err = x.Follow(ctx, h, sandbox.Replay{ID: p.Run, Now: true})
	if sandbox.ReasonOf(err) == sandbox.ReasonExecNotFound {
		return res, sandbox.Errorf(sandbox.Failed, "process %s ended while no reconciler followed it, and its sandbox has "+
			"run too many others since to know how: start it again if it is needed", p.Name).
			WithReason(sandbox.ReasonExecFailed)
	}
	return x.Follow(ctx, h, sandbox.Replay{ID: p.Run})
}

// isOurs reports whether this program still follows this start.
func (r *processRun) isOurs() bool {
	v, ours := r.service, false
	err := v.Store.Read(v.Core.Life(), func(tx *ledger.Tx) error {
		p, err := execs.In(tx).Process(r.row.SandboxID, r.row.Name)
		ours = err == nil && r.isStill(p)
		return err
	})
	if err != nil && v.Core.Life().Err() == nil {
		v.Log.Warn("processes: looking at a process", lifecycle.About(&r.box), "process", r.row.Name, "error", err)
	}
	return ours
}

func (r *processRun) isStill(p *execs.Process) bool {
	return p != nil && p.State == sandbox.ProcessRunning && p.Holder == r.row.Holder && p.Run == r.row.Run
}

// isAsleep reports whether a backend refused because the sandbox does not run.
func isAsleep(err error) bool {
	return sandbox.CodeOf(err) == sandbox.Conflict && sandbox.ReasonOf(err) == sandbox.ReasonInvalidState
}

// goesOn reports whether a process may still run although following it failed.
func goesOn(err error) bool {
	return sandbox.IsRetryable(err) || isAsleep(err) || sandbox.ReasonOf(err) == sandbox.ReasonSandboxNotFound
}

// leave releases the process. Any replica looks at it again after a while.
func (r *processRun) leave() {
	r.settle("leaving a process", func(tx *ledger.Tx, _ *ledger.Sandbox, p *execs.Process) error {
		p.Holder, p.DueAt = "", tx.Now.Add(micro.SpanOf(lifecycle.HeartbeatEvery))
		return execs.In(tx).SaveProcess(p)
	})
}

// settle changes the process, if this program still follows it.
func (r *processRun) settle(what string, change func(tx *ledger.Tx, s *ledger.Sandbox, p *execs.Process) error) {
	v := r.service
	err := v.Store.Write(v.Core.Life(), func(tx *ledger.Tx) error {
		p, err := execs.In(tx).Process(r.row.SandboxID, r.row.Name)
		if err != nil || !r.isStill(p) {
			return err
		}
		return tx.Update(p.SandboxID, func(s *ledger.Sandbox) error { return change(tx, s, p) })
	})
	if err != nil && v.Core.Life().Err() == nil { // the reconciler that takes it over finds the same
		v.Log.Error("processes: "+what, lifecycle.About(&r.box), "process", r.row.Name, "error", err)
	}
}

// settleProcess records how a start of a process ended, within an update of its sandbox.
func settleProcess(tx *ledger.Tx, s *ledger.Sandbox, p *execs.Process, res sandbox.ExecResult, cause error) error {
	if isLost(s, cause, tx.Now) {
		why := "its sandbox was stopped meanwhile"
		if sandbox.ReasonOf(cause) == sandbox.ReasonExecNotFound {
			why += ", or has run many others since"
		}
		loseProcess(p, tx.Now, why)
		if isAsleep(cause) && p.State != sandbox.ProcessKilled { // it never started
			p.State, p.Lost, p.Error = sandbox.ProcessPending, true, ""
			p.DueAt = tx.Now.Add(micro.SpanOf(lifecycle.HeartbeatEvery))
		}
		return execs.In(tx).SaveProcess(p)
	}
	p.ExitedAt, p.ExitCode, p.OOMKilled, p.Error = tx.Now, res.ExitCode, ledger.Flag(res.OOMKilled), ""
	kind, data := sandbox.EventProcessExited, map[string]any{"name": p.Name, "start": p.Starts}
	if cause == nil {
		data["exit_code"] = res.ExitCode
	} else {
		p.Error = cause.Error()
		data["error"] = p.Error
	}
	if res.OOMKilled {
		data["oom_killed"] = true
	}
	switch {
	case p.KillAt != 0:
		kind, data = sandbox.EventProcessKilled, map[string]any{"name": p.Name, "start": p.Starts}
		p.Error = ""
		endProcess(p, sandbox.ProcessKilled)
	case p.Restart == sandbox.RestartAlways:
		startAfterPause(p, tx.Now)
	case cause != nil:
		endProcess(p, sandbox.ProcessFailed)
	default:
		endProcess(p, sandbox.ProcessExited)
	}
	if err := tx.AppendSandboxEvent(s, kind, data); err != nil {
		return err
	}
	return execs.In(tx).SaveProcess(p)
}

// isLost reports whether a start ended because its sandbox was stopped, or never began because the sandbox sleeps.
// A run that its sandbox does not know may also have ended long ago, or its start may never have arrived. The next
// start under the same run tells: the sandbox refuses it if the run has ended.
func isLost(s *ledger.Sandbox, cause error, now micro.Time) bool {
	return isStopping(s, now) || isAsleep(cause) || sandbox.ReasonOf(cause) == sandbox.ReasonExecNotFound
}

// isStopping reports whether a sandbox is being put to sleep in a way that ends its processes.
func isStopping(s *ledger.Sandbox, now micro.Time) bool {
	return s.Claim.For == string(lifecycle.Sleep) && s.Claim.Holds(now) && s.SleepMode == sandbox.SleepStop
}

// startAfterPause plans the next start of a process. The pause grows with the number of consecutive starts that did not
// last.
func startAfterPause(p *execs.Process, now micro.Time) {
	if p.StartedAt.Add(micro.SpanOf(processLasts)) <= now {
		p.Failures = 0
	}
	p.Failures++
	p.State, p.Holder, p.DueAt = sandbox.ProcessPending, "", now.Add(micro.SpanOf(lifecycle.Backoff(p.Failures)))
}
