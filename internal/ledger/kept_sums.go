package ledger

// Output of commands and recordings of sessions are counted when they are stored. One row holds the total of
// each lease, each environment and the whole ledger, and an index finds the oldest.

// KeptScope is the scope of a sum.
type KeptScope string

// The scopes. The ledger's sum has the id "".
const (
	KeptOfLease       KeptScope = "lease"
	KeptOfEnvironment KeptScope = "environment"
	KeptOfLedger      KeptScope = "ledger"
)

// KeptSum is a row of kept_sums. Only the ledger's sum counts dropped output.
type KeptSum struct {
	Scope          KeptScope `gorm:"primaryKey"`
	ID             string    `gorm:"primaryKey"`
	Bytes          int64
	Records        int64
	DroppedBytes   int64
	DroppedRecords int64
}
