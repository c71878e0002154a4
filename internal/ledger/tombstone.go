package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Tombstone is a row of retired_sandboxes: what is left of a purged sandbox, forever.
type Tombstone struct {
	ID            string `gorm:"primaryKey"`
	LeaseID       string // "" if it was never leased
	Generation    int64
	EnvironmentID string
	Owner         string
	LedgerID      string
	LastSequence  int64
	LastEventID   int64
	LeasedAt      micro.Time
	EndedAt       micro.Time
	EndedBy       sandbox.EndedBy
	EndReason     string
	DestroyedAt   micro.Time
	PurgedAt      micro.Time        `gorm:"column:retired_at"`
	Labels        map[string]string `gorm:"serializer:json"`
	// Cost is the gross cost of the generation, without its calls of models.
	Cost sandbox.NanoUSD
	LLM  sandbox.LLMUse `gorm:"column:llm;serializer:json"`
}

// TableName implements gorm's Tabler.
func (Tombstone) TableName() string { return "retired_sandboxes" }

// sandbox returns the known columns of the row.
func (r *Tombstone) sandbox() *Sandbox {
	s := &Sandbox{
		ID: r.ID, EnvironmentID: r.EnvironmentID,
		Tenure:  Tenure{Generation: r.Generation, Owner: r.Owner, LeasedAt: r.LeasedAt},
		Terms:   Terms{ExpiryConditions: []string{}, Labels: r.Labels},
		Origin:  Origin{LedgerID: r.LedgerID},
		Desired: Gone, Phase: sandbox.PhaseGone,
		Status:   Status{State: sandbox.SandboxDeleted, Since: r.DestroyedAt},
		Ending:   Ending{At: r.EndedAt, By: r.EndedBy, Reason: r.EndReason, DestroyedAt: r.DestroyedAt},
		Schedule: Schedule{DueAt: micro.Never}, LastSequence: r.LastSequence, Tombstone: r,
	}
	if r.LeaseID != "" {
		s.LeaseID = &r.LeaseID
		s.AgentDID, _, _ = sandbox.ParseLeaseID(r.LeaseID)
	}
	return s
}

// tombstone returns what is left of a sandbox, nil if it never existed.
func (tx *Tx) tombstone(id string) (*Sandbox, error) {
	r, err := storage.First[Tombstone](tx, "id = ?", id)
	if err != nil || r == nil {
		return nil, err
	}
	return r.sandbox(), nil
}
