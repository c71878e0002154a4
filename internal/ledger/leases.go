package ledger

import (
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Lease is a row of leases.
type Lease struct {
	ID            string `gorm:"primaryKey"`
	AgentDID      string `gorm:"column:agent_did"`
	EnvironmentID string
	Generation    int64
	SandboxID     string
	CreatedAt     micro.Time `gorm:"autoCreateTime:false"`
}

// Lease returns a lease, nil if it does not exist.
func (tx *Tx) Lease(id string) (*Lease, error) { return storage.First[Lease](tx, "id = ?", id) }

// Current returns the sandbox of a lease's current generation, or what is left of a purged one; nil if the lease does
// not exist. Each use of a sandbox begins with it, so it asks once if it can.
func (tx *Tx) Current(leaseID string) (*Sandbox, error) {
	s, err := storage.First[Sandbox](tx, "id = (SELECT sandbox_id FROM leases WHERE id = ?)", leaseID)
	if err != nil || s != nil {
		return s, err
	}
	l, err := tx.Lease(leaseID)
	if err != nil || l == nil {
		return nil, err
	}
	return tx.tombstone(l.SandboxID)
}

// CurrentOf returns the current sandboxes of the given leases, by lease id. It omits columns that only their
// creation needs: variables and settings.
func (tx *Tx) CurrentOf(leaseIDs []string) (map[string]*Sandbox, error) {
	current := make(map[string]*Sandbox)
	for some := range slices.Chunk(leaseIDs, storage.MaxVariables) {
		rows, err := storage.Find[Sandbox](tx.db.Omit("env", "settings").
			Where("id IN (SELECT sandbox_id FROM leases WHERE id IN ?)", some))
		if err != nil {
			return nil, err
		}
		for i := range rows {
			current[rows[i].Lease()] = &rows[i]
		}
	}
	return current, nil
}

// BeginGeneration makes a sandbox the current generation of its lease. l is the lease, nil for a new one.
func (tx *Tx) BeginGeneration(l *Lease, s *Sandbox) error {
	if l == nil {
		return storage.Create(tx, &Lease{ID: s.Lease(), AgentDID: s.AgentDID, EnvironmentID: s.EnvironmentID,
			CreatedAt:  tx.Now,
			Generation: s.Generation, SandboxID: s.ID})
	}
	l.Generation, l.SandboxID = s.Generation, s.ID
	return storage.Save(tx, l)
}

// leaseColumns are the columns by which leases can be sorted.
var leaseColumns = map[sandbox.LeaseSort]string{
	sandbox.SortByID: "lease_id", sandbox.SortByEnvironment: "environment_id", sandbox.SortByLeased: "leased_at",
	sandbox.SortByActivity: "last_activity", sandbox.SortByExpiry: "expires_at",
}

// CurrentSandboxes returns the current sandboxes that a filter selects, in its order.
func (tx *Tx) CurrentSandboxes(f sandbox.LeaseFilter) ([]Sandbox, error) {
	q := tx.db.Where("EXISTS (SELECT 1 FROM leases WHERE leases.id = sandboxes.lease_id AND leases.sandbox_id " +
		"= sandboxes.id)").Limit(storage.PageSize(f.Limit))
	if f.EnvironmentID != "" {
		q = q.Where("environment_id = ?", f.EnvironmentID)
	}
	if f.AgentDID != "" {
		q = q.Where("agent_did = ?", f.AgentDID)
	}
	if f.Search != "" {
		q = q.Where(`lower(lease_id) LIKE ? ESCAPE '\'`, "%"+likeEscapes.Replace(strings.ToLower(f.Search))+"%")
	}
	q, err := tx.sortLeases(q, f)
	if err != nil {
		return nil, err
	}
	q = tx.whereLabels(q, sandboxLabels, f.Labels)
	return storage.Find[Sandbox](tx.whereStatus(q, f.Status))
}

// likeEscapes escapes the special characters of LIKE.
var likeEscapes = strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`)

// sortLeases sorts a query of current sandboxes, and starts it after the last lease of the previous page. Errors:
// Invalid if there is no such lease, and After does not say where it was.
func (tx *Tx) sortLeases(q *gorm.DB, f sandbox.LeaseFilter) (*gorm.DB, error) {
	by, reversed := f.Sort.Reversed()
	column, order, follows := leaseColumns[by], "", ">"
	if reversed {
		order, follows = " DESC", "<"
	}
	if by == sandbox.SortByID {
		if f.After != "" {
			q = q.Where("lease_id "+follows+" ?", f.After)
		}
		return q.Order("lease_id" + order), nil
	}
	if f.After != "" {
		value, id, err := tx.placeOf(by, f)
		if err != nil {
			return nil, err
		}
		q = q.Where("("+column+", lease_id) "+follows+" (?, ?)", value, id)
	}
	return q.Order(column + order).Order("lease_id" + order), nil
}

// placeOf returns the sorted value and the id of the last lease of the previous page. Without its time in After, they
// are those of now.
func (tx *Tx) placeOf(by sandbox.LeaseSort, f sandbox.LeaseFilter) (value any, leaseID string, err error) {
	id, at, isTimed := f.Last()
	if isTimed && by != sandbox.SortByEnvironment {
		return micro.At(at), id, nil
	}
	s, err := tx.Current(id)
	if err != nil {
		return nil, "", err
	}
	if s == nil || s.Tombstone != nil && by != sandbox.SortByEnvironment {
		return nil, "", sandbox.InvalidFields("the lease filter", []sandbox.Field{{Name: "after",
			Problem: fmt.Sprintf("%q is not a lease, or was purged: list from the first page", id)}})
	}
	switch by {
	case sandbox.SortByEnvironment:
		return s.EnvironmentID, id, nil
	case sandbox.SortByLeased:
		return s.LeasedAt, id, nil
	case sandbox.SortByActivity:
		return s.LastActivity, id, nil
	default:
		return s.ExpiresAt(0, tx.Now), id, nil
	}
}

// whereStatus restricts a query of sandboxes to a lease status, which follows from the wanted state, the
// observed state and the time.
func (tx *Tx) whereStatus(q *gorm.DB, s sandbox.LeaseStatus) *gorm.DB {
	switch s {
	case "":
		return q
	case sandbox.LeasePending:
		return q.Where("phase = 'pending' AND ?", tx.IsLive())
	case sandbox.LeaseActive:
		return q.Where("phase <> 'gone' AND phase <> 'pending' AND ?", tx.IsLive())
	case sandbox.LeaseExpired:
		return q.Where("phase <> 'gone' AND NOT ?", tx.IsLive())
	default:
		return q.Where("phase = 'gone'")
	}
}

// IsLive is Sandbox.Live as a condition on the table sandboxes. The column expires_at does not include holds.
func (tx *Tx) IsLive() clause.Expr {
	return gorm.Expr("(sandboxes.desired = 'present' AND (sandboxes.expires_at > ? OR "+
		"sandboxes.leased_at + sandboxes.max_lifetime > ? AND "+
		"EXISTS (SELECT 1 FROM holds WHERE holds.sandbox_id = sandboxes.id AND holds.until > ?)))", tx.Now, tx.Now, tx.Now)
}
