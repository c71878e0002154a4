package ledger

import (
	"maps"
	"slices"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
)

// The loop runs these queries at every commit, so each one uses an index, however many sandboxes wait.

// waiting selects the sandboxes of an instance that are not confirmed gone, by due time.
func (tx *Tx) waiting(instance string) *gorm.DB {
	return tx.db.Model(&Sandbox{}).Where("phase <> 'gone' AND instance = ?", instance).Order("wake_at")
}

// DueSandboxes returns the ids of an instance's sandboxes that are due and not claimed, the longest due first.
func (tx *Tx) DueSandboxes(instance string, limit int) (ids []string, err error) {
	err = tx.waiting(instance).Where("wake_at <= ?", tx.Now).Limit(limit).Pluck("id", &ids).Error
	return ids, storage.Error("looking for due sandboxes", err)
}

// OverdueSandboxes returns the ids of sandboxes, of any instance, that are due and whose lease has ended or is at its
// time, the longest due first.
func (tx *Tx) OverdueSandboxes(limit int) (ids []string, err error) {
	err = tx.db.Model(&Sandbox{}).Where("phase <> 'gone' AND wake_at <= ? AND NOT ?", tx.Now, tx.IsLive()).
		Order("wake_at").Limit(limit).Pluck("id", &ids).Error
	return ids, storage.Error("looking for sandboxes that are to be gone", err)
}

// NextDue returns when the first sandbox of an instance can be worked on, Never when none will.
func (tx *Tx) NextDue(instance string) (micro.Time, error) { return firstDue(tx.waiting(instance)) }

// DueAfter is NextDue without the sandboxes that can be worked on at a time, or could before.
func (tx *Tx) DueAfter(instance string, at micro.Time) (micro.Time, error) {
	return firstDue(tx.waiting(instance).Where("wake_at > ?", at))
}

func firstDue(waiting *gorm.DB) (micro.Time, error) {
	var first []micro.Time
	if err := waiting.Limit(1).Pluck("wake_at", &first).Error; err != nil || len(first) == 0 {
		return micro.Never, storage.Error("looking for due sandboxes", err)
	}
	return first[0], nil
}

// RetryFailed makes the sandboxes of an instance whose last step failed due now.
func (tx *Tx) RetryFailed(instance string) error {
	_, err := storage.RowCount("making sandboxes due", tx.db.Model(&Sandbox{}).
		Where("phase <> 'gone' AND instance = ? AND attempts > 0", instance).Update("due_at", tx.Now))
	return err
}

// ExtendClaims extends claims that are still held until a time. claims maps each claim to its sandbox. A
// claim that was returned after a failure stays in its row without an end, and is not extended.
func (tx *Tx) ExtendClaims(claims map[string]string, until micro.Time) error {
	for some := range slices.Chunk(slices.Sorted(maps.Keys(claims)), storage.MaxVariables) {
		ids := make([]string, len(some))
		for i, claim := range some {
			ids[i] = claims[claim]
		}
		_, err := storage.RowCount("extending claims", tx.db.Model(&Sandbox{}).
			Where("id IN ? AND phase <> 'gone' AND claim IN ? AND claimed_until > 0", ids, some).Update("claimed_until", until))
		if err != nil {
			return err
		}
	}
	return nil
}

// InstanceSandboxes returns a page of the instance's sandboxes that are not confirmed gone, by id after the
// given one. It omits columns that only their creation needs: variables, settings, conditions and post-start
// commands.
func (tx *Tx) InstanceSandboxes(instance, after string, limit int) ([]Sandbox, error) {
	return storage.Find[Sandbox](tx.db.Omit("env", "settings", "expiry_conditions", "post_start").
		Where("phase <> 'gone' AND instance = ? AND id > ?", instance, after).Order("id").Limit(limit))
}
