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

// Secret is a row of environment_secrets: one secret of an environment, sealed.
type Secret struct {
	EnvironmentID string `gorm:"primaryKey"`
	Name          string `gorm:"primaryKey"`
	Sealed        []byte
	UpdatedAt     micro.Time `gorm:"autoUpdateTime:false"`
}

// TableName implements gorm's Tabler.
func (Secret) TableName() string { return "environment_secrets" }

// Of returns an environment's secrets, by name.
func (repo Rows) Of(environmentID string) ([]Secret, error) {
	return storage.Find[Secret](repo.db.Where("environment_id = ?", environmentID).Order("name"))
}

// All returns the secrets of all environments.
func (repo Rows) All() ([]Secret, error) {
	return storage.Find[Secret](repo.db.Order("environment_id, name"))
}

// Save stores a secret, or its new value.
func (repo Rows) Save(s *Secret) error { return storage.Save(repo.tx, s) }

// Delete removes a secret.
func (repo Rows) Delete(environmentID, name string) error {
	return storage.Error("writing to the ledger",
		repo.db.Delete(&Secret{EnvironmentID: environmentID, Name: name}).Error)
}

// DeleteAll removes all secrets of an environment.
func (repo Rows) DeleteAll(environmentID string) error {
	return storage.Error("writing to the ledger",
		repo.db.Where("environment_id = ?", environmentID).Delete(&Secret{}).Error)
}
