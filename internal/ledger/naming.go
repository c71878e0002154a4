package ledger

import (
	"sync"

	"gorm.io/gorm/schema"
)

// naming is gorm's naming of tables. gorm derives a name with dozens of regular expressions, and does so for each
// ledger that is opened; here a process derives it once.
type naming struct{ schema.NamingStrategy }

// tableNames are table names by the names of row types.
var tableNames sync.Map

func (n naming) TableName(row string) string {
	if name, ok := tableNames.Load(row); ok {
		return name.(string) //nolint:forcetypeassert // only strings are stored
	}
	name := n.NamingStrategy.TableName(row)
	tableNames.Store(row, name)
	return name
}
