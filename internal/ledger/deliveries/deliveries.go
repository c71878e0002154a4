// Package deliveries keeps the rows of webhook deliveries.
package deliveries

import (
	"slices"
	"strings"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Delivery is a row of deliveries.
type Delivery struct {
	ID            string `gorm:"primaryKey"`
	ReceivedAt    micro.Time
	Source        string
	Body          []byte
	Type          string
	EnvironmentID string `gorm:"primaryKey"`
	AgentDID      string `gorm:"column:agent_did"`
	Generation    int64
	OccurredAt    micro.Time
	Status        sandbox.DeliveryStatus
	Matched       int
	DidYouMean    string
	Reason        sandbox.DeliveryReason
}

// Domain converts the delivery to the domain type.
func (d *Delivery) Domain() sandbox.StoredDelivery {
	return sandbox.StoredDelivery{
		ID:            d.ID,
		ReceivedAt:    d.ReceivedAt.Time(),
		Source:        d.Source,
		Body:          string(d.Body),
		Status:        d.Status,
		Matched:       d.Matched,
		DidYouMean:    d.DidYouMean,
		Reason:        d.Reason,
		Type:          d.Type,
		OccurredAt:    d.OccurredAt.Time(),
		EnvironmentID: d.EnvironmentID,
		AgentDID:      d.AgentDID,
		Generation:    d.Generation,
	}
}

// Rows are the package's rows in a transaction.
type Rows struct {
	tx *ledger.Tx
	db *gorm.DB
}

// In returns the rows in a transaction.
func In(tx *ledger.Tx) Rows { return Rows{tx, storage.DB(tx)} }

// Key identifies a delivery. Senders of different environments choose their ids independently of each other.
type Key struct{ EnvironmentID, ID string }

// Key returns the key of the delivery.
func (d *Delivery) Key() Key { return Key{d.EnvironmentID, d.ID} }

// Known returns the stored ones of the given deliveries.
func (repo Rows) Known(keys []Key) (map[Key]Delivery, error) {
	known := make(map[Key]Delivery)
	for some := range slices.Chunk(keys, storage.MaxVariables/2) {
		var values []any
		for _, k := range some {
			values = append(values, k.ID, k.EnvironmentID)
		}
		var rows []Delivery
		// SQLite would read the whole table for pairs in a list.
		err := repo.db.Raw("SELECT d.* FROM (VALUES (?, ?)"+strings.Repeat(", (?, ?)", len(some)-1)+") AS k "+
			"JOIN deliveries AS d ON d.id = k.column1 AND d.environment_id = k.column2", values...).Scan(&rows).Error
		if err != nil {
			return nil, storage.Error("reading deliveries", err)
		}
		for _, d := range rows {
			known[d.Key()] = d
		}
	}
	return known, nil
}

var createDeliveries = storage.InsertInto("deliveries", "id", "received_at", "source", "body", "type", "environment_id",
	"agent_did", "generation", "occurred_at", "status", "matched", "did_you_mean", "reason").OnlyNew()

// Create stores deliveries and reports whether all of them are new. The caller has already looked for them: one that is
// not new was stored by another process meanwhile.
func (repo Rows) Create(rows []Delivery) (bool, error) {
	n, err := storage.BulkExec(repo.tx, "storing deliveries", createDeliveries, rows, func(list []any, d *Delivery) []any {
		return append(list, d.ID, int64(d.ReceivedAt), d.Source, d.Body, d.Type, d.EnvironmentID,
			d.AgentDID, d.Generation, int64(d.OccurredAt), string(d.Status), int64(d.Matched), d.DidYouMean,
			string(d.Reason))
	})
	return n == int64(len(rows)), err
}

// List returns the deliveries that a filter selects, newest first.
func (repo Rows) List(f sandbox.DeliveryFilter) ([]Delivery, error) {
	limit := f.Limit
	if limit == 0 {
		limit = sandbox.MaxDeliveryPage
	}
	q := repo.db.Order("received_at DESC, id DESC, environment_id DESC").Limit(limit)
	if f.ID != "" {
		q = q.Where("id = ?", f.ID)
	}
	if f.EnvironmentID != "" {
		q = q.Where("environment_id = ?", f.EnvironmentID)
	}
	if f.Status != "" {
		q = q.Where("status = ?", f.Status)
	}
	if f.Before != "" {
		environment, id := sandbox.SplitDeliveryCursor(f.Before)
		if f.EnvironmentID != "" && environment != f.EnvironmentID {
			return nil, nil // otherwise the page would say whether another environment has this message
		}
		q = q.Where("(received_at, id, environment_id) < (SELECT received_at, id, environment_id FROM deliveries AS d "+
			"WHERE d.id = ? AND d.environment_id = ?)", id, environment)
	}
	return storage.Find[Delivery](q)
}

// Last returns when each source last delivered, among retained deliveries.
func (repo Rows) Last() (map[string]micro.Time, error) {
	var rows []struct {
		Source string
		At     micro.Time
	}
	err := repo.db.Model(&Delivery{}).Select("source, max(received_at) AS at").Group("source").Scan(&rows).Error
	last := make(map[string]micro.Time, len(rows))
	for _, r := range rows {
		last[r.Source] = r.At
	}
	return last, storage.Error("reading deliveries", err)
}
