// Package secrets stores the secrets of environments, sealed in the ledger, and delivers them to sandboxes. A
// sandbox that waits in a pool has none. It gets them in the step that creates, assigns or wakes it, before
// any command. When they change, the row marks a pending delivery, and the sandbox is not used before it.
package secrets

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sealedsecrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Deliver delivers changed secrets to an awake sandbox.
const Deliver lifecycle.Action = "deliver"

// putTimeout limits the delivery to one sandbox.
const putTimeout = 30 * time.Second

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct {
	store *ledger.Store
	keys  *seal.Keys
}

var (
	_ lifecycle.Planner  = (*Service)(nil)
	_ lifecycle.Preparer = (*Service)(nil)
	_ lifecycle.Starter  = (*Service)(nil)
)

// New returns a Service. With nil keys it rejects secrets.
func New(store *ledger.Store, keys *seal.Keys) *Service { return &Service{store, keys} }

// purposeOf binds sealed data to its place, so that it cannot be opened elsewhere.
func (v *Service) purposeOf(environmentID, name string) string {
	return "secret " + name + " of environment " + environmentID + " on ledger " + v.store.ID()
}

// Seal returns the sealed values of a request, by name.
func (v *Service) Seal(p sandbox.PutEnvironment) (map[string][]byte, error) {
	sealed := make(map[string][]byte, len(p.SecretValues))
	for name, value := range p.SecretValues {
		var err error
		if sealed[name], err = v.keys.Seal([]byte(value), v.purposeOf(p.ID, name)); err != nil {
			return nil, err
		}
	}
	return sealed, nil
}

// Check refuses names of secrets without a value. Errors: Invalid.
func (v *Service) Check(tx *ledger.Tx, p sandbox.PutEnvironment) error {
	if len(p.Secrets) == 0 {
		return nil
	}
	have, err := sealedsecrets.In(tx).Of(p.ID)
	if err != nil {
		return err
	}
	var f []sandbox.Field
	for _, name := range p.Secrets {
		_, given := p.SecretValues[name]
		isNamed := func(s sealedsecrets.Secret) bool { return s.Name == name }
		if !given && !slices.ContainsFunc(have, isNamed) {
			f = append(f, sandbox.Field{Name: "secret_values." + name, Problem: "must be set: the secret has no value yet"})
		}
	}
	return sandbox.InvalidFields("environment "+p.ID, f)
}

// Keep stores the secrets that an environment names, inside a transaction, after Check. before is the environment's
// earlier specification. If the secrets of its sandboxes change, Keep marks the sandboxes for delivery.
func (v *Service) Keep(tx *ledger.Tx, p sandbox.PutEnvironment, before sandbox.EnvironmentSpec,
	sealed map[string][]byte) error {
	have, err := sealedsecrets.In(tx).Of(p.ID)
	if err != nil {
		return err
	}
	left := make(map[string]bool, len(have))
	for _, s := range have {
		left[s.Name] = true
	}
	changed := len(sealed) > 0
	for _, name := range p.Secrets {
		changed = changed || p.IsCredential(name) != before.IsCredential(name)
		if value, given := sealed[name]; given {
			if err := sealedsecrets.In(tx).Save(&sealedsecrets.Secret{
				EnvironmentID: p.ID,
				Name:          name,
				Sealed:        value,
				UpdatedAt:     tx.Now,
			}); err != nil {
				return err
			}
		}
		delete(left, name)
	}
	for name := range left {
		changed = true
		if err := sealedsecrets.In(tx).Delete(p.ID, name); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	rows, err := tx.LeasedSandboxes(p.ID)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(s ledger.Sandbox) bool { return s.Desired != ledger.Present })
	return tx.UpdateRows(rows, func(s *ledger.Sandbox) error {
		s.Pending.NeedSecrets(tx.Now)
		if s.Schedule.Attempts == 0 {
			s.Schedule.DueAt = tx.Now
		}
		return nil
	})
}

// Plan implements lifecycle.Planner: it delivers changed secrets before the sandbox is used.
func (v *Service) Plan(s *ledger.Sandbox, p lifecycle.Point, now micro.Time) (lifecycle.Action, micro.Time) {
	if p == lifecycle.Ready && s.Pending.Secrets != 0 {
		return Deliver, now
	}
	return lifecycle.None, micro.Never
}

// Prepare implements lifecycle.Preparer.
func (v *Service) Prepare(tx *ledger.Tx, s *ledger.Sandbox, _ lifecycle.Beginning) (lifecycle.Fill, error) {
	sealed, err := v.inside(tx, s.EnvironmentID)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, t *lifecycle.Step) (lifecycle.Settle, error) {
		if err := v.put(ctx, t, sealed); err != nil {
			return nil, err
		}
		// Secrets that changed after the step began stay pending.
		return func(_ *ledger.Tx, s *ledger.Sandbox) error { s.Pending.GotSecrets(t.Row.Pending); return nil }, nil
	}, nil
}

// inside returns the secrets that the sandboxes of an environment get: all but its credentials.
func (v *Service) inside(tx *ledger.Tx, environmentID string) ([]sealedsecrets.Secret, error) {
	sealed, err := sealedsecrets.In(tx).Of(environmentID)
	if err != nil || len(sealed) == 0 {
		return nil, err
	}
	env, err := tx.KnownEnvironment(environmentID)
	if err != nil {
		return nil, err
	}
	isKey := func(s sealedsecrets.Secret) bool { return env.Spec.IsCredential(s.Name) }
	return slices.DeleteFunc(sealed, isKey), nil
}

// Credentials opens the credentials of an environment, by the name of the secret: the keys of its LLM routes and those
// of hosts. Errors: as Open of package seal; credentials without a value are omitted.
func (v *Service) Credentials(env *ledger.Environment,
	sealed []sealedsecrets.Secret) (map[string]sandbox.Secret, error) {
	keys, names := make(map[string]sandbox.Secret), env.Spec.Credentials()
	for _, row := range sealed {
		if !slices.Contains(names, row.Name) {
			continue
		}
		value, err := v.keys.Open(row.Sealed, v.purposeOf(row.EnvironmentID, row.Name))
		if err != nil {
			return nil, err
		}
		keys[row.Name] = sandbox.Secret(value)
	}
	return keys, nil
}

// Open opens one secret. Errors: as Open of package seal.
func (v *Service) Open(row *sealedsecrets.Secret) (sandbox.Secret, error) {
	value, err := v.keys.Open(row.Sealed, v.purposeOf(row.EnvironmentID, row.Name))
	return sandbox.Secret(value), err
}

// Opened opens secrets of an environment by name, inside a transaction. It omits those without a value.
func (v *Service) Opened(tx *ledger.Tx, environmentID string, names []string) (map[string]sandbox.Secret, error) {
	if len(names) == 0 {
		return nil, nil
	}
	sealed, err := v.inside(tx, environmentID)
	if err != nil {
		return nil, err
	}
	opened := make(map[string]sandbox.Secret, len(names))
	for _, row := range sealed {
		if !slices.Contains(names, row.Name) {
			continue
		}
		value, err := v.keys.Open(row.Sealed, v.purposeOf(row.EnvironmentID, row.Name))
		if err != nil {
			return nil, err
		}
		opened[row.Name] = sandbox.Secret(value)
	}
	return opened, nil
}

// put opens secrets and writes them to a sandbox. An empty list removes existing ones.
func (v *Service) put(ctx context.Context, t *lifecycle.Step, sealed []sealedsecrets.Secret) error {
	if len(sealed) == 0 && t.Row.Pending.Secrets == 0 {
		return nil
	}
	opened := make(map[string]sandbox.Secret, len(sealed))
	for _, row := range sealed {
		value, err := v.keys.Open(row.Sealed, v.purposeOf(row.EnvironmentID, row.Name))
		if err != nil {
			return err
		}
		opened[row.Name] = sandbox.Secret(value)
	}
	bounded, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	return t.On.PutSecrets(bounded, t.Handle, opened)
}

// Started implements lifecycle.Starter: a sandbox that started outside a step may lack its secrets.
func (v *Service) Started(tx *ledger.Tx, s *ledger.Sandbox, _ bool) error {
	if s.Pooled() {
		return nil
	}
	have, err := v.inside(tx, s.EnvironmentID)
	if err == nil && len(have) > 0 {
		s.Pending.NeedSecrets(tx.Now)
		s.Schedule.DueAt = tx.Now
	}
	return err
}

// Reseal re-encrypts, in one transaction, all values that are not sealed under the first key of the key file. Then
// older keys can be removed from the file. others does the same for sealed data besides secrets. Reseal returns how
// many values it sealed. If it cannot open a value, it continues with the others and returns an error.
func (v *Service) Reseal(ctx context.Context,
	others func(tx *ledger.Tx) (n int, failed []error, err error)) (n int, err error) {
	var failed []error
	err = v.store.Write(ctx, func(tx *ledger.Tx) error {
		n, failed = 0, nil
		all, err := sealedsecrets.In(tx).All()
		if err != nil {
			return err
		}
		for i := range all {
			again, err := v.reseal(&all[i])
			if err != nil {
				failed = append(failed, err)
				continue
			}
			if again {
				n++
				if err := sealedsecrets.In(tx).Save(&all[i]); err != nil {
					return err
				}
			}
		}
		more, failures, err := others(tx)
		n, failed = n+more, append(failed, failures...)
		return err
	})
	return n, errors.Join(append(failed, err)...)
}

func (v *Service) reseal(s *sealedsecrets.Secret) (bool, error) {
	stale, err := v.keys.Stale(s.Sealed)
	if err != nil || !stale {
		return false, err
	}
	value, err := v.keys.Open(s.Sealed, v.purposeOf(s.EnvironmentID, s.Name))
	if err == nil {
		s.Sealed, err = v.keys.Seal(value, v.purposeOf(s.EnvironmentID, s.Name))
	}
	return err == nil, err
}
