package companions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxChecks limits the concurrent checks of running companions in a process. A check that hangs delays other checks
// only.
const maxChecks = 32

// check is a health check of a running companion.
type check struct {
	row  ledger.Sandbox // as it was when the check was taken
	name string
	at   micro.Time // when it was due
}

// Check begins the health checks of a backend's running companions that are due, and does not wait for them. It returns
// when to look again unless the schedule of a sandbox changes: when the first one is or was due (zero time: none is
// planned). A companion is checked at most every minPause. A check moves check_at in the row first, so one of several
// processes makes it, and the next one comes even if this process dies. It does not count as use of the sandbox.
func (v *Service) Check(ctx context.Context, b sandbox.Backend, minPause time.Duration) (next time.Time, err error) {
	x, err := v.Core.BackendFor(b)
	if err != nil {
		return time.Time{}, err
	}
	instance := x.Connected()
	if instance == "" {
		return time.Time{}, nil
	}
	pause := micro.SpanOf(minPause)
	due := 0
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		all, err := planned(tx, instance, pause)
		due = len(all.due(tx.Now))
		if len(all) > 0 {
			next = all[0].at.Time()
		}
		return err
	})
	if err != nil || due == 0 {
		return next, err
	}
	free := v.reserve(due)
	if free == 0 {
		return next, nil
	}
	var taken []check
	err = v.Store.Write(ctx, func(tx *ledger.Tx) (err error) {
		tx.KeepSchedule()
		taken, err = take(tx, instance, pause, free)
		return err
	})
	if err != nil {
		taken = nil
	}
	for range free - len(taken) {
		<-v.checking
	}
	for _, c := range taken {
		if !v.Core.Background(func() { v.carryOut(c); <-v.checking }) {
			<-v.checking
		}
	}
	return next, err
}

// reserve reserves up to n checks, and returns how many.
func (v *Service) reserve(n int) (free int) {
	for ; free < n; free++ {
		select {
		case v.checking <- struct{}{}:
		default:
			return free
		}
	}
	return free
}

// checks are planned checks, the earliest first.
type checks []check

// planned returns the planned checks of an instance's companions. A sandbox that a process works on has none until its
// claim ends.
func planned(tx *ledger.Tx, instance string, minPause micro.Span) (all checks, err error) {
	rows, err := tx.SandboxesWithCompanions(instance)
	for _, s := range rows {
		for _, name := range s.Companions.Names() {
			if at := checkDue(&s, name, minPause); at != micro.Never && !s.Claim.Holds(tx.Now) {
				all = append(all, check{s, name, at})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b check) int { return cmp.Compare(a.at, b.at) })
	return all, err
}

// due returns the checks that are due.
func (all checks) due(now micro.Time) checks {
	for i, c := range all {
		if c.at > now {
			return all[:i]
		}
	}
	return all
}

// take takes up to n checks.
func take(tx *ledger.Tx, instance string, minPause micro.Span, n int) ([]check, error) {
	all, err := planned(tx, instance, minPause)
	if err != nil {
		return nil, err
	}
	due := all.due(tx.Now)
	due = due[:min(len(due), n)]
	for i, c := range due {
		err := tx.Update(c.row.ID, func(s *ledger.Sandbox) error {
			is := s.CompanionStates[c.name]
			if micro.At(is.CheckAt) < s.Status.Since { // failures before its sleep do not count
				is.FailedChecks = 0
			}
			is.CheckAt = tx.Now.Add(pauseOf(s, c.name, minPause)).Time()
			s.SetCompanion(c.name, is)
			due[i].row = *s
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return due, nil
}

// checkDue returns when the health of a companion is checked next, Never if it is not. Pure.
func checkDue(s *ledger.Sandbox, name string, minPause micro.Span) micro.Time {
	is := s.CompanionStates[name]
	switch {
	case !s.Companions[name].HealthCheck.IsSet() || !is.Runs() || !is.RestartAt.IsZero():
		return micro.Never
	case is.CheckAt.IsZero():
		return micro.At(is.Since).Add(pauseOf(s, name, minPause))
	default:
		return micro.At(is.CheckAt)
	}
}

// pauseOf returns the pause between the beginnings of two checks of a running companion, at least the limit of a check.
func pauseOf(s *ledger.Sandbox, name string, minPause micro.Span) micro.Span {
	h := s.Companions[name].HealthCheck
	return max(minPause, micro.SpanOf(h.Interval.D()), micro.SpanOf(timeoutOf(h).D()))
}

// timeoutOf returns the limit of a check of a running companion.
func timeoutOf(h sandbox.CompanionHealthCheck) sandbox.Duration {
	return min(h.Timeout, sandbox.MaxCompanionCheck)
}

// carryOut checks a companion and records the result.
func (v *Service) carryOut(c check) {
	f, known := v.probe(c)
	was := c.row.CompanionStates[c.name]
	asBefore := was.FailedChecks == 0 && (f == nil) == (was.State == sandbox.CompanionReady)
	if !known || asBefore {
		return
	}
	err := v.Store.Write(v.Core.Life(), func(tx *ledger.Tx) error {
		s, err := lifecycle.MustSandbox(tx, c.row.ID)
		if err != nil || !c.isStill(s, tx.Now) {
			return err
		}
		return tx.UpdateRow(s, func(s *ledger.Sandbox) error { return record(tx, s, c.name, f) })
	})
	if err != nil && v.Core.Life().Err() == nil { // the next check finds the same
		v.Log.Warn("companions: recording a health check", lifecycle.About(&c.row), "companion", c.name, "error", err)
	}
}

// probe checks a companion once, and returns nil if it is healthy. known is false if the check says nothing about the
// companion: its sandbox does not run, its program has ended, or the backend does not answer.
func (v *Service) probe(c check) (f *sandbox.CompanionFailure, known bool) {
	x, h, err := v.Core.On(&c.row)
	if err != nil {
		return nil, false
	}
	p := &program{on: x, h: h.Of(c.name), name: c.name, spec: c.row.Companions[c.name], log: v.Log}
	p.spec.HealthCheck.Timeout = timeoutOf(p.spec.HealthCheck)
	problem := p.check(v.Core.Life())
	if problem == nil {
		return nil, true
	}
	ctx, cancel := context.WithTimeout(v.Core.Life(), endLimit)
	defer cancel()
	o, err := x.Inspect(ctx, h)
	if err != nil || o.State != sandbox.StateRunning || o.Companions[c.name].State != sandbox.StateRunning {
		return nil, false
	}
	f = &sandbox.CompanionFailure{Name: c.name, Reason: fmt.Sprintf("%d health checks in a row failed (%v)",
		sandbox.CompanionUnhealthyAfter, problem)}
	if c.row.CompanionStates[c.name].State == sandbox.CompanionReady { // it may become unhealthy
		f.Output = p.said(ctx)
	}
	return f, true
}

// isStill reports whether a sandbox and its companion are as they were when the check was taken.
func (c check) isStill(s *ledger.Sandbox, now micro.Time) bool {
	is, was := s.CompanionStates[c.name], c.row.CompanionStates[c.name]
	return s.Desired == ledger.Present && s.Phase == sandbox.PhaseAwake && !s.Claim.Holds(now) &&
		s.Status.Since == c.row.Status.Since && is.State == was.State && is.Since.Equal(was.Since) && is.RestartAt.IsZero()
}

// record records that a running companion is healthy, or has failed a check.
func record(tx *ledger.Tx, s *ledger.Sandbox, name string, f *sandbox.CompanionFailure) error {
	is := s.CompanionStates[name]
	switch {
	case f == nil && is.State == sandbox.CompanionUnhealthy:
		s.CompanionEnters(name, sandbox.CompanionReady, "", tx.Now)
		return tx.AppendSandboxEvent(s, sandbox.EventCompanionReady, map[string]any{"name": name})
	case f == nil:
		is.FailedChecks = 0
		s.SetCompanion(name, is)
		return nil
	}
	if is.FailedChecks++; is.FailedChecks < sandbox.CompanionUnhealthyAfter {
		s.SetCompanion(name, is)
		return nil
	}
	if f.Restarts = mayRestart(s, name); f.Restarts {
		s.CompanionRestarts(name, sandbox.CompanionUnhealthy, f.Reason, nextStart(tx, s, name), tx.Now)
		scheduleRestart(s)
	} else {
		s.CompanionEnters(name, sandbox.CompanionUnhealthy, f.Reason, tx.Now)
	}
	return tx.AppendSandboxEvent(s, sandbox.EventCompanionUnhealthy, f)
}
