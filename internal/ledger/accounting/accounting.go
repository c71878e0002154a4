// Package accounting keeps the rows of usage and costs: usage periods, samples, price books, sums and budgets.
package accounting

import (
	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
)

// Rows are the package's rows in a transaction.
type Rows struct {
	tx *ledger.Tx
	db *gorm.DB
}

// In returns the rows in a transaction.
func In(tx *ledger.Tx) Rows { return Rows{tx, storage.DB(tx)} }
