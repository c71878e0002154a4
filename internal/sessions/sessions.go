package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A session is a row and a recording, not a process. The row has the state that the next command begins with. After a
// shell line, settling stores the changed state there.

// Config configures a Service. All fields are required.
type Config struct {
	Store *ledger.Store
	// Keys encrypt the variables of sessions.
	Keys *seal.Keys
	IDs  sandbox.IDs
	// Life ends when the service closes.
	Life context.Context
	// Cancel cancels a command.
	Cancel func(ctx context.Context, r sandbox.ExecRef) (sandbox.Exec, error)
	Log    *slog.Logger
}

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct{ Config }

// New returns a Service.
func New(c Config) *Service { return &Service{c} }

// purposeOf binds a session's variables to their place, so that they cannot be opened elsewhere.
func (v *Service) purposeOf(s *execs.Session) string {
	return "variables of session " + s.ID + " of sandbox " + s.SandboxID + " on ledger " + v.Store.ID()
}

// putEnv encrypts variables and stores them in a session.
func (v *Service) putEnv(s *execs.Session, env map[string]string) error {
	s.EnvNames, s.SealedEnv = append([]string{}, slices.Sorted(maps.Keys(env))...), nil
	if len(env) == 0 {
		return nil
	}
	text, err := json.Marshal(env)
	if err == nil {
		s.SealedEnv, err = v.Keys.Seal(text, v.purposeOf(s))
	}
	return err
}

// envOf opens the variables of a session.
func (v *Service) envOf(s *execs.Session) (env map[string]string, err error) {
	if len(s.SealedEnv) == 0 {
		return nil, nil
	}
	text, err := v.Keys.Open(s.SealedEnv, v.purposeOf(s))
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", s.ID, err)
	}
	return env, json.Unmarshal(text, &env)
}

// Reseal re-encrypts, inside a transaction, variables of sessions that are encrypted with another key than the first of
// the key file; see secrets.Service.
func (v *Service) Reseal(tx *ledger.Tx) (n int, failed []error, err error) {
	all, err := execs.In(tx).SealedSessions()
	for i := range all {
		s := &all[i]
		stale, err := v.Keys.Stale(s.SealedEnv)
		if err == nil && stale {
			var env map[string]string
			if env, err = v.envOf(s); err == nil {
				err = v.putEnv(s, env)
			}
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if stale {
			n++
			if err := execs.In(tx).SaveSession(s); err != nil {
				return n, failed, err
			}
		}
	}
	return n, failed, err
}

// CreateSession implements service.Sessions.
func (v *Service) CreateSession(ctx context.Context, r sandbox.LeaseRef,
	c sandbox.CreateSession) (view sandbox.Session, err error) {
	if c, err = c.Normalize(r.ID); err != nil {
		return view, err
	}
	named := c.ID != ""
	if !named {
		c.ID = v.IDs(sandbox.SandboxIDLength)
	}
	asked := execs.SessionAsked{
		EnvNames: append([]string{}, slices.Sorted(maps.Keys(c.Env))...),
		Cwd:      c.Cwd,
		User:     c.User,
	}
	err = v.Store.Write(ctx, func(tx *ledger.Tx) error {
		s, held, err := lifecycle.CurrentOf(tx, r.ID)
		if err != nil {
			return err
		}
		if err := lifecycle.CheckRef(s, r); err != nil {
			return err
		}
		if !s.Live(held, tx.Now) {
			return lifecycle.ErrEnded(s, held, tx.Now)
		}
		known, err := execs.In(tx).Session(s.ID, c.ID)
		if err != nil {
			return err
		}
		if known != nil {
			view, err = sameSession(tx, known, asked)
			return err
		}
		if err := s.Rules().Check("session", asked.EnvNames, c.User); err != nil {
			return err
		}
		row := &execs.Session{SandboxID: s.ID, ID: c.ID, LeaseID: r.ID, Generation: s.Generation, Asked: asked,
			Cwd: c.Cwd, RunAs: c.User, State: sandbox.SessionOpen, CreatedAt: tx.Now}
		if err := v.putEnv(row, c.Env); err != nil {
			return err
		}
		view = row.Domain("")
		view.IsNew = true
		return tx.UpdateRow(s, func(s *ledger.Sandbox) error {
			return errors.Join(tx.AppendSandboxEvent(s, sandbox.EventSessionOpened, map[string]any{"session_id": c.ID}),
				execs.In(tx).CreateSession(row))
		})
	})
	return view, err
}

// sameSession returns an open session that an equal request created. Errors: Conflict.
func sameSession(tx *ledger.Tx, known *execs.Session, asked execs.SessionAsked) (sandbox.Session, error) {
	var f []sandbox.Field
	for _, is := range []struct {
		name string
		same bool
	}{
		{"env", slices.Equal(known.Asked.EnvNames, asked.EnvNames)},
		{"cwd", known.Asked.Cwd == asked.Cwd},
		{"user", known.Asked.User == asked.User},
	} {
		if !is.same {
			f = append(f, sandbox.Field{Name: is.name, Problem: "differs from the one of the session with this id"})
		}
	}
	if len(f) > 0 {
		return sandbox.Session{}, &sandbox.Error{Code: sandbox.Conflict, Reason: sandbox.ReasonOtherSettings, Fields: f,
			Message: fmt.Sprintf("lease %s: the id %s names another session of generation %d: choose another id",
				known.LeaseID, known.ID, known.Generation)}
	}
	if known.State == sandbox.SessionClosed {
		return sandbox.Session{}, sandbox.Errorf(sandbox.Conflict,
			"lease %s: session %s of generation %d is closed: choose another id",
			known.LeaseID, known.ID, known.Generation).WithReason(sandbox.ReasonSessionClosed)
	}
	return sessionView(tx, known)
}

// sessionView returns a session. It is also closed if its lease has ended and its sandbox is not gone yet.
func sessionView(tx *ledger.Tx, s *execs.Session) (sandbox.Session, error) {
	if err := closeWithLease(tx, s); err != nil {
		return sandbox.Session{}, err
	}
	running, err := execs.In(tx).RunningInSession(s.SandboxID, s.ID)
	return s.Domain(running), err
}

// closeWithLease makes a session appear closed once its lease has ended. Ending a lease does not write sessions,
// because many leases may end together.
func closeWithLease(tx *ledger.Tx, s *execs.Session) error {
	if s.State == sandbox.SessionClosed {
		return nil
	}
	of, err := lifecycle.MustSandbox(tx, s.SandboxID)
	if err == nil && of.Desired == ledger.Gone {
		s.State, s.ClosedAt = sandbox.SessionClosed, of.Ending.At
	}
	return err
}

// sessionOf returns a session. Errors: NotFound, Invalid.
func sessionOf(tx *ledger.Tx, r sandbox.SessionRef) (*execs.Session, error) {
	if _, _, err := sandbox.ParseLeaseID(r.LeaseID); err != nil {
		return nil, err
	}
	s, err := execs.In(tx).SessionOf(r)
	if err == nil && s == nil {
		err = sandbox.Errorf(sandbox.NotFound, "lease %s has no session %s, or it is no longer kept: create it first",
			r.LeaseID, r.ID).WithReason(sandbox.ReasonSessionNotFound)
	}
	return s, err
}

// GetSession implements service.Sessions.
func (v *Service) GetSession(ctx context.Context, r sandbox.SessionRef) (view sandbox.Session, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		s, err := sessionOf(tx, r)
		if err == nil {
			view, err = sessionView(tx, s)
		}
		return err
	})
	return view, err
}

// ListSessions implements service.Sessions.
func (v *Service) ListSessions(ctx context.Context, f sandbox.SessionFilter) (list []sandbox.Session, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		if _, _, err := lifecycle.CurrentOf(tx, f.LeaseID); err != nil {
			return err
		}
		rows, err := execs.In(tx).ListSessions(f)
		for i := range rows {
			view, err := sessionView(tx, &rows[i])
			if err != nil {
				return err
			}
			list = append(list, view)
		}
		return err
	})
	return list, err
}

// closeSession deletes a session's variables, and refuses further commands.
func closeSession(tx *ledger.Tx, s *execs.Session) error {
	s.State, s.ClosedAt, s.SealedEnv = sandbox.SessionClosed, tx.Now, nil
	return execs.In(tx).SaveSession(s)
}

// CloseAll closes the sessions of a sandbox that is gone.
func (v *Service) CloseAll(tx *ledger.Tx, sandboxID string) error {
	open, err := execs.In(tx).OpenSessions(sandboxID)
	for i := range open {
		if err == nil {
			err = closeSession(tx, &open[i])
		}
	}
	return err
}

// CloseSession implements service.Sessions.
func (v *Service) CloseSession(ctx context.Context, r sandbox.SessionRef) (view sandbox.Session, err error) {
	err = v.Store.Write(ctx, func(tx *ledger.Tx) error {
		row, err := sessionOf(tx, r)
		if err != nil {
			return err
		}
		if row.State == sandbox.SessionOpen {
			err := tx.Update(row.SandboxID, func(s *ledger.Sandbox) error {
				return errors.Join(tx.AppendSandboxEvent(s, sandbox.EventSessionClosed, map[string]any{"session_id": row.ID}),
					closeSession(tx, row))
			})
			if err != nil {
				return err
			}
		}
		view, err = sessionView(tx, row)
		return err
	})
	if err != nil || view.ExecID == "" {
		return view, err
	}
	if _, err := v.Cancel(ctx, sandbox.ExecRef{LeaseID: view.LeaseID, ID: view.ExecID}); err != nil {
		return view, err
	}
	return v.GetSession(ctx, sandbox.SessionRef{LeaseID: view.LeaseID, Generation: view.Generation, ID: view.ID})
}

// ListSessionEvents implements service.Sessions.
func (v *Service) ListSessionEvents(ctx context.Context,
	f sandbox.SessionEventFilter) (events []sandbox.SessionEvent, err error) {
	if err := f.CheckLimit(); err != nil {
		return nil, err
	}
	events, _, err = v.sessionEvents(ctx, f)
	return events, err
}

// sessionEvents returns a page of a recording, and whether the recording is over and this page is its last.
func (v *Service) sessionEvents(ctx context.Context,
	f sandbox.SessionEventFilter) (events []sandbox.SessionEvent, last bool, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		s, err := sessionOf(tx, f.SessionRef)
		if err != nil {
			return err
		}
		if s.DroppedAt != 0 {
			return output.ErrDropped("the recording of session "+s.ID, s.DroppedAt)
		}
		if f.After < 0 || f.After > s.LastSequence {
			return sandbox.Errorf(sandbox.Invalid, "session %s has issued sequences 1 to %d, and %d is not one of them",
				s.ID, s.LastSequence, f.After)
		}
		view, err := sessionView(tx, s)
		if err != nil {
			return err
		}
		rows, err := execs.In(tx).SessionEvents(s, f.After, f.Limit)
		for i := range rows {
			events = append(events, rows[i].Domain())
		}
		last = view.State == sandbox.SessionClosed && view.ExecID == "" && f.After+int64(len(rows)) >= s.LastSequence
		return err
	})
	return events, last, err
}

// FollowSessionEvents implements service.Sessions.
func (v *Service) FollowSessionEvents(ctx context.Context, f sandbox.SessionEventFilter,
	yield func(sandbox.SessionEvent) error) error {
	f.Limit = 0
	return lifecycle.Follow(ctx, v.Store, v.Life, func() ([]sandbox.SessionEvent, lifecycle.Next, error) {
		events, last, err := v.sessionEvents(ctx, f)
		n := len(events)
		switch {
		case last:
			return events, lifecycle.End, err
		case n == 0:
			return nil, lifecycle.Wait, err
		}
		f.After = events[n-1].Sequence
		return events, lifecycle.More, err
	}, yield, nil)
}
