package ledger

import "slices"

// Deliveries returns those of the given webhook deliveries that are stored, by id.
func (tx *Tx) Deliveries(ids []string) (map[string]Delivery, error) {
	known := make(map[string]Delivery)
	for some := range slices.Chunk(ids, maxVariables) {
		rows, err := find[Delivery](tx.db.Where("id IN ?", some))
		if err != nil {
			return nil, err
		}
		for _, d := range rows {
			known[d.ID] = d
		}
	}
	return known, nil
}

var createDeliveries = insertInto("deliveries", "id", "received_at", "source", "body", "type", "environment_id",
	"agent_did", "generation", "occurred_at", "status", "matched").onlyNew()

// CreateDeliveries stores deliveries and reports whether all their ids are new. It is for ids that
// were looked for before: one that is not new was stored by another process meanwhile.
func (tx *Tx) CreateDeliveries(rows []Delivery) (bool, error) {
	n, err := bulkExec(tx, "storing deliveries", createDeliveries, rows, func(list []any, d *Delivery) []any {
		return append(list, d.ID, d.ReceivedAt, d.Source, d.Body, d.Type, d.EnvironmentID,
			d.AgentDID, d.Generation, d.OccurredAt, d.Status, d.Matched)
	})
	return n == int64(len(rows)), err
}
