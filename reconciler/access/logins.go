package access

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/tokens"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// LoginLifetime is how long a browser stays logged in with a token, unless the token ends first.
const LoginLifetime = 12 * time.Hour

// Login is what a browser is logged in with.
type Login struct {
	// Credential is the hash of a token, or names the OpenID Connect provider that authenticated the user.
	Credential Hash
	// User describes the user of a provider; "" for a token.
	User string
	// Until is when the login ends; its credential may end earlier.
	Until time.Time
}

// LogIn starts a login and returns the id for the browser's cookie: random, followed by the user. The caller has
// authenticated the credential. The ledger holds only the SHA-256 of the id, so all replicas know the login and it
// survives restarts. A cookie with another user is unknown. Errors: Unavailable.
func (r *Registry) LogIn(ctx context.Context, l Login) (id string, err error) {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails since Go 1.24
	id = base64.RawURLEncoding.EncodeToString(b)
	if l.User != "" {
		id += userMark + base64.RawURLEncoding.EncodeToString([]byte(l.User))
	}
	hash := HashOf(id)
	return id, r.store.Write(ctx, func(tx *ledger.Tx) error {
		return tokens.In(tx).CreateLogin(&tokens.Login{
			Hash:      hash[:],
			TokenHash: l.Credential[:],
			CreatedAt: tx.Now,
			ExpiresAt: micro.At(l.Until),
		})
	})
}

// userMark is before the user in the id of a login.
const userMark = "."

// LoggedIn returns a login. The caller must still check that its credential is valid. Errors: Unauthenticated,
// Unavailable.
func (r *Registry) LoggedIn(ctx context.Context, id string) (Login, error) {
	hash := HashOf(id)
	var row *tokens.Login
	err := r.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		row, err = tokens.In(tx).LoginByHash(hash[:])
		return err
	})
	if err != nil {
		return Login{}, err
	}
	_, user, _ := strings.Cut(id, userMark)
	text, err := base64.RawURLEncoding.DecodeString(user)
	if row == nil || !r.store.Now().Before(row.ExpiresAt.Time()) || len(row.TokenHash) != len(hash) || err != nil {
		return Login{}, sandbox.Errorf(sandbox.Unauthenticated, "your login has ended: log in again").
			WithReason(sandbox.ReasonLoginEnded)
	}
	return Login{Credential: Hash(row.TokenHash), User: string(text), Until: row.ExpiresAt.Time()}, nil
}

// LogOut ends a login. It is idempotent. Errors: Unavailable.
func (r *Registry) LogOut(ctx context.Context, id string) error {
	hash := HashOf(id)
	return r.store.Write(ctx, func(tx *ledger.Tx) error { return tokens.In(tx).DeleteLogin(hash[:]) })
}

// removeExpiredLogins deletes expired logins. The next call retries after a failure.
func (r *Registry) removeExpiredLogins(ctx context.Context) {
	if err := r.store.Write(ctx, func(tx *ledger.Tx) error { return tokens.In(tx).DeleteExpiredLogins() }); err != nil &&
		ctx.Err() == nil {
		r.log.Warn("access: deleting expired logins", "error", err)
	}
}
