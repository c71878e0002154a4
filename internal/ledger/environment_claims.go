package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

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
