package leasing

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// endowment is what a sandbox is given once it runs for its lease: what /data begins with, and secrets.
// One that waits in a pool has none.
type endowment struct {
	spec       sandbox.EnvironmentSpec
	keepsState bool
	saved      *ledger.SavedState // nil when nothing was saved yet
	sealed     []ledger.EnvironmentSecret
}

// endowmentOf reads what a sandbox begins with.
func (e *Engine) endowmentOf(ctx context.Context, s *ledger.Sandbox) (own endowment, err error) {
	if pooled(s) {
		return own, nil
	}
	own.keepsState = s.State.Key != ""
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		env, err := mustEnvironment(tx, s.EnvironmentID)
		if err != nil {
			return err
		}
		own.spec = env.Spec
		if own.sealed, err = tx.Secrets(s.EnvironmentID); err == nil && own.keepsState {
			own.saved, err = tx.SavedState(s.State.Key)
		}
		return err
	})
	return own, err
}

// endow gives a sandbox that nobody has used yet what it begins with, and returns the state that it was
// given, nil without one. It may be done again after it was broken off.
func (e *Engine) endow(ctx context.Context, x *backend, s *ledger.Sandbox, own endowment) (*sandbox.SavedState, error) {
	restored, err := e.prepare(ctx, x, e.handle(s), own)
	if err == nil {
		err = e.putSecrets(ctx, x, s, own.sealed)
	}
	return restored, err
}
