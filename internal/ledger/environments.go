package ledger

import (
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Environment returns an environment, nil if it does not exist.
func (tx *Tx) Environment(id string) (*Environment, error) {
	return storage.First[Environment](tx, "id = ?", id)
}

// EnvironmentsOf returns the existing ones of the given environments, by id.
func (tx *Tx) EnvironmentsOf(ids []string) (map[string]*Environment, error) {
	known := make(map[string]*Environment)
	for some := range slices.Chunk(ids, storage.MaxVariables) {
		rows, err := storage.Find[Environment](tx.db.Where("id IN ?", some))
		if err != nil {
			return nil, err
		}
		for i := range rows {
			known[rows[i].ID] = &rows[i]
		}
	}
	return known, nil
}

// Environments returns all environments that are not destroyed, by id.
func (tx *Tx) Environments() ([]Environment, error) {
	return storage.Find[Environment](tx.db.Where("status <> ?", sandbox.EnvironmentDestroyed).Order("id"))
}

// CreateEnvironment stores a new environment.
func (tx *Tx) CreateEnvironment(e *Environment) error { return storage.Create(tx, e) }

// ReplaceEnvironment stores the next life of an environment that was destroyed or never created.
func (tx *Tx) ReplaceEnvironment(e *Environment) error {
	e.UpdatedAt = tx.Now
	return storage.Save(tx, e)
}
