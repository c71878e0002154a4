package ledger

import (
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Environment is a row of environments.
type Environment struct {
	ID       string `gorm:"primaryKey"`
	Owner    string
	Type     sandbox.EnvironmentType
	Backend  sandbox.Backend
	Instance string
	Spec     sandbox.EnvironmentSpec `gorm:"serializer:json"`
	Status   sandbox.EnvironmentStatus
	Epoch    int64
	Ended    EnvironmentEnd `gorm:"embedded;embeddedPrefix:ended_"`
	OpenedAt micro.Time
	Pool     PoolFailures     `gorm:"embedded;embeddedPrefix:pool_"`
	Claim    EnvironmentClaim `gorm:"embedded"`
	// UnmadeSince is when the first creation began, 0 once it has succeeded.
	UnmadeSince micro.Time
	// PurgedAt is when the details were purged so that only the name is left, 0 before.
	PurgedAt  micro.Time `gorm:"column:retired_at"`
	CreatedAt micro.Time `gorm:"autoCreateTime:false"`
	UpdatedAt micro.Time `gorm:"autoUpdateTime:false"`
}

// EnvironmentEnd is the set of conditions that have ended an environment since it was last opened.
type EnvironmentEnd struct {
	Conditions []string `gorm:"serializer:json"`
	// By is the last one of Conditions, At its time.
	By string
	At micro.Time
}

// PoolFailures counts the sandboxes of a warm pool that could not be made, in a row.
type PoolFailures struct {
	Failures int64
	// Error is the text of the last failure. No sandbox is made before DueAt.
	Error string
	DueAt micro.Time
}

// EnvironmentClaim is the right of one request to create, change or remove an environment's resources on its
// backend.
type EnvironmentClaim struct {
	Token string     `gorm:"column:claim"`
	Until micro.Time `gorm:"column:claimed_until"`
}

// Holds reports whether the claim is valid at now.
func (c *EnvironmentClaim) Holds(now micro.Time) bool { return c.Until > now }

// Unmade reports whether the environment is being created for the first time.
func (e *Environment) Unmade() bool {
	return e.UnmadeSince != 0 && (e.Status == sandbox.EnvironmentOpen || e.Status == sandbox.EnvironmentClosed)
}

// KnownEnvironment returns an environment. Errors: NotFound.
func (tx *Tx) KnownEnvironment(id string) (*Environment, error) {
	row, err := tx.Environment(id)
	if err == nil && row == nil {
		err = sandbox.Errorf(sandbox.NotFound,
			"there is no environment %q on this ledger: check the name and the ledger", id)
	}
	return row, err
}

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

// ClaimEnvironment sets a claim on an environment without a valid one.
func (tx *Tx) ClaimEnvironment(id, claim string, until micro.Time) error {
	_, err := storage.RowCount("claiming an environment", tx.db.Model(&Environment{}).Where("id = ?", id).
		UpdateColumns(map[string]any{"claim": claim, "claimed_until": until}))
	return err
}

// ExtendEnvironmentClaim extends a claim, and reports whether it was still held.
func (tx *Tx) ExtendEnvironmentClaim(id, claim string, until micro.Time) (held bool, err error) {
	n, err := storage.RowCount("extending the claim on an environment", tx.db.Model(&Environment{}).
		Where("id = ? AND claim = ?", id, claim).UpdateColumn("claimed_until", until))
	return n == 1, err
}

// UnfinishedEnvironments returns the environments on an instance whose creation or removal is incomplete and
// that have no valid claim.
func (tx *Tx) UnfinishedEnvironments(instance string) ([]Environment, error) {
	return storage.Find[Environment](tx.db.Where("instance = ? AND status <> ? AND (status = ? OR unmade_since > 0) AND "+
		"claimed_until <= ?", instance, sandbox.EnvironmentDestroyed, sandbox.EnvironmentDeleting, tx.Now).Order("id"))
}
