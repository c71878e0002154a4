package leasing

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/counts"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/witnesses"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// PutEnvironment implements service.Environments. The row is written, with a claim, before the backend is
// called (provisioning.go); an environment that could not be made for the first time is not kept, unless what was
// made of it cannot be removed: then it stays as one that is being deleted.
func (e *Engine) PutEnvironment(ctx context.Context, p sandbox.PutEnvironment) (sandbox.Environment, error) {
	p, err := e.withDefaults(ctx, p)
	if err != nil {
		return sandbox.Environment{}, err
	}
	if err := p.Validate(); err != nil {
		return sandbox.Environment{}, err
	}
	if err := p.Tenant.Check(p.EnvironmentSpec); err != nil {
		return sandbox.Environment{}, err
	}
	x, err := e.BackendFor(p.Backend)
	if err != nil {
		return sandbox.Environment{}, err
	}
	if err := e.snapshots.Check(p); err != nil {
		return sandbox.Environment{}, err
	}
	if err := e.workspace.Check(p); err != nil {
		return sandbox.Environment{}, err
	}
	if err := e.archives.Check(p); err != nil {
		return sandbox.Environment{}, err
	}
	instance, err := x.Reach(ctx)
	if err != nil {
		return sandbox.Environment{}, err
	}
	if p.Instance != "" && p.Instance != instance {
		return sandbox.Environment{}, sandbox.Errorf(sandbox.Conflict, "environment %s is asked for on %s instance %s, "+
			"and instance %s answers here: connect to that one, or ask a reconciler that reaches it",
			p.ID, p.Backend, p.Instance, instance).WithReason(sandbox.ReasonOtherInstance)
	}
	if err := e.host.Check("environment "+p.ID, p.HostAccess); err != nil {
		return sandbox.Environment{}, err
	}
	sealed, err := e.secrets.Seal(p)
	if err != nil {
		return sandbox.Environment{}, err
	}
	if err := e.checkEnvironment(ctx, x, p, instance); err != nil { // what is refused changes nothing
		return sandbox.Environment{}, err
	}
	var before sandbox.EnvironmentSpec
	claim, err := e.claimEnvironment(ctx, p.ID, func(tx *ledger.Tx, row *ledger.Environment) error {
		err := checkUnchanged(row, p)
		if err != nil {
			return err
		}
		if row != nil {
			before = row.Spec
		}
		if row == nil || row.Status == sandbox.EnvironmentDestroyed || row.Unmade() {
			err = createEnvironment(tx, row, p, instance)
		} else {
			err = e.changeEnvironment(tx, row, p, instance)
		}
		if err == nil && x.HasWitness() {
			err = witnesses.In(tx).Issue(instance)
		}
		if err != nil {
			return err
		}
		if p.HasCredentials() {
			if err := modelcalls.In(tx).Begin(instance, p.ID); err != nil {
				return err
			}
		}
		return e.secrets.Keep(tx, p, before, sealed)
	})
	if err != nil {
		return sandbox.Environment{}, err
	}
	brokers := p.HasCredentials() || before.HasCredentials()
	if err := e.provision(ctx, x, p, brokers, instance, claim); err != nil {
		return sandbox.Environment{}, err
	}
	return e.GetEnvironment(ctx, p.ID)
}

// withDefaults fills in what the settings leave out. An environment that exists may keep its size.
func (e *Engine) withDefaults(ctx context.Context, p sandbox.PutEnvironment) (sandbox.PutEnvironment, error) {
	err := e.store.Read(ctx, func(tx *ledger.Tx) error {
		row, err := tx.Environment(p.ID)
		if err == nil && row != nil && row.Status != sandbox.EnvironmentDestroyed && !row.Unmade() {
			p.EnvironmentSpec = p.Keeping(row.Spec)
		}
		return err
	})
	return p.WithDefaults(), err
}

func (e *Engine) checkEnvironment(ctx context.Context, x *lifecycle.Backend, p sandbox.PutEnvironment,
	instance string) error {
	ctx, cancel := context.WithTimeout(ctx, provisionTimeout(x, p.ImagePull))
	defer cancel()
	return lifecycle.AsError(x.Check(ctx, e.EnvironmentRef(p.ID, instance), p.EnvironmentSpec))
}

// provisionTimeout bounds what a backend does to make an environment.
func provisionTimeout(x driver.Executor, pull sandbox.ImagePull) time.Duration {
	if x.Capabilities().TakesImages || pull == sandbox.PullMissing {
		return lifecycle.SpawnTimeout + driver.ImageLimit
	}
	return lifecycle.SpawnTimeout
}

// createEnvironment stores a new environment, or the next life of one that is destroyed or was never made.
func createEnvironment(tx *ledger.Tx, old *ledger.Environment, p sandbox.PutEnvironment, instance string) error {
	if old != nil && old.Unmade() && (old.Backend != p.Backend || old.Instance != instance) {
		return sandbox.Errorf(sandbox.Conflict, "environment %s: its creation on %s instance %s has not come to its end, "+
			"and may have left something there: delete it first", p.ID, old.Backend, old.Instance)
	}
	if err := mayCreate(tx, p.ID, p.Tenant); err != nil {
		return err
	}
	row := &ledger.Environment{
		ID: p.ID, Owner: p.Owner, Type: p.Type, Backend: p.Backend, Instance: instance, Spec: p.EnvironmentSpec,
		Status: sandbox.EnvironmentOpen, Epoch: p.Epoch, Ended: ledger.EnvironmentEnd{Conditions: []string{}},
		OpenedAt: tx.Now, CreatedAt: tx.Now, UpdatedAt: tx.Now, UnmadeSince: tx.Now,
	}
	if err := tx.AppendEnvironmentEvent(p.ID, sandbox.EventEnvironmentCreated,
		map[string]any{"owner": p.Owner, "type": p.Type, "image": p.Image}); err != nil {
		return err
	}
	if old == nil {
		return tx.CreateEnvironment(row)
	}
	return tx.ReplaceEnvironment(row)
}

// mayCreate refuses a tenant one more environment, beside the others, than its ceiling.
func mayCreate(tx *ledger.Tx, id string, t *sandbox.Tenant) error {
	if t == nil || t.Ceiling.Environments == 0 {
		return nil
	}
	rows, err := tx.Environments()
	if err != nil {
		return err
	}
	there := int64(0)
	for i := range rows {
		if rows[i].ID != id && sandbox.MatchesEnvironment(t.Environments, rows[i].ID) {
			there++
		}
	}
	return t.CheckEnvironments(there)
}

// changeEnvironment stores new settings. Living leases follow in time and conditions, not in size
// and image.
func (e *Engine) changeEnvironment(tx *ledger.Tx, row *ledger.Environment, p sandbox.PutEnvironment,
	instance string) error {
	conflict := func(format string, args ...any) *sandbox.Error {
		return sandbox.Errorf(sandbox.Conflict, "environment "+p.ID+" "+format, args...)
	}
	switch {
	case row.Status == sandbox.EnvironmentDeleting:
		return conflict("is being deleted: delete it again, which finishes that")
	case p.CreateOnly:
		return conflict("exists already and belongs to %s: import it, or choose another name", row.Owner).
			WithReason(sandbox.ReasonOtherOwner)
	case row.Owner != p.Owner:
		return conflict("belongs to %s and not to %s: nothing was changed", row.Owner, p.Owner).
			WithReason(sandbox.ReasonOtherOwner)
	case p.Epoch != 0 && p.Epoch < row.Epoch:
		return conflict("is in epoch %d, which cannot go back to %d", row.Epoch, p.Epoch)
	case p.Backend == row.Backend && instance != row.Instance && p.Instance == "":
		return conflict("is on %s instance %s, and instance %s answers here: nothing was changed. Connect to that one, "+
			"or ask a reconciler that reaches it; to move the environment, name %s as its instance",
			row.Backend, row.Instance, instance, instance).WithReason(sandbox.ReasonOtherInstance)
	}
	rows, err := tx.LeasedSandboxes(p.ID)
	if err != nil {
		return err
	}
	if len(rows) > 0 && (p.Backend != row.Backend || instance != row.Instance) {
		return conflict("has %d sandboxes on %s instance %s: end their leases before it moves to %s instance %s",
			len(rows), row.Backend, row.Instance, p.Backend, instance).WithReason(sandbox.ReasonActiveLeases)
	}
	err = tx.UpdateRows(rows, func(s *ledger.Sandbox) error {
		s.Snapshot.Follow(p.Snapshot)
		e.followEnvironment(tx, s, p.EnvironmentSpec)
		return nil
	})
	if err != nil {
		return err
	}
	return tx.UpdateEnvironmentRow(row, func(row *ledger.Environment) error {
		if p.Epoch > row.Epoch {
			if err := reopen(tx, row); err != nil {
				return err
			}
			row.Epoch = p.Epoch
		}
		row.Type, row.Backend, row.Instance, row.Spec = p.Type, p.Backend, instance, p.EnvironmentSpec
		row.Pool = ledger.PoolFailures{}
		return tx.AppendEnvironmentEvent(p.ID, sandbox.EventEnvironmentUpdated, map[string]any{"image": p.Image})
	})
}

// checkUnchanged checks PutEnvironment.Was.
func checkUnchanged(row *ledger.Environment, p sandbox.PutEnvironment) error {
	if p.Was == nil || row != nil && row.Status != sandbox.EnvironmentDestroyed && reflect.DeepEqual(row.Spec, *p.Was) {
		return nil
	}
	return sandbox.Errorf(sandbox.Conflict,
		"environment %s was changed meanwhile: nothing was changed; read it again", p.ID).
		WithReason(sandbox.ReasonOtherSettings)
}

// followEnvironment gives a living lease its environment's changed times and conditions, where
// it has none of its own.
func (e *Engine) followEnvironment(tx *ledger.Tx, s *ledger.Sandbox, spec sandbox.EnvironmentSpec) {
	if s.Desired != ledger.Present {
		return
	}
	before := s.Terms.Limits()
	s.Terms.Follow(spec)
	if s.Terms.Limits() != before {
		e.OweRenewal(tx, s)
	}
	s.Schedule.DueAt = tx.Now
}

// GetEnvironment implements service.Environments.
func (e *Engine) GetEnvironment(ctx context.Context, id string) (sandbox.Environment, error) {
	env, err := e.environment(ctx, id)
	if err == nil {
		env.Drift, err = e.examineDeployment(ctx, env)
	}
	return env, err
}

// environment reads one from the ledger.
func (e *Engine) environment(ctx context.Context, id string) (env sandbox.Environment, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		row, err := tx.KnownEnvironment(id)
		if err != nil {
			return err
		}
		views, err := e.environmentViews(tx, []ledger.Environment{*row})
		if err == nil {
			env = views[0]
		}
		return err
	})
	return env, err
}

// ListEnvironments implements service.Environments.
func (e *Engine) ListEnvironments(ctx context.Context) (envs []sandbox.Environment, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := tx.Environments()
		if err == nil {
			envs, err = e.environmentViews(tx, rows)
		}
		return err
	})
	return envs, err
}

// environmentViews returns environments as their readers know them, with leases, drift, budget and pool. It is for
// transactions that read: in others the position of the events is not known.
func (e *Engine) environmentViews(tx *ledger.Tx, rows []ledger.Environment) ([]sandbox.Environment, error) {
	feed, err := tx.Feed()
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	leases, err := counts.In(tx).Leases(ids)
	if err != nil {
		return nil, err
	}
	found, err := drift.In(tx).CountOf(ids)
	if err != nil {
		return nil, err
	}
	envs := make([]sandbox.Environment, len(rows))
	for i := range rows {
		envs[i] = environment(&rows[i])
		envs[i].LastEventID, envs[i].Leases, envs[i].OpenDrift = feed.Last, leases[ids[i]], found[ids[i]]
		if envs[i].BudgetUse, err = e.billing.BudgetUse(tx, &rows[i]); err != nil {
			return nil, err
		}
		if envs[i].Pool, err = e.pools.Status(tx, &rows[i]); err != nil {
			return nil, err
		}
	}
	return envs, nil
}

// ReopenEnvironment implements service.Environments.
func (e *Engine) ReopenEnvironment(ctx context.Context, id string) (sandbox.Environment, error) {
	err := e.store.Write(ctx, func(tx *ledger.Tx) error {
		row, err := tx.KnownEnvironment(id)
		if err != nil {
			return err
		}
		if row.Status != sandbox.EnvironmentOpen && row.Status != sandbox.EnvironmentClosed {
			return sandbox.Errorf(sandbox.Conflict, "environment %s is %s and cannot be reopened", id, row.Status)
		}
		return tx.UpdateEnvironmentRow(row, func(row *ledger.Environment) error { return reopen(tx, row) })
	})
	if err != nil {
		return sandbox.Environment{}, err
	}
	return e.GetEnvironment(ctx, id)
}

func reopen(tx *ledger.Tx, row *ledger.Environment) error {
	if row.Status != sandbox.EnvironmentClosed {
		return nil
	}
	row.Status, row.OpenedAt = sandbox.EnvironmentOpen, tx.Now
	row.Ended = ledger.EnvironmentEnd{Conditions: []string{}}
	return tx.AppendEnvironmentEvent(row.ID, sandbox.EventEnvironmentReopened, nil)
}

// DeleteEnvironment implements service.Environments.
func (e *Engine) DeleteEnvironment(ctx context.Context, d sandbox.DeleteEnvironment) error {
	var (
		row  *ledger.Environment
		left []ledger.Sandbox
	)
	err := e.store.Write(ctx, func(tx *ledger.Tx) (err error) {
		row, left, err = e.beginDelete(tx, d)
		return err
	})
	if err != nil || row.Status == sandbox.EnvironmentDestroyed {
		return err
	}
	for _, s := range left {
		if err := e.awaitGone(ctx, s.ID); err != nil {
			return err
		}
	}
	x, err := e.BackendFor(row.Backend)
	if err != nil {
		return err
	}
	claim, err := e.claimEnvironment(ctx, d.ID, func(_ *ledger.Tx, row *ledger.Environment) error {
		if row == nil || row.Status != sandbox.EnvironmentDeleting {
			return errFinished
		}
		return nil
	})
	if errors.Is(err, errFinished) {
		return nil
	}
	if err != nil {
		return err
	}
	return e.whileClaimed(ctx, d.ID, claim, func(ctx context.Context) error {
		return e.deprovision(ctx, x, row.ID, row.Instance, claim)
	})
}

// beginDelete closes an environment for ever and ends its leases, and returns what is left to go.
func (e *Engine) beginDelete(tx *ledger.Tx,
	d sandbox.DeleteEnvironment) (*ledger.Environment, []ledger.Sandbox, error) {
	row, err := tx.KnownEnvironment(d.ID)
	if err != nil || row.Status == sandbox.EnvironmentDestroyed {
		return row, nil, err
	}
	if d.Owner != "" && d.Owner != row.Owner {
		return nil, nil, sandbox.Errorf(sandbox.Conflict, "delete environment %s: it belongs to %s, not to %s",
			d.ID, row.Owner, d.Owner).WithReason(sandbox.ReasonOtherOwner)
	}
	rows, err := tx.LiveSandboxes(d.ID)
	if err != nil {
		return nil, nil, err
	}
	var active []string
	for i := range rows {
		held, err := tx.Holds().Until(rows[i].ID)
		if err != nil {
			return nil, nil, err
		}
		if !rows[i].Pooled() && rows[i].Live(held, tx.Now) {
			active = append(active, rows[i].Lease()+" of "+rows[i].Owner)
		}
	}
	if len(active) > 0 && !d.Force {
		slices.Sort(active)
		return nil, nil, sandbox.Errorf(sandbox.Conflict, "environment %s has %d active leases: %s; release them first, "+
			"or delete it with force", d.ID, len(active), strings.Join(active, ", ")).WithReason(sandbox.ReasonActiveLeases)
	}
	err = tx.UpdateRows(rows, func(s *ledger.Sandbox) error {
		if err := e.End(tx, s,
			lifecycle.Ending{By: sandbox.EndedByEnvironment, Reason: "its environment was destroyed", At: tx.Now}); err != nil {
			return err
		}
		s.Schedule.DueAt = tx.Now // a destroy that waits for its retry is tried now
		return lifecycle.EndRetention(tx, s, string(sandbox.EndedByEnvironment))
	})
	if err != nil {
		return nil, nil, err
	}
	return row, rows, tx.UpdateEnvironmentRow(row, func(row *ledger.Environment) error {
		row.Status = sandbox.EnvironmentDeleting
		return nil
	})
}

// awaitGone waits, working, until a sandbox is confirmed gone.
func (e *Engine) awaitGone(ctx context.Context, sandboxID string) error {
	err := e.Await(ctx, sandboxID,
		func(_ *ledger.Tx, s *ledger.Sandbox) (bool, error) { return s.Phase == sandbox.PhaseGone, nil })
	return lifecycle.AsError(err)
}

// mayLease refuses leases of an environment that has ended for them.
func mayLease(env *ledger.Environment, spec sandbox.EnvironmentSpec) error {
	if env.Unmade() {
		return sandbox.Errorf(sandbox.Unavailable, "environment %s: %w: ask again", env.ID, errUnmade)
	}
	switch env.Status {
	case sandbox.EnvironmentOpen:
		return nil
	case sandbox.EnvironmentClosed:
		for _, c := range env.Ended.Conditions {
			if slices.Contains(spec.ExpiryConditions, c) {
				return sandbox.Errorf(sandbox.EnvironmentEnded, "environment %s ended by %s at %s and gives no leases that end "+
					"with it: reopen it first (API, CLI, or a higher epoch in Terraform)",
					env.ID, c, env.Ended.At.Time().Format(time.RFC3339))
			}
		}
		return nil
	default:
		return sandbox.Errorf(sandbox.NotFound, "environment %s is %s: create it first", env.ID, env.Status)
	}
}

func environment(row *ledger.Environment) sandbox.Environment {
	return sandbox.Environment{
		ID: row.ID, Owner: row.Owner, EnvironmentSpec: row.Spec, Instance: row.Instance, Status: row.Status, Epoch: row.Epoch,
		EndedBy: row.Ended.By, EndedAt: row.Ended.At.Time(), CreatedAt: row.CreatedAt.Time(), UpdatedAt: row.UpdatedAt.Time(),
		PurgedAt: row.PurgedAt.Time(),
	}
}
