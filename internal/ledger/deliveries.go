package ledger

// Delivery returns a webhook delivery, nil when there is none of that id.
func (tx *Tx) Delivery(id string) (*Delivery, error) { return first[Delivery](tx, "id = ?", id) }

// CreateDelivery stores a delivery.
func (tx *Tx) CreateDelivery(d *Delivery) error { return tx.create(d) }
