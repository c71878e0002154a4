// Package tokens keeps the rows of access tokens and logins of the HTTP interface.
package tokens

import (
	"maps"
	"slices"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Rows are the package's rows in a transaction.
type Rows struct {
	tx *ledger.Tx
	db *gorm.DB
}

// In returns the rows in a transaction.
func In(tx *ledger.Tx) Rows { return Rows{tx, storage.DB(tx)} }

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

// All returns all tokens, sorted by name and newest first within a name.
func (repo Rows) All() ([]Token, error) {
	return storage.Find[Token](repo.db.Order("name, created_at DESC, id"))
}

// Named returns the tokens of a name, newest first.
func (repo Rows) Named(name string) ([]Token, error) {
	return storage.Find[Token](repo.db.Where("name = ?", name).Order("created_at DESC, id"))
}

// Get returns a token by its id, nil if it does not exist.
func (repo Rows) Get(id string) (*Token, error) {
	return storage.First[Token](repo.tx, "id = ?", id)
}

// ByHash returns the token whose text has the hash, nil if there is none.
func (repo Rows) ByHash(hash []byte) (*Token, error) {
	return storage.First[Token](repo.tx, "hash = ?", hash)
}

// Create stores a new token.
func (repo Rows) Create(t *Token) error { return storage.Create(repo.tx, t) }

// Save stores a changed token.
func (repo Rows) Save(t *Token) error { return storage.Save(repo.tx, t) }

// Use records when tokens were used, by id.
func (repo Rows) Use(used map[string]micro.Time) error {
	for _, id := range slices.Sorted(maps.Keys(used)) {
		res := repo.db.Exec("UPDATE tokens SET last_used_at = ? WHERE id = ? AND last_used_at < ?", used[id], id, used[id])
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
func (repo Rows) LoginByHash(hash []byte) (*Login, error) {
	return storage.First[Login](repo.tx, "hash = ?", hash)
}

// CreateLogin stores a new log-in.
func (repo Rows) CreateLogin(l *Login) error { return storage.Create(repo.tx, l) }

// DeleteLogin removes the log-in whose id has the hash, if there is one.
func (repo Rows) DeleteLogin(hash []byte) error {
	_, err := storage.RowCount("ending a log-in", repo.db.Exec("DELETE FROM logins WHERE hash = ?", hash))
	return err
}

// DeleteExpiredLogins removes expired logins.
func (repo Rows) DeleteExpiredLogins() error {
	_, err := storage.RowCount("removing log-ins that have expired",
		repo.db.Exec("DELETE FROM logins WHERE expires_at <= ?", repo.tx.Now))
	return err
}
