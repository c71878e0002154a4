package ledger

import "github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"

// Environment returns an environment, nil when there is none of that id.
func (tx *Tx) Environment(id string) (*Environment, error) {
	return first[Environment](tx, "id = ?", id)
}

// Environments returns all environments that are not destroyed, by id.
func (tx *Tx) Environments() ([]Environment, error) {
	return find[Environment](tx.db.Where("status <> ?", sandbox.EnvironmentDestroyed).Order("id"))
}

// CreateEnvironment stores a new environment.
func (tx *Tx) CreateEnvironment(e *Environment) error { return tx.create(e) }

// SaveEnvironment stores a changed environment.
func (tx *Tx) SaveEnvironment(e *Environment) error {
	e.UpdatedAt = tx.Now
	return tx.save(e)
}
