package ledger

import (
	"maps"
	"slices"

	"gorm.io/gorm"
)

// The loop asks these at every commit, so each is answered by an index however many sandboxes wait.

// maxVariables bounds the values of one IN: a statement has 32,766 variables on SQLite, and 65,535
// on PostgreSQL.
const maxVariables = 500

// waiting is the sandboxes of an instance that are not confirmed gone, by when to look again.
func (tx *Tx) waiting(instance string) *gorm.DB {
	return tx.db.Model(&Sandbox{}).Where("phase <> 'gone' AND instance = ?", instance).Order("wake_at")
}

// DueSandboxes returns the ids of an instance's sandboxes that are due and not claimed, the longest due first.
func (tx *Tx) DueSandboxes(instance string, limit int) (ids []string, err error) {
	err = tx.waiting(instance).Where("wake_at <= ?", tx.Now).Limit(limit).Pluck("id", &ids).Error
	return ids, unavailable("looking for due sandboxes", err)
}

// NextDue returns when the next sandbox of an instance can be worked on, Never when none will.
func (tx *Tx) NextDue(instance string) (Time, error) {
	var first []Time
	if err := tx.waiting(instance).Limit(1).Pluck("wake_at", &first).Error; err != nil || len(first) == 0 {
		return Never, unavailable("looking for due sandboxes", err)
	}
	return first[0], nil
}

// RetryFailed makes the sandboxes of an instance due now whose last step failed.
func (tx *Tx) RetryFailed(instance string) error {
	_, err := rowCount("making sandboxes due", tx.db.Model(&Sandbox{}).
		Where("phase <> 'gone' AND instance = ? AND attempts > 0", instance).Update("due_at", tx.Now))
	return err
}

// ExtendClaims pushes the end of the claims that are still held to until. claims names the sandbox
// of each. One that was given back after a failure is left on its row, with no end, and stays so.
func (tx *Tx) ExtendClaims(claims map[string]string, until Time) error {
	for some := range slices.Chunk(slices.Sorted(maps.Keys(claims)), maxVariables) {
		ids := make([]string, len(some))
		for i, claim := range some {
			ids[i] = claims[claim]
		}
		_, err := rowCount("extending claims", tx.db.Model(&Sandbox{}).
			Where("id IN ? AND phase <> 'gone' AND claim IN ? AND claimed_until > 0", ids, some).Update("claimed_until", until))
		if err != nil {
			return err
		}
	}
	return nil
}

// InstanceSandboxes returns the sandboxes of a backend instance that are not confirmed gone, a page
// by id after the given one, without what only their making needs: environment variables, settings,
// conditions and post-start commands.
func (tx *Tx) InstanceSandboxes(instance, after string, limit int) ([]Sandbox, error) {
	return find[Sandbox](tx.db.Omit("env", "settings", "expiry_conditions", "post_start").
		Where("phase <> 'gone' AND instance = ? AND id > ?", instance, after).Order("id").Limit(limit))
}

// Touch changes something that means nothing, to see that the ledger can be written.
func (tx *Tx) Touch() error {
	return unavailable("writing to the ledger", tx.db.Exec("UPDATE ledgers SET touched = touched + 1").Error)
}
