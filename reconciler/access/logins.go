package access

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// LoginLifetime is how long a browser stays logged in, unless its token ends before.
const LoginLifetime = 12 * time.Hour

// LogIn begins a log-in with a token, which its caller has found to be accepted, and returns the id that the
// browser keeps. Of it, too, only the SHA-256 is kept, so that it is no less safe than a token. Every replica
// knows it, and it outlives them. Errors: Unavailable.
func (r *Registry) LogIn(ctx context.Context, token webhook.Hash) (id string, err error) {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails since Go 1.24
	id = base64.RawURLEncoding.EncodeToString(b)
	hash := webhook.HashOf(id)
	return id, r.store.Write(ctx, func(tx *ledger.Tx) error {
		return tx.Tokens().CreateLogin(&ledger.Login{Hash: hash[:], TokenHash: token[:], CreatedAt: tx.Now, ExpiresAt: tx.Now.Add(ledger.Span(LoginLifetime.Microseconds()))})
	})
}

// LoggedIn returns the hash of the token that a log-in was begun with. Whether that is accepted still is for
// Authenticate to say. Errors: Unauthenticated, Unavailable.
func (r *Registry) LoggedIn(ctx context.Context, id string) (token webhook.Hash, err error) {
	hash := webhook.HashOf(id)
	var row *ledger.Login
	err = r.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		row, err = tx.Tokens().LoginByHash(hash[:])
		return err
	})
	if err != nil {
		return token, err
	}
	if row == nil || !r.store.Now().Before(row.ExpiresAt.Time()) || len(row.TokenHash) != len(token) {
		return token, sandbox.Errorf(sandbox.Unauthenticated, "you are not logged in any more: log in again").WithReason(sandbox.ReasonLoginEnded)
	}
	return webhook.Hash(row.TokenHash), nil
}

// LogOut ends a log-in; one that has ended is success. Errors: Unavailable.
func (r *Registry) LogOut(ctx context.Context, id string) error {
	hash := webhook.HashOf(id)
	return r.store.Write(ctx, func(tx *ledger.Tx) error { return tx.Tokens().DeleteLogin(hash[:]) })
}

// removeExpiredLogins removes log-ins that have ended. What fails is done the next time.
func (r *Registry) removeExpiredLogins(ctx context.Context) {
	if err := r.store.Write(ctx, func(tx *ledger.Tx) error { return tx.Tokens().DeleteExpiredLogins() }); err != nil && ctx.Err() == nil {
		r.log.Warn("access: removing log-ins that have expired", "error", err)
	}
}
