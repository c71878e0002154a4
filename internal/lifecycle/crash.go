package lifecycle

import (
	"fmt"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A sandbox that stops on its own is started again in place. An engine that restarts without live-restore stops every
// container, and a game must not end by that. The sandbox keeps its files, and loses its processes and their memory.
// One that cannot be started, or does not stay up, fails (CrashFails).

// A sandbox that stopped on its own is restarted in place, until it is healthy or has failed for too long.
const (
	// CrashClears is how long it must run to count as healthy again.
	CrashClears = 30 * time.Second
	// CrashFails is how long it may stay unhealthy. Time without its backend does not count.
	CrashFails = 5 * time.Minute
)

// RanLongEnough reports whether a sandbox has run long enough without a stop to forget its earlier crashes.
func RanLongEnough(s *ledger.Sandbox, at micro.Time) bool {
	return s.Phase == sandbox.PhaseAwake && at >= s.Status.Since.Add(micro.SpanOf(CrashClears))
}

// RestartAt returns the time at which a stopped sandbox is restarted. The first restart is immediate.
func RestartAt(s *ledger.Sandbox, stopped micro.Time) micro.Time {
	if s.Crash.Count <= 1 {
		return stopped
	}
	return stopped.Add(micro.SpanOf(Backoff(s.Crash.Count - 1)))
}

// Crashed is the ending of a lease whose sandbox does not stay up.
func Crashed(s *ledger.Sandbox, at micro.Time) Ending {
	return Ending{By: sandbox.EndedByCrashed, Code: s.Status.ErrorCode, Reason: s.Status.ErrorMessage, At: at}
}

// restart returns the next step of a stopped sandbox, and its ending once the attempts took too long.
func restart(s *ledger.Sandbox, now micro.Time) (Action, micro.Time, *Ending) {
	if s.Schedule.Attempts > 0 && s.Crash.Since.Add(micro.SpanOf(CrashFails)) <= now {
		end := Crashed(s, now)
		return None, now, &end
	}
	if at := RestartAt(s, s.Status.Since); at > now {
		return None, at, nil
	}
	return Wake, now, nil
}

// stopped records that a sandbox stopped without a request.
func (c *Core) stopped(tx *ledger.Tx, s *ledger.Sandbox, o driver.Observation) error {
	at := min(max(micro.At(o.StoppedAt), s.ReadyAt), tx.Now)
	if s.Phase == sandbox.PhaseAwake { // a sandbox that was asleep need not run
		s.Crash.Add(RanLongEnough(s, at), tx.Now)
		s.Schedule.DueAt = RestartAt(s, tx.Now)
	}
	if err := c.hooks.Stopped(tx, s, "its sandbox stopped"); err != nil {
		return err
	}
	s.Schedule.Succeed()
	s.Status.StopReason = sandbox.StopCrashed
	s.Status.Fail(whyStopped(o))
	err := c.EnterPhase(tx, s, sandbox.PhaseAsleep, at, sandbox.EventStopped, withDisk(map[string]any{
		"reason": s.Status.StopReason, "error_code": s.Status.ErrorCode, "error_message": s.Status.ErrorMessage}, o.Disk))
	switch {
	case err != nil:
		return err
	case s.Pooled(): // making another one is as fast
		return c.End(tx, s, Crashed(s, tx.Now))
	case s.Crash.Count > 1 && s.Crash.Since.Add(micro.SpanOf(CrashFails)) <= tx.Now:
		return c.End(tx, s, Crashed(s, tx.Now))
	}
	return nil
}

// restartedUnseen records that a sandbox stopped and was started again unseen, while it was awake or before a wake. It
// has lost its processes and, on some backends, its disk. It is filled again as at a start.
func (c *Core) restartedUnseen(tx *ledger.Tx, s *ledger.Sandbox) error {
	if err := c.hooks.Stopped(tx, s, "its sandbox stopped and was started again"); err != nil {
		return err
	}
	return c.hooks.Started(tx, s, true)
}

// whyStopped says why a sandbox stopped without a request.
func whyStopped(o driver.Observation) (sandbox.Reason, string) {
	if o.OOMKilled {
		return sandbox.ReasonOutOfMemory, "it ran out of memory"
	}
	return sandbox.ReasonCrashed, fmt.Sprintf("its process 1 ended with exit code %d without a request to stop",
		o.ExitCode)
}

// restartFailed records that a sandbox which is down could not be started.
func restartFailed(s *ledger.Sandbox, now micro.Time, code sandbox.Code) {
	if !s.Down() {
		return
	}
	if code == sandbox.Unavailable {
		s.Crash.Since = now
	}
	s.Schedule.DueAt = min(s.Schedule.DueAt, max(now, s.Crash.Since.Add(micro.SpanOf(CrashFails))))
}

// recovered forgets that a sandbox had stopped.
func recovered(tx *ledger.Tx, s *ledger.Sandbox) error {
	if s.Crash.Since == 0 && s.Status.ErrorCode == "" {
		return nil
	}
	s.Crash = ledger.Crash{}
	s.Status.Recover()
	open, err := drift.In(tx).OpenOf([]string{s.ID})
	for _, f := range open[s.ID] {
		if err == nil && f.Field == fieldState {
			err = drift.In(tx).Resolve(f.ID, "it was started again and runs")
		}
	}
	return err
}
