package ledger

import "gorm.io/gorm/clause"

// Delivery returns a webhook delivery, nil when there is none of that id.
func (tx *Tx) Delivery(id string) (*Delivery, error) { return first[Delivery](tx, "id = ?", id) }

// CreateDelivery stores a delivery and reports whether its id is new. Trying is cheaper than
// looking first: nearly all are.
func (tx *Tx) CreateDelivery(d *Delivery) (bool, error) {
	n, err := rowCount("storing a delivery", tx.db.Clauses(clause.OnConflict{DoNothing: true}).Create(d))
	return n == 1, err
}
