// Package access holds the credentials of callers: bearer tokens and signing secrets in files that only their owner can
// read, and bearer tokens in the ledger. It creates, finds and revokes tokens and the logins of browsers. It returns
// the text of a token only once, and stores and looks up only its SHA-256. Neither a copy of the ledger nor the timing
// of a lookup reveals a token.
package access

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/tokens"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// Staleness is how long this process may accept a token that another one revoked or rotated.
	Staleness = time.Second
	// useEvery is how often the use of all tokens is recorded, in one commit.
	useEvery = time.Minute
	// flushTimeout limits the last record of uses at shutdown.
	flushTimeout = 5 * time.Second
	// tokenIDLength is in characters of 5 bits each, after sandbox.TokenIDPrefix.
	tokenIDLength = 12
)

// Config configures a registry.
type Config struct {
	Store  *ledger.Store
	IDs    sandbox.IDs  // nil means sandbox.RandomIDs
	Logger *slog.Logger // nil means none
}

// Registry keeps credentials in a ledger. It is safe for concurrent use.
type Registry struct {
	store *ledger.Store
	ids   sandbox.IDs
	log   *slog.Logger

	mu    sync.Mutex // guards the fields below
	known map[Hash]known
	used  map[string]micro.Time // by token id: uses that are not in the ledger yet
}

// known is a cached token of the ledger. The cache holds only live tokens, so the ledger bounds its size.
type known struct {
	token Token
	until time.Time
}

var _ service.Tokens = (*Registry)(nil)

// New returns a registry. The caller must call Run, which records the use of tokens.
func New(c Config) *Registry {
	r := &Registry{store: c.Store, ids: c.IDs, log: c.Logger, known: map[Hash]known{}, used: map[string]micro.Time{}}
	if r.ids == nil {
		r.ids = sandbox.RandomIDs
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Authenticate returns the token with the hash. Errors: Unauthenticated, with a text that is safe for the sender;
// Unavailable.
func (r *Registry) Authenticate(ctx context.Context, hash Hash) (Token, error) {
	now := r.store.Now()
	token, ok := r.recall(hash, now)
	if !ok {
		var err error
		if token, err = r.find(ctx, hash); err != nil {
			return Token{}, err
		}
		r.remember(hash, known{token, now.Add(Staleness)})
	}
	if token.Expired(now) {
		return Token{}, ended(token.Name, token.ID, "expired", token.NotAfter, sandbox.ReasonTokenExpired)
	}
	r.noteUse(token.ID, now)
	return token, nil
}

func (r *Registry) find(ctx context.Context, hash Hash) (Token, error) {
	var row *tokens.Token
	err := r.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		row, err = tokens.In(tx).ByHash(hash[:])
		return err
	})
	switch {
	case err != nil:
		return Token{}, err
	case row == nil:
		return Token{}, sandbox.Errorf(sandbox.Unauthenticated, "unknown token").
			WithReason(sandbox.ReasonTokenUnknown)
	case row.RevokedAt != 0:
		return Token{}, ended(row.Name, row.ID, "was revoked", row.RevokedAt.Time(), sandbox.ReasonTokenRevoked)
	}
	return Token{
		ID:           row.ID,
		Name:         row.Name,
		Environments: row.Environments,
		Ceiling:      row.Ceiling,
		Scopes:       row.Scopes,
		NotAfter:     row.ExpiresAt.Time(),
	}, nil
}

func ended(name, id, how string, at time.Time, reason sandbox.Reason) error {
	return sandbox.Errorf(sandbox.Unauthenticated, "token %s (%s) %s at %s: get a new one from your administrator",
		name, id, how, at.UTC().Format(time.RFC3339)).WithReason(reason)
}

func (r *Registry) recall(hash Hash, now time.Time) (Token, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.known[hash]
	return k.token, ok && now.Before(k.until)
}

func (r *Registry) remember(hash Hash, k known) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[hash] = k
}

// forget clears the cache of tokens.
func (r *Registry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.known)
}

func (r *Registry) noteUse(id string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used[id] = micro.At(now)
}

// Run records the use of tokens until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	ticker := time.NewTicker(useEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
			defer cancel()
			r.recordUse(last)
			return
		case <-ticker.C:
			r.recordUse(ctx)
			r.forget() // drops revoked and rotated tokens
			r.removeExpiredLogins(ctx)
		}
	}
}

// recordUse writes new uses to the ledger. After a failure, the next use of a token is recorded.
func (r *Registry) recordUse(ctx context.Context) {
	r.mu.Lock()
	used := r.used
	r.used = map[string]micro.Time{}
	r.mu.Unlock()
	if len(used) == 0 {
		return
	}
	if err := r.store.Write(ctx, func(tx *ledger.Tx) error { return tokens.In(tx).Use(used) }); err != nil {
		r.log.Warn("access: recording the use of tokens", "tokens", len(used), "error", err)
	}
}
