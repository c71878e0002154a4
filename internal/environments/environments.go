package environments

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/billing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/witnesses"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/secrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/warmpool"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Checker refuses settings that this program cannot serve.
type Checker interface {
	// Check changes nothing. Errors: Invalid, and others of the checker.
	Check(p sandbox.PutEnvironment) error
}

// Config configures a Service. All fields are required except Host.
type Config struct {
	Core  *lifecycle.Core
	Store *ledger.Store
	IDs   sandbox.IDs
	// Checkers are called in order, before the backend's checks.
	Checkers []Checker
	// Host is what sandboxes may use of this machine; nil allows nothing.
	Host    *host.Host
	Secrets *secrets.Service
	LLM     *llm.Service
	Billing *billing.Service
	Pools   *warmpool.Service
	Log     *slog.Logger
}

// Service implements service.Environments. It is safe for concurrent use, by any number of processes on one ledger.
type Service struct{ Config }

var _ service.Environments = (*Service)(nil)

// New returns a Service.
func New(c Config) *Service { return &Service{c} }

// PutEnvironment implements service.Environments. It writes the row, with a claim, before it calls the backend. If the
// first Provision fails, the environment is removed. If that fails too, its status stays deleting.
func (v *Service) PutEnvironment(ctx context.Context, p sandbox.PutEnvironment) (sandbox.Environment, error) {
	a, err := v.ask(ctx, p)
	if err != nil { // a refused request changes nothing
		return sandbox.Environment{}, err
	}
	p = a.PutEnvironment
	var before sandbox.EnvironmentSpec
	claim, err := v.claim(ctx, p.ID, func(tx *ledger.Tx, row *ledger.Environment) error {
		if err := v.allow(tx, row, a); err != nil {
			return err
		}
		if row != nil {
			before = row.Spec
		}
		if err := v.write(tx, row, a); err != nil {
			return err
		}
		return v.Secrets.Keep(tx, p, before, a.sealed)
	})
	if err != nil {
		return sandbox.Environment{}, err
	}
	brokers := p.HasCredentials() || before.HasCredentials()
	if err := v.provision(ctx, a.on, p, brokers, a.instance, claim); err != nil {
		return sandbox.Environment{}, err
	}
	return v.GetEnvironment(ctx, p.ID)
}

// CheckEnvironment implements service.Environments.
func (v *Service) CheckEnvironment(ctx context.Context, p sandbox.PutEnvironment) error {
	a, err := v.ask(ctx, p)
	if err != nil {
		return err
	}
	return v.Store.Read(ctx, func(tx *ledger.Tx) error {
		row, err := tx.Environment(p.ID)
		if err != nil {
			return err
		}
		return v.allow(tx, row, a)
	})
}

// asked is a request that has passed all checks except those against the ledger.
type asked struct {
	sandbox.PutEnvironment // with defaults
	on                     *lifecycle.Backend
	instance               string            // the connected one
	sealed                 map[string][]byte // the values of secrets
}

// ask completes and checks a request. It changes nothing.
func (v *Service) ask(ctx context.Context, p sandbox.PutEnvironment) (a asked, err error) {
	if a.PutEnvironment, err = v.withDefaults(ctx, p); err != nil {
		return a, err
	}
	if a.on, a.instance, err = v.admit(ctx, a.PutEnvironment); err != nil {
		return a, err
	}
	if a.sealed, err = v.Secrets.Seal(a.PutEnvironment); err != nil {
		return a, err
	}
	return a, v.check(ctx, a.on, a.PutEnvironment, a.instance)
}

// admit makes all checks of a request that need no call to its backend, and connects to the backend. It returns the
// backend and the connected instance.
func (v *Service) admit(ctx context.Context,
	p sandbox.PutEnvironment) (x *lifecycle.Backend, instance string, err error) {
	if err := p.Validate(); err != nil {
		return nil, "", err
	}
	if err := p.Tenant.Check(p.EnvironmentSpec); err != nil {
		return nil, "", err
	}
	if x, err = v.Core.BackendFor(p.Backend); err != nil {
		return nil, "", sandbox.InvalidFields("environment "+p.ID,
			[]sandbox.Field{{Name: "backend", Problem: lifecycle.NotConfigured(p.Backend)}})
	}
	for _, c := range v.Checkers {
		if err := c.Check(p); err != nil {
			return nil, "", err
		}
	}
	if instance, err = x.Reach(ctx); err != nil {
		return nil, "", err
	}
	if p.Instance != "" && p.Instance != instance {
		return nil, "", sandbox.Errorf(sandbox.Conflict, "environment %s has instance %q, and the "+
			"%s instance that answers here is %s: omit instance, set it to that one, or connect to the one that it names",
			p.ID, p.Instance, p.Backend, instance).WithReason(sandbox.ReasonOtherInstance)
	}
	return x, instance, v.Host.Check("environment "+p.ID, p.HostAccess)
}

// allow refuses a request that the environment, its sandboxes or other environments rule out. row is nil if there is no
// environment.
func (v *Service) allow(tx *ledger.Tx, row *ledger.Environment, a asked) error {
	err := checkUnchanged(row, a.PutEnvironment)
	if err != nil {
		return err
	}
	if isNew(row) {
		err = mayCreate(tx, row, a)
	} else {
		err = mayChange(tx, row, a)
	}
	if err != nil {
		return err
	}
	return v.Secrets.Check(tx, a.PutEnvironment)
}

// isNew reports whether a request creates the environment, or recreates one that was destroyed or never made.
func isNew(row *ledger.Environment) bool {
	return row == nil || row.Status == sandbox.EnvironmentDestroyed || row.Unmade()
}

// write stores an allowed request.
func (v *Service) write(tx *ledger.Tx, row *ledger.Environment, a asked) (err error) {
	if isNew(row) {
		err = create(tx, row, a.PutEnvironment, a.instance)
	} else {
		err = v.change(tx, row, a.PutEnvironment, a.instance)
	}
	if err == nil && a.on.HasWitness() {
		err = witnesses.In(tx).Issue(a.instance)
	}
	if err == nil && a.HasCredentials() {
		err = modelcalls.In(tx).Begin(a.instance, a.ID)
	}
	return err
}

// withDefaults fills in settings that the request omits. An existing environment may keep its size.
func (v *Service) withDefaults(ctx context.Context, p sandbox.PutEnvironment) (sandbox.PutEnvironment, error) {
	err := v.Store.Read(ctx, func(tx *ledger.Tx) error {
		row, err := tx.Environment(p.ID)
		if err == nil && !isNew(row) {
			p.EnvironmentSpec = p.Keeping(row.Spec)
		}
		return err
	})
	return p.WithDefaults(), err
}

func (v *Service) check(ctx context.Context, x *lifecycle.Backend, p sandbox.PutEnvironment,
	instance string) error {
	ctx, cancel := context.WithTimeout(ctx, ProvisionTimeout(x, p.ImagePull))
	defer cancel()
	return lifecycle.AsError(x.Check(ctx, v.Core.EnvironmentRef(p.ID, instance), p.EnvironmentSpec))
}

// ProvisionTimeout limits how long a backend may take to make an environment or to repair its shared resources. It is
// longer if the backend may copy or pull an image.
func ProvisionTimeout(x driver.Executor, pull sandbox.ImagePull) time.Duration {
	if x.Capabilities().TakesImages || pull == sandbox.PullMissing {
		return lifecycle.SpawnTimeout + driver.ImageLimit
	}
	return lifecycle.SpawnTimeout
}

// create stores a new environment, or recreates one that was destroyed or never made.
func create(tx *ledger.Tx, old *ledger.Environment, p sandbox.PutEnvironment, instance string) error {
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

// mayCreate refuses an environment whose unfinished creation is on another backend instance, and one that exceeds the
// tenant's ceiling.
func mayCreate(tx *ledger.Tx, old *ledger.Environment, a asked) error {
	if old != nil && old.Unmade() && (old.Backend != a.Backend || old.Instance != a.instance) {
		return sandbox.Errorf(sandbox.Conflict, "environment %s: its creation on %s instance %s has not come to its end, "+
			"and may have left something there: delete it first", a.ID, old.Backend, old.Instance)
	}
	t := a.Tenant
	if t == nil || t.Ceiling.Environments == 0 {
		return nil
	}
	rows, err := tx.Environments()
	if err != nil {
		return err
	}
	there := int64(0)
	for i := range rows {
		if rows[i].ID != a.ID && sandbox.MatchesEnvironment(t.Environments, rows[i].ID) {
			there++
		}
	}
	return t.CheckEnvironments(there)
}

// mayChange refuses changes that an existing environment or its sandboxes rule out.
func mayChange(tx *ledger.Tx, row *ledger.Environment, a asked) error {
	conflict := func(format string, args ...any) *sandbox.Error {
		return sandbox.Errorf(sandbox.Conflict, "environment "+a.ID+" "+format, args...)
	}
	switch {
	case row.Status == sandbox.EnvironmentDeleting:
		return conflict("is being deleted, and nothing was changed: wait until it no longer exists, then create it " +
			"again; if its deletion failed or was interrupted, delete it again first")
	case a.CreateOnly:
		return conflict("exists already and belongs to %s: import it, or choose another name", row.Owner).
			WithReason(sandbox.ReasonOtherOwner)
	case row.Owner != a.Owner:
		return conflict("belongs to %s and not to %s: nothing was changed", row.Owner, a.Owner).
			WithReason(sandbox.ReasonOtherOwner)
	case a.Epoch != 0 && a.Epoch < row.Epoch:
		return conflict("is in epoch %d, which cannot go back to %d", row.Epoch, a.Epoch)
	case a.Backend == row.Backend && a.instance != row.Instance && a.Instance == "":
		return conflict("is on %s instance %s, and instance %s answers here: nothing was changed. Connect to that one, "+
			"or ask a reconciler that reaches it; to move the environment, name %s as its instance",
			row.Backend, row.Instance, a.instance, a.instance).WithReason(sandbox.ReasonOtherInstance)
	case a.Backend == row.Backend && a.instance == row.Instance:
		return nil
	}
	rows, err := tx.LeasedSandboxes(a.ID)
	if err == nil && len(rows) > 0 {
		err = conflict("has %d sandboxes on %s instance %s: end their leases before it moves to %s instance %s",
			len(rows), row.Backend, row.Instance, a.Backend, a.instance).WithReason(sandbox.ReasonActiveLeases)
	}
	return err
}

// change stores new settings. Live leases take over times and conditions, but keep their size and image.
func (v *Service) change(tx *ledger.Tx, row *ledger.Environment, p sandbox.PutEnvironment,
	instance string) error {
	rows, err := tx.LeasedSandboxes(p.ID)
	if err != nil {
		return err
	}
	err = tx.UpdateRows(rows, func(s *ledger.Sandbox) error {
		if s.Snapshot.Follow(p.Snapshot) && s.Snapshot.FailingSince != 0 { // the next try need not wait
			s.Schedule.DueAt = min(s.Schedule.DueAt, tx.Now)
		}
		v.Follow(tx, s, p.EnvironmentSpec)
		return nil
	})
	if err != nil {
		return err
	}
	return tx.UpdateEnvironmentRow(row, func(row *ledger.Environment) error {
		changed, err := changedNames(row, p, instance)
		if err != nil {
			return err
		}
		if p.Epoch > row.Epoch {
			if err := reopen(tx, row); err != nil {
				return err
			}
			row.Epoch, row.OpenedAt = p.Epoch, tx.Now // late conditions of the game before do not end this one
		}
		row.Type, row.Backend, row.Instance, row.Spec = p.Type, p.Backend, instance, p.EnvironmentSpec
		row.Pool = ledger.PoolFailures{}
		if len(changed) == 0 {
			return nil
		}
		return tx.AppendEnvironmentEvent(p.ID, sandbox.EventEnvironmentUpdated,
			map[string]any{"image": p.Image, "changed": changed})
	})
}

// changedNames returns the sorted JSON names of the top-level settings that a request changes. Given values of secrets
// count as changed. It returns names only, because values may be secret.
func changedNames(row *ledger.Environment, p sandbox.PutEnvironment, instance string) ([]string, error) {
	var settings [2]map[string]json.RawMessage
	for i, spec := range []sandbox.EnvironmentSpec{row.Spec, p.EnvironmentSpec} {
		text, err := json.Marshal(spec)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &settings[i]); err != nil {
			return nil, err
		}
	}
	names := map[string]bool{
		"type": row.Type != p.Type, "backend": row.Backend != p.Backend, "instance": row.Instance != instance,
		"epoch": p.Epoch > row.Epoch, "secret_values": len(p.SecretValues) > 0,
	}
	for _, of := range settings {
		for name := range of {
			names[name] = names[name] || !bytes.Equal(settings[0][name], settings[1][name])
		}
	}
	maps.DeleteFunc(names, func(_ string, isChanged bool) bool { return !isChanged })
	return slices.Sorted(maps.Keys(names)), nil
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

// Follow gives a live lease the environment's times and conditions where it has none of its own. It runs within an
// Update of the row. An ended lease does not change.
func (v *Service) Follow(tx *ledger.Tx, s *ledger.Sandbox, spec sandbox.EnvironmentSpec) {
	if s.Desired != ledger.Present {
		return
	}
	before := s.Terms.Limits()
	s.Terms.Follow(spec)
	if s.Terms.Limits() != before {
		v.Core.MarkRenewalPending(tx, s)
	}
	s.Schedule.DueAt = tx.Now
}
