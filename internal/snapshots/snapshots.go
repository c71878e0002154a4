package snapshots

import (
	"context"
	"io"
	"log/slog"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Store stores archives of /data; snapshotstore.Store defines the contract.
type Store interface {
	Save(ctx context.Context, object string, data io.Reader, limit int64) (snapshotstore.Archive, error)
	Load(ctx context.Context, a snapshotstore.Archive) (io.ReadCloser, error)
	Delete(ctx context.Context, object string) error
}

// Config configures a Service. All fields except Objects are required.
type Config struct {
	Core   *lifecycle.Core
	Ledger *ledger.Store
	// Objects stores the archives. Without it, environments cannot keep snapshots.
	Objects Store
	// Life ends when the service closes. Long calls are then interrupted, and another process repeats them.
	Life context.Context
	// Uses reports whether a use, named by its holder, belongs to this process.
	Uses func(holder string) bool
	Log  *slog.Logger
}

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct {
	Config
	// saving holds one element for each running save.
	saving chan struct{}
}

var (
	_ lifecycle.Planner  = (*Service)(nil)
	_ lifecycle.Admitter = (*Service)(nil)
	_ lifecycle.Preparer = (*Service)(nil)
	_ lifecycle.Actor    = (*Service)(nil)
	_ lifecycle.Settler  = (*Service)(nil)
	_ lifecycle.Vanisher = (*Service)(nil)
	_ lifecycle.Waiter   = (*Service)(nil)
)

// New returns a Service.
func New(c Config) *Service { return &Service{Config: c, saving: make(chan struct{}, savers)} }

// Check rejects an environment with snapshots if there is no store. Errors: Invalid.
func (v *Service) Check(p sandbox.PutEnvironment) error {
	if p.Snapshot == nil || v.Objects != nil {
		return nil
	}
	return sandbox.InvalidFields("environment "+p.ID, []sandbox.Field{{Name: "state", Problem: errNoStore.Message}})
}

// interrupted reports whether a reconciler died while it had frozen a sandbox that is wanted awake.
func interrupted(s *ledger.Sandbox, now micro.Time) bool {
	return s.Phase == sandbox.PhaseAwake && s.Claim.For == string(lifecycle.Save) && !s.Claim.Holds(now)
}

// mustSave reports whether a sandbox is saved before its removal. A sandbox that was never ready has no data.
func mustSave(s *ledger.Sandbox) bool { return s.Snapshot.Holds() && s.ReadyAt != 0 }

// standsStill reports whether the code of a sandbox that will be removed is known to have stopped for good. One that
// sleeps may run all the same: a wake may have had no answer.
func standsStill(s *ledger.Sandbox) bool {
	return s.Phase != sandbox.PhaseAwake && (s.Status.StopReason == sandbox.StopLastSave || s.Halted())
}

// Plan implements lifecycle.Planner. Before a stop loses the sandbox's memory, its changes are saved. There is one
// attempt: a sandbox that cannot be saved sleeps nevertheless. A sandbox that will be removed is frozen first, because
// it may wait long for its turn to be saved.
func (v *Service) Plan(s *ledger.Sandbox, p lifecycle.Point, now micro.Time) (lifecycle.Action, micro.Time) {
	switch {
	case p == lifecycle.Interrupted && interrupted(s, now):
		return lifecycle.Thaw, now
	case p == lifecycle.BeforeSleep && s.SleepMode == sandbox.SleepStop && s.Snapshot.Untried():
		return lifecycle.Save, now
	case p == lifecycle.BeforeKill && mustSave(s) && !standsStill(s):
		return lifecycle.Freeze, now
	case p == lifecycle.BeforeKill && mustSave(s):
		return lifecycle.Save, now
	case p == lifecycle.Idle:
		if at := checkpointAt(s); at != micro.Never {
			return lifecycle.Save, at
		}
	}
	return lifecycle.None, micro.Never
}

// checkpointAt is when the next checkpoint of a live sandbox is due, Never if there is none. After a
// permanent failure there is no retry until the data changes.
func checkpointAt(s *ledger.Sandbox) micro.Time {
	st := &s.Snapshot
	if !s.Snapshot.Unsaved() || *st.Spec.CheckpointEvery == 0 {
		return micro.Never
	}
	pace := micro.SpanOf(*st.Spec.CheckpointEvery)
	if st.ErrorCode != "" {
		pace = max(pace, micro.SpanOf(failedCheckpointPace))
		if !s.Snapshot.Untried() && st.ErrorCode == sandbox.Invalid {
			return micro.Never
		}
	}
	if st.TriedAt == 0 {
		return st.ChangedAt
	}
	return max(st.ChangedAt, st.TriedAt.Add(pace))
}

// Admit implements lifecycle.Admitter: a sandbox gets its role before it begins, or waits; a save waits for
// its turn.
func (v *Service) Admit(tx *ledger.Tx, s *ledger.Sandbox, a lifecycle.Action) (bool, error) {
	switch a {
	case lifecycle.Spawn, lifecycle.Assign:
		return v.takeRole(tx, s)
	case lifecycle.Freeze:
		return v.admitFreeze(tx, s)
	case lifecycle.Save:
		return v.admitSave(tx, s)
	default:
		return true, nil
	}
}

// Settled implements lifecycle.Settler: a sandbox that is gone holds no snapshot.
func (v *Service) Settled(tx *ledger.Tx, s *ledger.Sandbox, t *lifecycle.Step) error {
	if t.Action != lifecycle.Kill {
		return nil
	}
	return letGo(tx, s, sandbox.RoleDone)
}

// ListSnapshots implements service.Snapshots.
func (v *Service) ListSnapshots(ctx context.Context, f sandbox.SnapshotFilter) (states []sandbox.Snapshot, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	err = v.Ledger.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := bucketobjects.In(tx).List(f)
		states = make([]sandbox.Snapshot, len(rows))
		for i := range rows {
			states[i] = rows[i].Domain()
		}
		return err
	})
	return states, err
}

// DeleteSnapshot implements service.Snapshots. The object is deleted later, after the last reader.
func (v *Service) DeleteSnapshot(ctx context.Context, key string) error {
	return v.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		saved, err := bucketobjects.In(tx).Saved(key)
		if err != nil {
			return err
		}
		if saved == nil {
			return sandbox.Errorf(sandbox.NotFound, "there is no snapshot with key %q on this ledger", key)
		}
		holder, err := bucketobjects.In(tx).Holder(key)
		if err != nil {
			return err
		}
		if holder != nil && holder.ReadyAt != 0 {
			return sandbox.Errorf(sandbox.Conflict, "the snapshot of %s is held by generation %d of lease %s, which would save "+
				"it again: release that lease first", key, holder.Generation, holder.Lease()).WithReason(sandbox.ReasonActiveLeases)
		}
		return bucketobjects.In(tx).Remove(key, tx.Now.Add(micro.SpanOf(KeepReplaced)))
	})
}
