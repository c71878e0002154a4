// Package sealedsecrets keeps the rows of secrets of environments, sealed.
package sealedsecrets

import (
	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
)

// Rows are the package's rows in a transaction.
type Rows struct {
	tx *ledger.Tx
	db *gorm.DB
}

// In returns the rows in a transaction.
func In(tx *ledger.Tx) Rows { return Rows{tx, storage.DB(tx)} }

// EnvironmentSecret is a row of environment_secrets: one secret of an environment, sealed.
type EnvironmentSecret struct {
	EnvironmentID string `gorm:"primaryKey"`
	Name          string `gorm:"primaryKey"`
	Sealed        []byte
	UpdatedAt     micro.Time `gorm:"autoUpdateTime:false"`
}

// Of returns an environment's secrets, by name.
func (repo Rows) Of(environmentID string) ([]EnvironmentSecret, error) {
	return storage.Find[EnvironmentSecret](repo.db.Where("environment_id = ?", environmentID).Order("name"))
}

// All returns the secrets of all environments.
func (repo Rows) All() ([]EnvironmentSecret, error) {
	return storage.Find[EnvironmentSecret](repo.db.Order("environment_id, name"))
}

// Save stores a secret, or its new value.
func (repo Rows) Save(s *EnvironmentSecret) error { return storage.Save(repo.tx, s) }

// Delete removes a secret.
func (repo Rows) Delete(environmentID, name string) error {
	return storage.Error("writing to the ledger",
		repo.db.Delete(&EnvironmentSecret{EnvironmentID: environmentID, Name: name}).Error)
}

// DeleteAll removes all secrets of an environment.
func (repo Rows) DeleteAll(environmentID string) error {
	return storage.Error("writing to the ledger",
		repo.db.Where("environment_id = ?", environmentID).Delete(&EnvironmentSecret{}).Error)
}
