package access

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// LoginLifetime is how long a browser stays logged in, unless its token ends first.
const LoginLifetime = 12 * time.Hour

// LogIn starts a login with a token and returns the id for the browser's cookie. The caller has authenticated the
// token. The ledger holds only the SHA-256 of the id, so all replicas know the login and it survives restarts.
// Errors: Unavailable.
func (r *Registry) LogIn(ctx context.Context, token Hash) (id string, err error) {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails since Go 1.24
	id = base64.RawURLEncoding.EncodeToString(b)
	hash := HashOf(id)
	return id, r.store.Write(ctx, func(tx *ledger.Tx) error {
		return tx.Tokens().CreateLogin(&ledger.Login{
			Hash:      hash[:],
			TokenHash: token[:],
			CreatedAt: tx.Now,
			ExpiresAt: tx.Now.Add(ledger.Span(LoginLifetime.Microseconds())),
		})
	})
}

// LoggedIn returns the hash of a login's token. The caller must still authenticate it. Errors: Unauthenticated,
// Unavailable.
func (r *Registry) LoggedIn(ctx context.Context, id string) (token Hash, err error) {
	hash := HashOf(id)
	var row *ledger.Login
	err = r.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		row, err = tx.Tokens().LoginByHash(hash[:])
		return err
	})
	if err != nil {
		return token, err
	}
	if row == nil || !r.store.Now().Before(row.ExpiresAt.Time()) || len(row.TokenHash) != len(token) {
		return token, sandbox.Errorf(sandbox.Unauthenticated, "your login has ended: log in again").
			WithReason(sandbox.ReasonLoginEnded)
	}
	return Hash(row.TokenHash), nil
}

// LogOut ends a login. It is idempotent. Errors: Unavailable.
func (r *Registry) LogOut(ctx context.Context, id string) error {
	hash := HashOf(id)
	return r.store.Write(ctx, func(tx *ledger.Tx) error { return tx.Tokens().DeleteLogin(hash[:]) })
}

// removeExpiredLogins deletes expired logins. The next call retries after a failure.
func (r *Registry) removeExpiredLogins(ctx context.Context) {
	if err := r.store.Write(ctx, func(tx *ledger.Tx) error { return tx.Tokens().DeleteExpiredLogins() }); err != nil &&
		ctx.Err() == nil {
		r.log.Warn("access: deleting expired logins", "error", err)
	}
}
