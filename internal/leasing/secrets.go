package leasing

import (
	"context"
	"errors"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Secrets belong to an environment and lie in the ledger sealed. A sandbox has none while it waits in
// a pool; it gets them in the step that makes, assigns or wakes it, before any command, and again
// when they change: its row then owes them, and it is not used before it has them.

// purposeOf ties what is sealed to its place, so that it opens nowhere else.
func (e *Engine) purposeOf(environmentID, name string) string {
	return "secret " + name + " of environment " + environmentID + " on ledger " + e.store.ID()
}

// sealSecrets seals the values of a request, by name.
func (e *Engine) sealSecrets(p sandbox.PutEnvironment) (map[string][]byte, error) {
	sealed := make(map[string][]byte, len(p.SecretValues))
	for name, value := range p.SecretValues {
		var err error
		if sealed[name], err = e.keys.Seal([]byte(value), e.purposeOf(p.ID, name)); err != nil {
			return nil, err
		}
	}
	return sealed, nil
}

// keepSecrets makes the ledger have the secrets that an environment names, and owes them to its
// sandboxes when any has changed. Errors: Invalid for a name that never had a value.
func keepSecrets(tx *ledger.Tx, p sandbox.PutEnvironment, sealed map[string][]byte) error {
	have, err := tx.Secrets(p.ID)
	if err != nil {
		return err
	}
	left := make(map[string]bool, len(have))
	for _, s := range have {
		left[s.Name] = true
	}
	changed := len(sealed) > 0
	for _, name := range p.Secrets {
		value, given := sealed[name]
		switch {
		case given:
			if err := tx.SaveSecret(&ledger.EnvironmentSecret{EnvironmentID: p.ID, Name: name, Sealed: value, UpdatedAt: tx.Now}); err != nil {
				return err
			}
		case !left[name]:
			return sandbox.InvalidFields("environment "+p.ID, []sandbox.Field{{Name: "secret_values." + name, Problem: "must be given: the secret has no value yet"}})
		}
		delete(left, name)
	}
	for name := range left {
		changed = true
		if err := tx.DeleteSecret(p.ID, name); err != nil {
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

// deliver brings its environment's secrets into a sandbox that is awake and leased.
func (e *Engine) deliver(ctx context.Context, x *backend, s *ledger.Sandbox) error {
	if pooled(s) {
		return nil
	}
	var sealed []ledger.EnvironmentSecret
	err := e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		sealed, err = tx.Secrets(s.EnvironmentID)
		return err
	})
	if err != nil {
		return err
	}
	return e.putSecrets(ctx, x, s, sealed)
}

// putSecrets opens secrets and gives them to a sandbox; none take away those that it may have.
func (e *Engine) putSecrets(ctx context.Context, x *backend, s *ledger.Sandbox, sealed []ledger.EnvironmentSecret) error {
	if len(sealed) == 0 && s.Pending.Secrets == 0 {
		return nil
	}
	secrets := make(map[string]sandbox.Secret, len(sealed))
	for _, row := range sealed {
		value, err := e.keys.Open(row.Sealed, e.purposeOf(row.EnvironmentID, row.Name))
		if err != nil {
			return err
		}
		secrets[row.Name] = sandbox.Secret(value)
	}
	bounded, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	return x.PutSecrets(bounded, e.handle(s), secrets)
}

// wake wakes a sandbox and gives it what it may have lost in its sleep, or was changed meanwhile.
func (e *Engine) wake(ctx context.Context, x *backend, t *task) error {
	if err := x.Wake(ctx, e.handle(&t.row)); err != nil {
		return err
	}
	return e.deliver(ctx, x, &t.row)
}

// settleSecrets notes that a step has delivered what was owed when it began. What changed meanwhile is
// owed still.
func settleSecrets(s *ledger.Sandbox, t *task) {
	switch t.action {
	case actSpawn, actAssign, actWake, actThaw, actDeliver:
		s.Pending.GotSecrets(t.row.Pending)
	}
}

// owe notes that a sandbox which was started from outside may lack its secrets.
func owe(tx *ledger.Tx, s *ledger.Sandbox) error {
	if pooled(s) {
		return nil
	}
	have, err := tx.Secrets(s.EnvironmentID)
	if err == nil && len(have) > 0 {
		s.Pending.NeedSecrets(tx.Now)
		s.Schedule.DueAt = tx.Now
	}
	return err
}

// ResealSecrets seals anew what is sealed under another key than the first of the key file, so that
// older keys may be taken out of it. It returns how many it has sealed.
func (e *Engine) ResealSecrets(ctx context.Context) (n int, err error) {
	var failed []error
	err = e.store.Write(ctx, func(tx *ledger.Tx) error {
		n, failed = 0, nil
		all, err := tx.AllSecrets()
		if err != nil {
			return err
		}
		for i := range all {
			again, err := e.reseal(&all[i])
			if err != nil {
				failed = append(failed, err) // one that cannot be opened keeps no other
				continue
			}
			if again {
				n++
				if err := tx.SaveSecret(&all[i]); err != nil {
					return err
				}
			}
		}
		sessions, others, err := e.resealSessions(tx)
		n, failed = n+sessions, append(failed, others...)
		return err
	})
	return n, asError(errors.Join(append(failed, err)...))
}

func (e *Engine) reseal(s *ledger.EnvironmentSecret) (bool, error) {
	stale, err := e.keys.Stale(s.Sealed)
	if err != nil || !stale {
		return false, err
	}
	value, err := e.keys.Open(s.Sealed, e.purposeOf(s.EnvironmentID, s.Name))
	if err == nil {
		s.Sealed, err = e.keys.Seal(value, e.purposeOf(s.EnvironmentID, s.Name))
	}
	return err == nil, err
}
