package ledger

import (
	"slices"

	"gorm.io/gorm/clause"
)

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

// deliveryBatch bounds the variables and the bodies of one INSERT.
const deliveryBatch = 128

// CreateDeliveries stores deliveries and reports whether all their ids are new. It is for ids that
// were looked for before: one that is not new was stored by another process meanwhile.
func (tx *Tx) CreateDeliveries(rows []Delivery) (bool, error) {
	if len(rows) == 0 {
		return true, nil
	}
	n, err := rowCount("storing deliveries", tx.db.Clauses(clause.OnConflict{DoNothing: true}).CreateInBatches(&rows, deliveryBatch))
	return n == int64(len(rows)), err
}
