package workspace

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits of the work before the removal of a sandbox. The sandbox is frozen first, so its code cannot delay the removal
// by more than freezeTimeout.
const (
	leaveTimeout  = 30 * time.Second
	freezeTimeout = 12 * time.Second // longer than an executor tries
	pushTimeout   = 15 * time.Second
	// readers bounds how many workspaces this process reads at the same time. Each may take a few hundred MiB of
	// memory.
	readers = 8
	// again is the pause before a retry.
	again = time.Second
)

// leaving says what to save of an ended lease's workspace before its sandbox is removed.
type leaving struct {
	began sandbox.WorkspaceReady
	onEnd sandbox.WorkspaceEnd
	push  pushing
}

// Leaving implements lifecycle.Leaver: it keeps or pushes the commits. It fails only if the sandbox could not be
// removed either.
func (v *Service) Leaving(ctx context.Context, t *lifecycle.Step) error {
	disk, ok := t.On.(driver.DiskReader)
	if !ok || t.Row.Pooled() || t.Row.ReadyAt == 0 {
		return nil
	}
	l, err := v.leavingOf(ctx, &t.Row)
	if err != nil || l == nil {
		return err
	}
	within, cancel := v.untilClose(ctx, leaveTimeout)
	defer cancel()
	kept, forms, err := v.take(within, disk, t, l)
	switch {
	case v.Life.Err() != nil: // the next process does it again
		return lifecycle.ErrClosing
	case sandbox.IsRetryable(err) && !lifecycle.AnswersNow(ctx, t.On): // its sandbox cannot be removed either
		return err
	}
	return v.Store.Write(ctx, func(tx *ledger.Tx) error {
		return tx.Update(t.Row.ID, func(s *ledger.Sandbox) error {
			if s.Claim.Token != t.Claim {
				return nil
			}
			if err != nil {
				v.Log.WarnContext(ctx, "workspace: the commits of an ended lease are lost", lifecycle.About(s), "error", err)
				return tx.AppendSandboxEvent(s, sandbox.EventWorkspaceLost,
					sandbox.WorkspaceLost{Branch: l.began.Branch, Reason: err.Error()})
			}
			for form, bytes := range forms {
				if err := v.Outputs.KeepWorkspace(tx, s, form, bytes); err != nil {
					return err
				}
			}
			return tx.AppendSandboxEvent(s, sandbox.EventWorkspaceCollected, kept)
		})
	})
}

// leavingOf reads what to save. It returns nil if there is nothing to save, or if the outcome is already recorded.
func (v *Service) leavingOf(ctx context.Context, s *ledger.Sandbox) (l *leaving, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		began, err := beganIn(tx, s.ID)
		if err != nil || began == nil {
			return err
		}
		if outcome, err := outcomeIn(tx, s.ID); err != nil || outcome != nil {
			return err
		}
		env, err := tx.KnownEnvironment(s.EnvironmentID)
		if err != nil {
			return err
		}
		l = &leaving{began: *began, onEnd: onEnd(env)}
		if l.onEnd == sandbox.WorkspaceEndDiscard {
			l = nil
			return nil
		}
		l.push, err = pushingOf(tx, s)
		return err
	})
	return l, err
}

// onEnd returns what the current environment does with commits at the end of a lease. An environment without a
// workspace keeps them as a bundle.
func onEnd(env *ledger.Environment) sandbox.WorkspaceEnd {
	if w := env.Spec.WithDefaults().Workspace; w != nil {
		return w.OnEnd
	}
	return sandbox.WorkspaceEndBundle
}

// take freezes a sandbox, reads its repository, and pushes or stores the commits. It returns the size of each stored
// form.
func (v *Service) take(ctx context.Context, disk driver.DiskReader, t *lifecycle.Step,
	l *leaving) (kept sandbox.WorkspaceCollected, forms map[sandbox.WorkspaceForm]int64, err error) {
	if err := v.persist(ctx, func() error { return v.freeze(ctx, t) }); err != nil {
		return kept, nil, fmt.Errorf("its sandbox could not be frozen: %w", err)
	}
	select {
	case v.reading <- struct{}{}:
		defer func() { <-v.reading }()
	case <-ctx.Done():
		return kept, nil, sandbox.Errorf(sandbox.Timeout, "too many leases ended at once: %w", ctx.Err())
	}
	var collected *gitmirror.Collected
	err = v.persist(ctx, func() (err error) {
		collected, err = v.readDisk(ctx, disk, t.Handle, l.began)
		return err
	})
	if err != nil {
		return kept, nil, err
	}
	defer collected.Close()
	kept = sandbox.WorkspaceCollected{Branch: l.began.Branch, Commit: collected.Tip.String(),
		Commits: int64(collected.Commits)}
	if collected.Commits == 0 {
		return kept, nil, nil
	}
	if l.onEnd == sandbox.WorkspaceEndPush {
		within, cancel := context.WithTimeout(ctx, pushTimeout)
		pushed, err := v.push(within, l.push, l.began, collected)
		cancel()
		if kept.Pushed = pushed.Branch; err != nil {
			kept.Problem = fmt.Sprintf("it was not pushed: %s", err)
		}
	}
	forms = make(map[sandbox.WorkspaceForm]int64)
	if kept.Pushed == "" {
		kept.BundleBytes, err = v.store(ctx, t.Row.ID, sandbox.WorkspaceBundle, collected.Bundle)
		if err != nil {
			return kept, nil, err
		}
		forms[sandbox.WorkspaceBundle] = kept.BundleBytes
	}
	kept.DiffBytes, err = v.store(ctx, t.Row.ID, sandbox.WorkspaceDiff,
		func(w io.Writer) error { return collected.Diff(ctx, w) })
	if err != nil { // the commits have the changes
		kept.Problem = cmp.Or(kept.Problem, fmt.Sprintf("its diff is not kept: %s", err))
		return kept, forms, nil
	}
	forms[sandbox.WorkspaceDiff] = kept.DiffBytes
	return kept, forms, nil
}

// freeze stops all code of a sandbox, and records that. A sandbox that has stopped counts as frozen.
func (v *Service) freeze(ctx context.Context, t *lifecycle.Step) error {
	within, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	used := v.Core.Sampler.Sample(within, t) // if it fails, the usage of the last heartbeat stands
	if err := v.Core.StandStill(within, t); err != nil {
		return err
	}
	if t.Row.Phase != sandbox.PhaseAwake {
		return nil
	}
	err := v.Store.Write(ctx, func(tx *ledger.Tx) error {
		return tx.Update(t.Row.ID, func(s *ledger.Sandbox) error {
			if s.Claim.Token != t.Claim || s.Phase != sandbox.PhaseAwake {
				return nil
			}
			if err := lifecycle.AddSample(tx, s, t, used); err != nil {
				return err
			}
			s.Status.StopReason = sandbox.StopLastSave
			return v.Core.EnterPhase(tx, s, sandbox.PhaseAsleep, tx.Now, sandbox.EventAsleep,
				map[string]any{"mode": "frozen", "reason": s.Status.StopReason})
		})
	})
	if err == nil {
		t.Row.Phase = sandbox.PhaseAsleep
	}
	return err
}

// readDisk reads the repository of a frozen sandbox.
func (v *Service) readDisk(ctx context.Context, disk driver.DiskReader, h driver.Handle,
	began sandbox.WorkspaceReady) (*gitmirror.Collected, error) {
	stream, err := disk.ReadDisk(ctx, h, path.Join(began.Path, ".git"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }() // only read
	return gitmirror.Collect(ctx, stream, began.Branch, began.Commit, v.Limits)
}

// store stores a form of a workspace, and returns its size.
func (v *Service) store(ctx context.Context, sandboxID string, form sandbox.WorkspaceForm,
	write func(io.Writer) error) (int64, error) {
	spool, err := snapshotstore.NewSpool()
	if err != nil {
		return 0, err
	}
	defer spool.Discard()
	bounded := &boundedWriter{to: spool, left: v.Outputs.MaxWorkspace()}
	if err := write(bounded); err != nil {
		return 0, fmt.Errorf("its %s: %w", form, err)
	}
	err = v.persist(ctx, func() error {
		if _, err := spool.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return v.Outputs.StoreWorkspace(ctx, sandboxID, form, spool)
	})
	return v.Outputs.MaxWorkspace() - bounded.left, err
}

// persist retries retryable errors until try succeeds or ctx ends.
func (v *Service) persist(ctx context.Context, try func() error) error {
	for {
		err := try()
		if !sandbox.IsRetryable(err) || v.Pause(ctx, again) != nil {
			return err
		}
	}
}

// boundedWriter fails a write beyond a bound.
type boundedWriter struct {
	to   io.Writer
	left int64
}

func (b *boundedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, sandbox.Errorf(sandbox.Failed, "it is larger than what is kept of a lease: push the branch before the "+
			"lease ends, or have the operator keep more (--kept-output-lease)").
			WithReason(sandbox.ReasonResourceLimitExceeded)
	}
	n, err := b.to.Write(p)
	b.left -= int64(n)
	return n, err
}

// kept opens a kept form of an ended lease's workspace. Errors: LeaseEnded if nothing was to be kept, Unavailable until
// it is kept, OutputExpired if it is no longer kept, Conflict if there was no such form, Failed if it was lost.
func (v *Service) kept(ctx context.Context, s *ledger.Sandbox, form sandbox.WorkspaceForm,
	ended error) (io.ReadCloser, error) {
	var kept bool
	err := v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		if kept, err = execs.In(tx).KeptWorkspace(s.ID, form); err == nil && !kept {
			err = whyNotKept(tx, s, form, ended)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return v.Outputs.OpenWorkspace(ctx, s.ID, form)
}

// whyNotKept says why a form of the workspace of an ended lease cannot be read.
func whyNotKept(tx *ledger.Tx, s *ledger.Sandbox, form sandbox.WorkspaceForm, ended error) error {
	began, err := beganIn(tx, s.ID)
	if err != nil {
		return err
	}
	outcome, err := outcomeIn(tx, s.ID)
	if err != nil {
		return err
	}
	env, err := tx.KnownEnvironment(s.EnvironmentID)
	switch {
	case err != nil:
		return err
	case outcome == nil && began != nil && s.Phase != sandbox.PhaseGone && onEnd(env) != sandbox.WorkspaceEndDiscard:
		return sandbox.Errorf(sandbox.Unavailable, "%w; its workspace is read before its sandbox is removed: try again "+
			"in a moment", ended)
	case outcome == nil:
		return ended
	case outcome.lost != "":
		return sandbox.Errorf(sandbox.Failed, "%w; its workspace was lost: %s", ended, outcome.lost)
	case outcome.Commits == 0:
		return sandbox.Errorf(sandbox.Conflict, "%w; nothing was committed on branch %s", ended, outcome.Branch).
			WithReason(sandbox.ReasonInvalidState)
	case form == sandbox.WorkspaceBundle && outcome.BundleBytes == 0:
		return sandbox.Errorf(sandbox.Conflict, "%w; its commits were pushed to branch %s", ended, outcome.Pushed).
			WithReason(sandbox.ReasonInvalidState)
	case form == sandbox.WorkspaceDiff && outcome.DiffBytes == 0:
		return sandbox.Errorf(sandbox.Conflict, "%w; it has no diff: %s", ended,
			cmp.Or(outcome.Problem, "the commits change no file")).WithReason(sandbox.ReasonInvalidState)
	default:
		return sandbox.Errorf(sandbox.OutputExpired, "%w; its workspace was dropped to make room for newer output; read "+
			"it sooner, or have the operator keep more (--kept-output-lease, --kept-output-environment, --kept-output)", ended)
	}
}

// outcome says how a workspace was saved or lost at the end of its lease.
type outcome struct {
	sandbox.WorkspaceCollected
	lost string
}

// outcomeIn returns the outcome of a sandbox, nil if there is none yet.
func outcomeIn(tx *ledger.Tx, sandboxID string) (*outcome, error) {
	var o outcome
	if ok, err := lastEvent(tx, sandboxID, sandbox.EventWorkspaceCollected, &o.WorkspaceCollected); ok || err != nil {
		return &o, err
	}
	var lost sandbox.WorkspaceLost
	ok, err := lastEvent(tx, sandboxID, sandbox.EventWorkspaceLost, &lost)
	if !ok || err != nil {
		return nil, err
	}
	return &outcome{lost: cmp.Or(lost.Reason, "unknown")}, nil
}

// beganIn returns the initial state of a sandbox's workspace, nil if it had none.
func beganIn(tx *ledger.Tx, sandboxID string) (*sandbox.WorkspaceReady, error) {
	var ready sandbox.WorkspaceReady
	ok, err := lastEvent(tx, sandboxID, sandbox.EventWorkspaceReady, &ready)
	if !ok || err != nil {
		return nil, err
	}
	return &ready, nil
}
