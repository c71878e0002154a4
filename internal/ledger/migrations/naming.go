package migrations

import (
	"sync"

	"gorm.io/gorm/schema"
)

// Naming is gorm's naming of tables, cached for the process. gorm derives each name with dozens of regular expressions,
// and again for each ledger that is opened.
type Naming struct{ schema.NamingStrategy }

// tableNames maps the names of row types to table names.
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
