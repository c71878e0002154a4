package ledger

import "github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"

// Sandbox returns a sandbox, nil when there is none of that id.
func (tx *Tx) Sandbox(id string) (*Sandbox, error) { return first[Sandbox](tx, "id = ?", id) }

// CreateSandbox stores a new sandbox.
func (tx *Tx) CreateSandbox(s *Sandbox) error { return tx.create(s) }

// SaveSandbox stores a changed sandbox.
func (tx *Tx) SaveSandbox(s *Sandbox) error { return tx.save(s) }

// LiveSandboxes returns the sandboxes of an environment that are not confirmed gone.
func (tx *Tx) LiveSandboxes(environmentID string) ([]Sandbox, error) {
	return find[Sandbox](tx.db.Where("environment_id = ? AND phase <> 'gone'", environmentID).Order("id"))
}

// InstanceSandboxes returns the sandboxes of a backend instance that are not confirmed gone.
func (tx *Tx) InstanceSandboxes(instance string) ([]Sandbox, error) {
	return find[Sandbox](tx.db.Where("instance = ? AND phase <> 'gone'", instance))
}

// HasSandboxes reports whether the ledger ever knew a sandbox.
func (tx *Tx) HasSandboxes() (bool, error) {
	s, err := first[Sandbox](tx, "1 = 1")
	return s != nil, err
}

// DueSandboxes returns the ids of sandboxes of the given instances that are due and that nobody
// works on, the longest due first.
func (tx *Tx) DueSandboxes(instances []string, limit int) ([]string, error) {
	var ids []string
	err := tx.db.Model(&Sandbox{}).
		Where("phase <> 'gone' AND due_at <= ? AND claimed_until <= ? AND instance IN ?", tx.Now, tx.Now, instances).
		Order("due_at").Limit(limit).Pluck("id", &ids).Error
	return ids, unavailable("looking for due sandboxes", err)
}

// NextDue returns when the next sandbox of the given instances can be worked on, Never when none will.
func (tx *Tx) NextDue(instances []string) (Time, error) {
	next := Never
	err := tx.db.Model(&Sandbox{}).
		Select("coalesce(min(max(due_at, claimed_until)), ?)", Never).
		Where("phase <> 'gone' AND instance IN ?", instances).Scan(&next).Error
	return next, unavailable("looking for due sandboxes", err)
}

// MakeDue makes the given sandboxes due now, forgetting how long they were to wait for a retry.
func (tx *Tx) MakeDue(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := rowCount("making sandboxes due", tx.db.Model(&Sandbox{}).
		Where("id IN ? AND phase <> 'gone'", ids).Update("due_at", tx.Now))
	return err
}

// ExtendClaims pushes the end of the claims that are still held to until.
func (tx *Tx) ExtendClaims(claims []string, until Time) error {
	_, err := rowCount("extending claims", tx.db.Model(&Sandbox{}).
		Where("phase <> 'gone' AND claim IN ?", claims).Update("claimed_until", until))
	return err
}

// Observed records that the given sandboxes were seen now as the ledger has them.
func (tx *Tx) Observed(ids []string) error {
	_, err := rowCount("recording observations", tx.db.Model(&Sandbox{}).
		Where("id IN ? AND phase IN ('awake', 'asleep')", ids).Update("observed_at", tx.Now))
	return err
}

// AddHold records a use that counts as activity until the given time.
func (tx *Tx) AddHold(h *Hold) error { return tx.create(h) }

// ExtendHolds pushes the end of the given holders' uses to until.
func (tx *Tx) ExtendHolds(holders []string, until Time) error {
	_, err := rowCount("extending holds", tx.db.Model(&Hold{}).Where("holder IN ?", holders).Update("until", until))
	return err
}

// RemoveHold ends a use.
func (tx *Tx) RemoveHold(sandboxID, holder string) error {
	_, err := rowCount("ending a hold", tx.db.Delete(&Hold{}, "sandbox_id = ? AND holder = ?", sandboxID, holder))
	return err
}

// RemoveHolds forgets all uses of a sandbox.
func (tx *Tx) RemoveHolds(sandboxID string) error {
	_, err := rowCount("ending holds", tx.db.Delete(&Hold{}, "sandbox_id = ?", sandboxID))
	return err
}

// HeldUntil returns when the last use of a sandbox ends, 0 when there is none.
func (tx *Tx) HeldUntil(sandboxID string) (Time, error) {
	var until Time
	err := tx.db.Model(&Hold{}).Select("coalesce(max(until), 0)").Where("sandbox_id = ?", sandboxID).Scan(&until).Error
	return until, unavailable("looking for holds", err)
}

// Counts returns how many sandboxes are in each phase that is not gone.
func (tx *Tx) Counts() (map[sandbox.Phase]int64, error) {
	var rows []struct {
		Phase sandbox.Phase
		N     int64
	}
	err := tx.db.Model(&Sandbox{}).Select("phase, count(*) AS n").Where("phase <> 'gone'").Group("phase").Scan(&rows).Error
	counts := make(map[sandbox.Phase]int64, len(rows))
	for _, r := range rows {
		counts[r.Phase] = r.N
	}
	return counts, unavailable("counting sandboxes", err)
}

// HeldUntilOf returns when the last use of each of the given sandboxes ends.
func (tx *Tx) HeldUntilOf(sandboxIDs []string) (map[string]Time, error) {
	rows, err := find[Hold](tx.db.Where("sandbox_id IN ?", sandboxIDs))
	until := make(map[string]Time)
	for _, h := range rows {
		until[h.SandboxID] = max(until[h.SandboxID], h.Until)
	}
	return until, err
}
