package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
)

// EnvironmentSecret is a row of environment_secrets: one secret of an environment, sealed.
type EnvironmentSecret struct {
	EnvironmentID string `gorm:"primaryKey"`
	Name          string `gorm:"primaryKey"`
	Sealed        []byte
	UpdatedAt     micro.Time `gorm:"autoUpdateTime:false"`
}

// Secrets returns an environment's secrets, by name.
func (tx *Tx) Secrets(environmentID string) ([]EnvironmentSecret, error) {
	return storage.Find[EnvironmentSecret](tx.db.Where("environment_id = ?", environmentID).Order("name"))
}

// AllSecrets returns the secrets of all environments.
func (tx *Tx) AllSecrets() ([]EnvironmentSecret, error) {
	return storage.Find[EnvironmentSecret](tx.db.Order("environment_id, name"))
}

// SaveSecret stores a secret, or its new value.
func (tx *Tx) SaveSecret(s *EnvironmentSecret) error { return storage.Save(tx, s) }

// DeleteSecret removes a secret.
func (tx *Tx) DeleteSecret(environmentID, name string) error {
	return storage.Error("writing to the ledger",
		tx.db.Delete(&EnvironmentSecret{EnvironmentID: environmentID, Name: name}).Error)
}

// DeleteSecrets removes all secrets of an environment.
func (tx *Tx) DeleteSecrets(environmentID string) error {
	return storage.Error("writing to the ledger",
		tx.db.Where("environment_id = ?", environmentID).Delete(&EnvironmentSecret{}).Error)
}
