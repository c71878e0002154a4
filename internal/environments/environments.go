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

// Checker refuses settings of environments that this program cannot serve.
type Checker interface {
	// Check changes nothing. Errors: Invalid, and others of the part.
	Check(p sandbox.PutEnvironment) error
}

// Config configures a Service. All of it is required but Host.
type Config struct {
	Core  *lifecycle.Core
	Store *ledger.Store
	IDs   sandbox.IDs
	// Checkers are asked in order, before the backend is.
	Checkers []Checker
	// Host is what sandboxes may have of this machine; nil allows nothing.
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
	p, err := v.withDefaults(ctx, p)
	if err != nil {
		return sandbox.Environment{}, err
	}
	x, instance, err := v.admit(ctx, p)
	if err != nil {
		return sandbox.Environment{}, err
	}
	sealed, err := v.Secrets.Seal(p)
	if err != nil {
		return sandbox.Environment{}, err
	}
	if err := v.check(ctx, x, p, instance); err != nil { // what is refused changes nothing
		return sandbox.Environment{}, err
	}
	var before sandbox.EnvironmentSpec
	claim, err := v.claim(ctx, p.ID, func(tx *ledger.Tx, row *ledger.Environment) error {
		if row != nil {
			before = row.Spec
		}
		if err := v.write(tx, row, p, x, instance); err != nil {
			return err
		}
		return v.Secrets.Keep(tx, p, before, sealed)
	})
	if err != nil {
		return sandbox.Environment{}, err
	}
	brokers := p.HasCredentials() || before.HasCredentials()
	if err := v.provision(ctx, x, p, brokers, instance, claim); err != nil {
		return sandbox.Environment{}, err
	}
	return v.GetEnvironment(ctx, p.ID)
}

// admit checks all of a request that needs no call to its backend, once that is reached, and returns the backend with
// the instance that answers.
func (v *Service) admit(ctx context.Context,
	p sandbox.PutEnvironment) (x *lifecycle.Backend, instance string, err error) {
	if err := p.Validate(); err != nil {
		return nil, "", err
	}
	if err := p.Tenant.Check(p.EnvironmentSpec); err != nil {
		return nil, "", err
	}
	if x, err = v.Core.BackendFor(p.Backend); err != nil {
		return nil, "", err
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

// write stores what a request wants of an environment, whose row is nil where there is none.
func (v *Service) write(tx *ledger.Tx, row *ledger.Environment, p sandbox.PutEnvironment, x *lifecycle.Backend,
	instance string) error {
	err := checkUnchanged(row, p)
	if err != nil {
		return err
	}
	if row == nil || row.Status == sandbox.EnvironmentDestroyed || row.Unmade() {
		err = create(tx, row, p, instance)
	} else {
		err = v.change(tx, row, p, instance)
	}
	if err == nil && x.HasWitness() {
		err = witnesses.In(tx).Issue(instance)
	}
	if err == nil && p.HasCredentials() {
		err = modelcalls.In(tx).Begin(instance, p.ID)
	}
	return err
}

// withDefaults fills in what the settings leave out. An environment that exists may keep its size.
func (v *Service) withDefaults(ctx context.Context, p sandbox.PutEnvironment) (sandbox.PutEnvironment, error) {
	err := v.Store.Read(ctx, func(tx *ledger.Tx) error {
		row, err := tx.Environment(p.ID)
		if err == nil && row != nil && row.Status != sandbox.EnvironmentDestroyed && !row.Unmade() {
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

// ProvisionTimeout bounds what a backend does to make an environment, or to repair what it has. It is longer where the
// backend may have to take or pull an image.
func ProvisionTimeout(x driver.Executor, pull sandbox.ImagePull) time.Duration {
	if x.Capabilities().TakesImages || pull == sandbox.PullMissing {
		return lifecycle.SpawnTimeout + driver.ImageLimit
	}
	return lifecycle.SpawnTimeout
}

// create stores a new environment, or the next life of one that is destroyed or was never made.
func create(tx *ledger.Tx, old *ledger.Environment, p sandbox.PutEnvironment, instance string) error {
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

// change stores new settings. Living leases follow in time and conditions, not in size
// and image.
func (v *Service) change(tx *ledger.Tx, row *ledger.Environment, p sandbox.PutEnvironment,
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
			row.Epoch = p.Epoch
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

// changedNames returns the JSON names of the top-level settings that a request changes, sorted; values of secrets count
// as changed where they are given. The values may be secret.
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

// Follow gives a live lease the times and conditions of its environment's settings where it has none of its own. It
// runs within an Update of the row. An ended lease stays as it is.
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
