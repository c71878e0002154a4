package ledger

import (
	"maps"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Token is a row of tokens: a bearer token without its text.
type Token struct {
	ID           string `gorm:"primaryKey"`
	Name         string
	Hash         []byte
	Scopes       []sandbox.Scope `gorm:"serializer:json"`
	Environments []string        `gorm:"serializer:json"`
	Ceiling      sandbox.Ceiling `gorm:"serializer:json"`
	CreatedAt    micro.Time      `gorm:"autoCreateTime:false"`
	CreatedBy    string
	ExpiresAt    micro.Time
	LastUsedAt   micro.Time
	RevokedAt    micro.Time
	RevokedBy    string
}

// Live reports whether the token is valid at now.
func (t *Token) Live(now micro.Time) bool {
	return t.RevokedAt == 0 && (t.ExpiresAt == 0 || now < t.ExpiresAt)
}

// Domain converts the token to the domain type.
func (t *Token) Domain() sandbox.Token {
	return sandbox.Token{
		ID: t.ID, Name: t.Name, Scopes: t.Scopes, Environments: t.Environments, Ceiling: t.Ceiling,
		CreatedAt: t.CreatedAt.Time(), CreatedBy: t.CreatedBy, ExpiresAt: t.ExpiresAt.Time(),
		LastUsedAt: t.LastUsedAt.Time(), RevokedAt: t.RevokedAt.Time(), RevokedBy: t.RevokedBy,
	}
}

// Tokens returns all tokens, sorted by name and newest first within a name.
func (repo Tokens) Tokens() ([]Token, error) {
	return storage.Find[Token](repo.tx.db.Order("name, created_at DESC, id"))
}

// TokensNamed returns the tokens of a name, newest first.
func (repo Tokens) TokensNamed(name string) ([]Token, error) {
	return storage.Find[Token](repo.tx.db.Where("name = ?", name).Order("created_at DESC, id"))
}

// Token returns a token by its id, nil if it does not exist.
func (repo Tokens) Token(id string) (*Token, error) {
	return storage.First[Token](repo.tx, "id = ?", id)
}

// TokenByHash returns the token whose text has the hash, nil if there is none.
func (repo Tokens) TokenByHash(hash []byte) (*Token, error) {
	return storage.First[Token](repo.tx, "hash = ?", hash)
}

// CreateToken stores a new token.
func (repo Tokens) CreateToken(t *Token) error { return storage.Create(repo.tx, t) }

// SaveToken stores a changed token.
func (repo Tokens) SaveToken(t *Token) error { return storage.Save(repo.tx, t) }

// UseTokens records when tokens were used, by id.
func (repo Tokens) UseTokens(used map[string]micro.Time) error {
	for _, id := range slices.Sorted(maps.Keys(used)) {
		res := repo.tx.db.Exec("UPDATE tokens SET last_used_at = ? WHERE id = ? AND last_used_at < ?", used[id], id, used[id])
		if _, err := storage.RowCount("recording the use of a token", res); err != nil {
			return err
		}
	}
	return nil
}

// Login is a row of logins: a browser session logged in with a token.
type Login struct {
	Hash      []byte `gorm:"primaryKey"`
	TokenHash []byte
	CreatedAt micro.Time `gorm:"autoCreateTime:false"`
	ExpiresAt micro.Time
}

// LoginByHash returns the login whose id has the hash, nil if there is none.
func (repo Tokens) LoginByHash(hash []byte) (*Login, error) {
	return storage.First[Login](repo.tx, "hash = ?", hash)
}

// CreateLogin stores a new log-in.
func (repo Tokens) CreateLogin(l *Login) error { return storage.Create(repo.tx, l) }

// DeleteLogin removes the log-in whose id has the hash, if there is one.
func (repo Tokens) DeleteLogin(hash []byte) error {
	_, err := storage.RowCount("ending a log-in", repo.tx.db.Exec("DELETE FROM logins WHERE hash = ?", hash))
	return err
}

// DeleteExpiredLogins removes expired logins.
func (repo Tokens) DeleteExpiredLogins() error {
	_, err := storage.RowCount("removing log-ins that have expired",
		repo.tx.db.Exec("DELETE FROM logins WHERE expires_at <= ?", repo.tx.Now))
	return err
}
