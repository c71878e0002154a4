package leasing

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// endowment is what a sandbox is given once it runs for its lease: what /data begins with, and secrets.
// One that waits in a pool has none.
type endowment struct {
	spec       sandbox.EnvironmentSpec
	keepsState bool
	saved      *ledger.SavedState // nil when nothing was saved yet
	sealed     []ledger.EnvironmentSecret
	// inUse: an earlier try has begun to run its post-start commands, so what they found stays as they left it.
	inUse bool
}

// endowmentOf reads what a sandbox begins with.
func (e *Engine) endowmentOf(ctx context.Context, s *ledger.Sandbox) (own endowment, err error) {
	if pooled(s) {
		return own, nil
	}
	own.keepsState = s.Snapshot.Key != ""
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		env, err := mustEnvironment(tx, s.EnvironmentID)
		if err != nil {
			return err
		}
		own.spec = env.Spec
		if own.inUse, err = postStartHasBegun(tx, s); err != nil {
			return err
		}
		if own.sealed, err = tx.Secrets(s.EnvironmentID); err == nil && own.keepsState {
			own.saved, err = beginsWith(tx, &s.Snapshot)
		}
		return err
	})
	return own, err
}

// endow gives an unused sandbox what it begins with, runs its post-start commands, and
// returns the state that it was given, nil without one. It may be done again after it was broken off.
func (e *Engine) endow(ctx context.Context, x *backend, t *task, own endowment) (*sandbox.SavedState, error) {
	restored := own.restored()
	if !own.inUse {
		if err := e.prepare(ctx, x, e.handle(&t.row), own); err != nil {
			return nil, err
		}
	}
	if err := e.putSecrets(ctx, x, &t.row, own.sealed); err != nil {
		return nil, err
	}
	return restored, e.runPostStart(ctx, t)
}

// restored is the state that the sandbox begins with, nil without one.
func (own *endowment) restored() *sandbox.SavedState {
	if own.saved == nil {
		return nil
	}
	restored := own.saved.Domain()
	return &restored
}
