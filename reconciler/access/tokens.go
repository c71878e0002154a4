package access

import (
	"context"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/tokens"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CreateToken implements service.Tokens.
func (r *Registry) CreateToken(ctx context.Context, c sandbox.CreateToken) (made sandbox.CreatedToken, err error) {
	if err := c.Validate(r.store.Now()); err != nil {
		return made, err
	}
	err = r.store.Write(ctx, func(tx *ledger.Tx) error {
		same, err := tokens.In(tx).Named(c.Name)
		if err != nil {
			return err
		}
		for _, t := range live(same, tx.Now) {
			return sandbox.Errorf(sandbox.Conflict,
				"creating token %s: the name has a live token, %s: rotate it, or revoke it first", c.Name, t.ID)
		}
		made, err = r.issue(ctx, tx, &tokens.Token{
			Name:         c.Name,
			Scopes:       c.Scopes,
			Environments: c.Environments,
			Ceiling:      c.Ceiling,
			ExpiresAt:    micro.At(c.ExpiresAt),
		}, sandbox.EventTokenCreated)
		return err
	})
	return made, err
}

// RotateToken implements service.Tokens.
func (r *Registry) RotateToken(ctx context.Context, o sandbox.RotateToken) (made sandbox.CreatedToken, err error) {
	if o.Overlap < 0 {
		return made, sandbox.InvalidFields("rotation of a token",
			[]sandbox.Field{{Name: "overlap", Problem: "must not be negative"}})
	}
	err = r.store.Write(ctx, func(tx *ledger.Tx) error {
		all, err := tokens.In(tx).Named(o.Name)
		if err != nil {
			return err
		}
		old := live(all, tx.Now)
		if len(old) == 0 {
			return sandbox.Errorf(sandbox.NotFound, "rotating token %s: the ledger has no live token of that name: create one",
				o.Name)
		}
		next := &tokens.Token{Name: o.Name, Scopes: old[0].Scopes, Environments: old[0].Environments, Ceiling: old[0].Ceiling}
		if o.Ceiling != nil {
			next.Ceiling = *o.Ceiling
			if err := sandbox.CheckCeiling(next.Ceiling, next.Environments); err != nil {
				return err
			}
		}
		if last := old[0]; last.ExpiresAt != 0 {
			next.ExpiresAt = tx.Now.Add(micro.Span(last.ExpiresAt - last.CreatedAt))
		}
		until := tx.Now.Add(micro.SpanOf(o.Overlap))
		for i := range old {
			if t := &old[i]; t.ExpiresAt == 0 || until < t.ExpiresAt {
				t.ExpiresAt = until
				if err := tokens.In(tx).Save(t); err != nil {
					return err
				}
			}
		}
		made, err = r.issue(ctx, tx, next, sandbox.EventTokenRotated)
		return err
	})
	r.forget()
	return made, err
}

// issue generates the text and the id of a token, and stores it.
func (r *Registry) issue(ctx context.Context, tx *ledger.Tx, t *tokens.Token,
	as sandbox.EventType) (sandbox.CreatedToken, error) {
	text := NewToken()
	hash := HashOf(text)
	t.ID, t.Hash = sandbox.TokenIDPrefix+r.ids(tokenIDLength), hash[:]
	if t.Environments == nil {
		t.Environments = []string{} // no NULL in the ledger
	}
	t.CreatedAt, t.CreatedBy = tx.Now, sandbox.ActorOf(ctx).Name
	if err := tokens.In(tx).Create(t); err != nil {
		return sandbox.CreatedToken{}, err
	}
	return sandbox.CreatedToken{Token: t.Domain(), Text: sandbox.Secret(text)}, emit(tx, as, t)
}

// emit appends the event of a change.
func emit(tx *ledger.Tx, as sandbox.EventType, t *tokens.Token) error {
	return tx.AppendEnvironmentEvent("", as, sandbox.TokenChange{
		ID:           t.ID,
		Name:         t.Name,
		Scopes:       t.Scopes,
		Environments: t.Environments,
		Ceiling:      t.Ceiling,
		ExpiresAt:    t.ExpiresAt.Time(),
	})
}

// ListTokens implements service.Tokens.
func (r *Registry) ListTokens(ctx context.Context) ([]sandbox.Token, error) {
	var rows []tokens.Token
	err := r.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		rows, err = tokens.In(tx).All()
		return err
	})
	return domain(rows), err
}

// RevokeToken implements service.Tokens.
func (r *Registry) RevokeToken(ctx context.Context, nameOrID string) ([]sandbox.Token, error) {
	var rows []tokens.Token
	err := r.store.Write(ctx, func(tx *ledger.Tx) (err error) {
		if rows, err = named(tx, nameOrID); err != nil {
			return err
		}
		for i := range rows {
			t := &rows[i]
			if !t.Live(tx.Now) {
				continue
			}
			t.RevokedAt, t.RevokedBy = tx.Now, sandbox.ActorOf(ctx).Name
			if err := tokens.In(tx).Save(t); err != nil {
				return err
			}
			if err := emit(tx, sandbox.EventTokenRevoked, t); err != nil {
				return err
			}
		}
		return nil
	})
	r.forget()
	return domain(rows), err
}

// named returns the tokens of a name, or the token with an id. Errors: NotFound.
func named(tx *ledger.Tx, nameOrID string) (rows []tokens.Token, err error) {
	if strings.HasPrefix(nameOrID, sandbox.TokenIDPrefix) {
		var one *tokens.Token
		if one, err = tokens.In(tx).Get(nameOrID); one != nil {
			rows = []tokens.Token{*one}
		}
	} else {
		rows, err = tokens.In(tx).Named(nameOrID)
	}
	if err == nil && len(rows) == 0 {
		err = sandbox.Errorf(sandbox.NotFound,
			"the ledger has no token %s; to revoke a token of the token file, remove its line", nameOrID)
	}
	return rows, err
}

func live(rows []tokens.Token, now micro.Time) (found []tokens.Token) {
	for i := range rows {
		if rows[i].Live(now) {
			found = append(found, rows[i])
		}
	}
	return found
}

func domain(rows []tokens.Token) []sandbox.Token {
	tokens := make([]sandbox.Token, len(rows))
	for i := range rows {
		tokens[i] = rows[i].Domain()
	}
	return tokens
}
