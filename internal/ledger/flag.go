package ledger

import (
	"database/sql/driver"
	"fmt"
)

// Flag is a boolean, stored as 0 or 1.
type Flag bool

// Value implements driver.Valuer.
func (f Flag) Value() (driver.Value, error) {
	if f {
		return int64(1), nil
	}
	return int64(0), nil
}

// Scan implements sql.Scanner.
func (f *Flag) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%v is not a valid flag", v)
	}
	*f = n != 0
	return nil
}
