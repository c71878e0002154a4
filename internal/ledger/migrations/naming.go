package migrations

import (
	"sync"

	"gorm.io/gorm/schema"
)

// Naming is gorm's naming of tables. gorm derives a name with dozens of regular expressions, and does so for each
// ledger that is opened; here a process derives it once.
type Naming struct{ schema.NamingStrategy }

// tableNames are table names by the names of row types.
var tableNames sync.Map

// TableName returns the table of a row type.
func (n Naming) TableName(row string) string {
	if name, ok := tableNames.Load(row); ok {
		return name.(string) //nolint:forcetypeassert // only strings are stored
	}
	name := n.NamingStrategy.TableName(row)
	tableNames.Store(row, name)
	return name
}
