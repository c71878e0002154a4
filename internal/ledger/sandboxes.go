package ledger

import (
	"database/sql"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Sandbox returns a sandbox, or what is left of a purged one; nil if it never existed.
func (tx *Tx) Sandbox(id string) (*Sandbox, error) {
	s, err := storage.First[Sandbox](tx, "id = ?", id)
	if err != nil || s != nil {
		return s, err
	}
	return tx.tombstone(id)
}

// KnownSandbox is Sandbox for a sandbox that must exist. Errors: NotFound.
func (tx *Tx) KnownSandbox(id string) (*Sandbox, error) {
	s, err := tx.Sandbox(id)
	if err == nil && s == nil {
		err = sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s on this ledger", id).
			WithReason(sandbox.ReasonSandboxNotFound)
	}
	return s, err
}

// IsWanted reports whether a sandbox should be present. It reads no other column, because waiting callers ask after
// each commit.
func (tx *Tx) IsWanted(id string) (bool, error) {
	var n int64
	err := tx.db.Model(&Sandbox{}).Where("id = ? AND desired = ?", id, Present).Count(&n).Error
	return n > 0, storage.Error("looking for a sandbox", err)
}

// CreateSandbox stores a new sandbox. Errors: Conflict for an id that was ever used.
func (tx *Tx) CreateSandbox(s *Sandbox) error {
	old, err := tx.tombstone(s.ID)
	if err != nil {
		return err
	}
	if old != nil {
		return sandbox.Errorf(sandbox.Conflict,
			"sandbox id %s belonged to generation %d of lease %s and is never reused",
			s.ID, old.Generation, old.Lease())
	}
	return storage.Create(tx, s)
}

var saveEndings = storage.Bulk{
	Head: `UPDATE sandboxes SET desired = ending.column2, due_at = ending.column3, attempts = ending.column4,
		ended_by = ending.column5, end_reason = ending.column6, ended_at = ending.column7, last_sequence = ending.column8,
		stands = ending.column9, changed_at = ending.column10,
		kept_until = ending.column11, observed_at = ending.column12
		FROM (VALUES `,
	Row: `(CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT),
		CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT))`,
	Tail: `) AS ending WHERE sandboxes.id = ending.column1`,
}

// SaveEndings stores the changes of ended leases' sandboxes, and the last sequences.
func (tx *Tx) SaveEndings(rows []*Sandbox) error {
	_, err := storage.BulkExec(tx, "writing to the ledger", saveEndings, rows, func(list []any, row **Sandbox) []any {
		s := *row
		return append(list, s.ID, s.Desired, s.Schedule.DueAt, s.Schedule.Attempts, s.Ending.By, s.Ending.Reason, s.Ending.At,
			s.LastSequence, s.Status.State, s.Status.Since, s.Ending.KeptUntil, s.ObservedAt)
	})
	return err
}

// LiveSandboxes returns the sandboxes of an environment that are not confirmed gone.
func (tx *Tx) LiveSandboxes(environmentID string) ([]Sandbox, error) {
	return storage.Find[Sandbox](tx.db.Where("environment_id = ? AND phase <> 'gone'", environmentID).Order("id"))
}

// KeptSandboxes returns kept sandboxes that failed before a time, oldest first.
func (tx *Tx) KeptSandboxes(before micro.Time, limit int) ([]Sandbox, error) {
	return storage.Find[Sandbox](tx.db.Where("kept_until > 0 AND phase <> 'gone' AND ended_at < ?", before).
		Order("ended_at").Limit(limit))
}

// KeptSandbox returns the sandbox of one generation of a lease if it failed and is kept, otherwise nil.
func (tx *Tx) KeptSandbox(leaseID string, generation int64) (*Sandbox, error) {
	return storage.First[Sandbox](tx, "lease_id = ? AND generation = ? AND kept_until > 0 AND phase <> 'gone'",
		leaseID, generation)
}

// SandboxOf returns the sandbox of one generation of a lease, nil if there is none or it was purged.
func (tx *Tx) SandboxOf(leaseID string, generation int64) (*Sandbox, error) {
	return storage.First[Sandbox](tx, "lease_id = ? AND generation = ?", leaseID, generation)
}

// LeasedSandboxes returns the LiveSandboxes of leases, without those in a warm pool.
func (tx *Tx) LeasedSandboxes(environmentID string) ([]Sandbox, error) {
	return storage.Find[Sandbox](tx.db.Where("environment_id = ? AND phase <> 'gone' AND lease_id IS NOT NULL",
		environmentID).
		Order("id"))
}

// BatchSandboxes returns the sandboxes of a batch whose leases have not ended.
func (tx *Tx) BatchSandboxes(batchID string) ([]Sandbox, error) {
	return storage.Find[Sandbox](tx.db.Where("batch_id = ? AND batch_id <> '' AND desired = 'present'", batchID).
		Order("id"))
}

// AdoptedFrom returns the ledgers from which sandboxes of an environment were adopted.
func (tx *Tx) AdoptedFrom(environmentID string) ([]string, error) {
	var ids []string
	err := tx.db.Raw(`SELECT ledger_id FROM sandboxes WHERE environment_id = @id AND ledger_id <> ''
		UNION SELECT ledger_id FROM retired_sandboxes WHERE environment_id = @id AND ledger_id <> '' ORDER BY ledger_id`,
		sql.Named("id", environmentID)).Scan(&ids).Error
	return ids, storage.Error("looking for adopted sandboxes", err)
}

// HasSandboxes reports whether the ledger ever had a sandbox.
func (tx *Tx) HasSandboxes() (bool, error) {
	var ever bool
	err := tx.db.Raw("SELECT EXISTS (SELECT 1 FROM sandboxes) OR EXISTS (SELECT 1 FROM retired_sandboxes)").
		Scan(&ever).Error
	return ever, storage.Error("looking for sandboxes", err)
}

// Observed records that the given sandboxes were now seen in the state that the ledger has.
func (tx *Tx) Observed(ids []string) error {
	for some := range slices.Chunk(ids, storage.MaxVariables) {
		_, err := storage.RowCount("recording observations", tx.db.Model(&Sandbox{}).
			Where("id IN ? AND phase IN ('awake', 'asleep')", some).Update("observed_at", tx.Now))
		if err != nil {
			return err
		}
	}
	return nil
}
