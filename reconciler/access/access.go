// Package access manages the credentials that the ledger keeps: it makes and ends bearer tokens and the
// log-ins of browsers, and says whose they are. A token's text is told once; of it only the SHA-256 is kept, by which it is
// found, so that neither a copy of the ledger nor the time that a search takes gives a token away.
package access

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// Staleness is how long a token that was revoked or rotated elsewhere may still be accepted here.
	Staleness = time.Second
	// useEvery is how often the use of tokens is recorded: one commit for all of them.
	useEvery = time.Minute
	// flushTimeout bounds the record of the last uses, as the program ends.
	flushTimeout = 5 * time.Second
	// tokenIDLength is in characters of 5 bits, after sandbox.TokenIDPrefix.
	tokenIDLength = 12
)

// Config says what a registry works on.
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

	mu    sync.Mutex // guards what follows
	known map[webhook.Hash]known
	used  map[string]ledger.Time // by token id: uses that the ledger does not know of yet
}

// known is a token that the ledger had a moment ago. Only live ones are kept, so that they are no more than
// the ledger has.
type known struct {
	token webhook.Token
	until time.Time
}

var _ service.Tokens = (*Registry)(nil)

// New makes a registry. Who makes it runs it, so that uses of tokens are recorded.
func New(c Config) *Registry {
	r := &Registry{store: c.Store, ids: c.IDs, log: c.Logger, known: map[webhook.Hash]known{}, used: map[string]ledger.Time{}}
	if r.ids == nil {
		r.ids = sandbox.RandomIDs
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Authenticate returns whose the token is whose text has the hash. Errors: Unauthenticated, whose text may be
// told to who sent the token; Unavailable.
func (r *Registry) Authenticate(ctx context.Context, hash webhook.Hash) (webhook.Token, error) {
	now := r.store.Now()
	token, ok := r.recall(hash, now)
	if !ok {
		var err error
		if token, err = r.find(ctx, hash); err != nil {
			return webhook.Token{}, err
		}
		r.remember(hash, known{token, now.Add(Staleness)})
	}
	if token.Expired(now) {
		return webhook.Token{}, ended(token.Name, token.ID, "expired", token.NotAfter, sandbox.ReasonTokenExpired)
	}
	r.noteUse(token.ID, now)
	return token, nil
}

func (r *Registry) find(ctx context.Context, hash webhook.Hash) (webhook.Token, error) {
	var row *ledger.Token
	err := r.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		row, err = tx.Tokens().TokenByHash(hash[:])
		return err
	})
	switch {
	case err != nil:
		return webhook.Token{}, err
	case row == nil:
		return webhook.Token{}, sandbox.Errorf(sandbox.Unauthenticated, "the token is not known here").WithReason(sandbox.ReasonTokenUnknown)
	case row.RevokedAt != 0:
		return webhook.Token{}, ended(row.Name, row.ID, "was revoked", row.RevokedAt.Time(), sandbox.ReasonTokenRevoked)
	}
	return webhook.Token{ID: row.ID, Name: row.Name, Environments: row.Environments, Ceiling: row.Ceiling, Scopes: row.Scopes, NotAfter: row.ExpiresAt.Time()}, nil
}

func ended(name, id, how string, at time.Time, reason sandbox.Reason) error {
	return sandbox.Errorf(sandbox.Unauthenticated, "token %s (%s) %s at %s: ask for another", name, id, how, at.UTC().Format(time.RFC3339)).WithReason(reason)
}

func (r *Registry) recall(hash webhook.Hash, now time.Time) (webhook.Token, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.known[hash]
	return k.token, ok && now.Before(k.until)
}

func (r *Registry) remember(hash webhook.Hash, k known) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[hash] = k
}

// forget has every token looked for in the ledger again.
func (r *Registry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.known)
}

func (r *Registry) noteUse(id string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used[id] = ledger.At(now)
}

// Run records when tokens were used, until ctx ends.
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
			r.forget() // revoked and rotated ones need no place
			r.removeExpiredLogins(ctx)
		}
	}
}

// recordUse tells the ledger what it does not know yet. What fails is told by a later use.
func (r *Registry) recordUse(ctx context.Context) {
	r.mu.Lock()
	used := r.used
	r.used = map[string]ledger.Time{}
	r.mu.Unlock()
	if len(used) == 0 {
		return
	}
	if err := r.store.Write(ctx, func(tx *ledger.Tx) error { return tx.Tokens().UseTokens(used) }); err != nil {
		r.log.Warn("access: recording when tokens were used", "tokens", len(used), "error", err)
	}
}
