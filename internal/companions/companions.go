package companions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/secrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Restart restarts the companions that are due. Commands wait for it.
const Restart lifecycle.Action = "restart_companions"

// Config configures a Service. All of it is required.
type Config struct {
	Core    *lifecycle.Core
	Store   *ledger.Store
	Secrets *secrets.Service
	Log     *slog.Logger
}

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct {
	Config
	// checking has an element for each running health check of this process.
	checking chan struct{}
}

var (
	_ lifecycle.Planner     = (*Service)(nil)
	_ lifecycle.Actor       = (*Service)(nil)
	_ lifecycle.Initializer = (*Service)(nil)
	_ lifecycle.Preparer    = (*Service)(nil)
	_ lifecycle.Failer      = (*Service)(nil)
	_ lifecycle.Watcher     = (*Service)(nil)
	_ lifecycle.Starter     = (*Service)(nil)
)

// New returns a Service.
func New(c Config) *Service { return &Service{c, make(chan struct{}, maxChecks)} }

// Initializes implements lifecycle.Initializer: companions use the sandbox from its start.
func (v *Service) Initializes(s *ledger.Sandbox) bool { return !s.Pooled() && len(s.Companions) > 0 }

// HasBegun implements lifecycle.Initializer: no companion changes the files of its sandbox.
func (v *Service) HasBegun(*ledger.Tx, *ledger.Sandbox) (bool, error) { return false, nil }

// Prepare implements lifecycle.Preparer.
func (v *Service) Prepare(tx *ledger.Tx, s *ledger.Sandbox, b lifecycle.Beginning) (lifecycle.Fill, error) {
	begins := b.Action == lifecycle.Spawn || b.Action == lifecycle.Assign
	restarts := b.Action == lifecycle.Wake && s.Status.State == sandbox.SandboxStopped
	if len(s.Companions) == 0 || !begins && !restarts {
		return nil, nil
	}
	values, err := v.valuesOf(tx, s)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, t *lifecycle.Step) (lifecycle.Settle, error) {
		failures, err := v.startAll(ctx, t, t.Row.Companions.Names(), values, begins)
		if err != nil {
			return nil, err
		}
		return settle(t.Row.Companions.Names(), failures), nil
	}, nil
}

// valuesOf opens the secrets of companions, by the name of the companion.
func (v *Service) valuesOf(tx *ledger.Tx, s *ledger.Sandbox) (map[string]map[string]sandbox.Secret, error) {
	values := make(map[string]map[string]sandbox.Secret, len(s.Companions))
	for name, c := range s.Companions {
		opened, err := v.Secrets.Opened(tx, s.EnvironmentID, c.Secrets)
		if err != nil {
			return nil, err
		}
		values[name] = opened
	}
	return values, nil
}

// failure is why a companion is not healthy.
type failure struct{ sandbox.CompanionFailure }

func (f *failure) Error() string {
	text := fmt.Sprintf("companion %s failed: %s", f.Name, f.Reason)
	if f.Output != "" {
		text += fmt.Sprintf("; its output ends with %q", f.Output)
	}
	return text
}

// startAll starts companions at the same time, and returns those that failed. If must is set, the first failure ends
// the others and is an error: Failed with ReasonCompanionFailed. Other errors: as the executor's.
func (v *Service) startAll(ctx context.Context, t *lifecycle.Step, names []string,
	values map[string]map[string]sandbox.Secret, must bool) (map[string]*failure, error) {
	ctx, stop := v.Core.WhileWanted(ctx, t.Row.ID, errUnwanted)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards failures
	failures := make(map[string]*failure)
	var starting sync.WaitGroup
	for _, name := range names {
		starting.Go(func() {
			err := v.start(ctx, t, name, values[name])
			f, isFailure := errors.AsType[*failure](err)
			switch {
			case err == nil:
			case isFailure && !must:
				mu.Lock()
				defer mu.Unlock()
				failures[name] = f
			case isFailure:
				cancel(sandbox.Errorf(sandbox.Failed, "%w; fix the companion or its health check", f).
					WithReason(sandbox.ReasonCompanionFailed))
			default:
				cancel(err)
			}
		})
	}
	starting.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, lifecycle.AsError(err)
	}
	return failures, nil
}

// errUnwanted: the lease ended before its companions were ready.
var errUnwanted = sandbox.Errorf(sandbox.Failed, "the lease ended before its companions were ready")

// settle records which companions are ready and which failed.
func settle(names []string, failures map[string]*failure) lifecycle.Settle {
	return func(tx *ledger.Tx, s *ledger.Sandbox) error {
		for _, name := range names {
			if f := failures[name]; f != nil {
				if err := fail(tx, s, f.CompanionFailure); err != nil {
					return err
				}
				continue
			}
			s.CompanionStarted(name, tx.Now)
			err := tx.AppendSandboxEvent(s, sandbox.EventCompanionReady, map[string]any{"name": name})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// fail records that a companion failed, and plans its restart.
func fail(tx *ledger.Tx, s *ledger.Sandbox, f sandbox.CompanionFailure) error {
	f.Restarts = f.ExitCode != nil && *f.ExitCode != 0 && mayRestart(s, f.Name)
	if f.Restarts {
		s.CompanionRestarts(f.Name, sandbox.CompanionStarting, f.Reason, nextStart(tx, s, f.Name), tx.Now)
	} else {
		s.CompanionEnters(f.Name, sandbox.CompanionFailed, f.Reason, tx.Now)
	}
	return tx.AppendSandboxEvent(s, sandbox.EventCompanionFailed, f)
}

// mayRestart reports whether the declaration of a companion lets it start again after a failure.
func mayRestart(s *ledger.Sandbox, name string) bool {
	return s.Companions[name].Restart == sandbox.CompanionOnFailure &&
		s.CompanionStates[name].Restarts < sandbox.MaxCompanionRestarts &&
		s.Desired == ledger.Present && s.Phase != sandbox.PhasePending
}

// nextStart returns when a companion that fails now is started again.
func nextStart(tx *ledger.Tx, s *ledger.Sandbox, name string) micro.Time {
	return tx.Now.Add(micro.SpanOf(lifecycle.Backoff(s.CompanionStates[name].Restarts + 1)))
}

// Failed implements lifecycle.Failer.
func (v *Service) Failed(tx *ledger.Tx, s *ledger.Sandbox, cause error) error {
	f, ok := errors.AsType[*failure](cause)
	if !ok {
		return nil
	}
	return fail(tx, s, f.CompanionFailure)
}

// Started implements lifecycle.Starter: a restarted sandbox has a new network, which its companions are not on.
func (v *Service) Started(_ *ledger.Tx, s *ledger.Sandbox, restarted bool) error {
	if restarted && len(s.Companions) > 0 && !s.Pooled() {
		s.CompanionsStartAgain(micro.At(v.Store.Now()))
		s.Schedule.DueAt = 0
	}
	return nil
}

// Differs implements lifecycle.Watcher.
func (v *Service) Differs(s *ledger.Sandbox, o driver.Observation) bool {
	return len(endedIn(s, o)) > 0
}

// Observed implements lifecycle.Watcher.
func (v *Service) Observed(tx *ledger.Tx, s *ledger.Sandbox, o driver.Observation) error {
	for _, f := range endedIn(s, o) {
		if err := fail(tx, s, f); err != nil {
			return err
		}
	}
	scheduleRestart(s)
	return nil
}

// scheduleRestart makes a sandbox due for the next restart of a companion.
func scheduleRestart(s *ledger.Sandbox) {
	if at := s.NextCompanionRestart(); s.Schedule.Attempts == 0 {
		s.Schedule.DueAt = min(s.Schedule.DueAt, at)
	}
}

// endedIn returns the companions that ran before, and are stopped in an observation. It ignores those that stopped with
// their sandbox, and those that a restart may be stopping. Pure.
func endedIn(s *ledger.Sandbox, o driver.Observation) (ended []sandbox.CompanionFailure) {
	for _, name := range s.Companions.Names() {
		if was := s.CompanionStates[name]; !was.Runs() || !was.RestartAt.IsZero() {
			continue
		}
		is, ok := o.Companions[name]
		awake := s.Phase == sandbox.PhaseAwake && o.State == sandbox.StateRunning
		switch {
		case !ok:
			ended = append(ended, sandbox.CompanionFailure{Name: name, Reason: removed})
		case awake && is.State == sandbox.StateStopped:
			ended = append(ended, ending(name, is))
		}
	}
	return ended
}

const removed = "its container was removed from outside"

// ending describes a companion that has stopped.
func ending(name string, is driver.CompanionObservation) sandbox.CompanionFailure {
	f := sandbox.CompanionFailure{Name: name, ExitCode: &is.ExitCode, Output: lastOf(is.Output),
		Reason: fmt.Sprintf("its program ended with exit code %d", is.ExitCode)}
	if is.OOMKilled {
		f.Reason = fmt.Sprintf("it ran out of memory (exit code %d)", is.ExitCode)
	}
	return f
}

// Plan implements lifecycle.Planner.
func (v *Service) Plan(s *ledger.Sandbox, p lifecycle.Point, _ micro.Time) (lifecycle.Action, micro.Time) {
	at := s.NextCompanionRestart()
	if p != lifecycle.Idle || at == micro.Never || s.Phase != sandbox.PhaseAwake {
		return lifecycle.None, micro.Never
	}
	return Restart, at
}

// Act implements lifecycle.Actor.
func (v *Service) Act(ctx context.Context, t *lifecycle.Step) (done lifecycle.Done, isOwn bool) {
	if t.Action != Restart {
		return done, false
	}
	var names []string
	for _, name := range t.Row.Companions.Names() {
		if at := t.Row.CompanionStates[name].RestartAt; !at.IsZero() && micro.At(at) <= t.Began {
			names = append(names, name)
		}
	}
	var values map[string]map[string]sandbox.Secret
	done.Err = v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		values, err = v.valuesOf(tx, &t.Row)
		return err
	})
	if done.Err != nil {
		return done, true
	}
	failures, err := v.startAll(ctx, t, names, values, false)
	done.Err, done.Settle = err, settle(names, failures)
	return done, true
}

// settles is how long a program without a health check must run to be ready.
const settles = 500 * time.Millisecond
