package ledger

import "github.com/sandbox-lease/terraform-provider-sandbox/sandbox"

// Sandbox is a row of sandboxes: one generation of a lease, or a sandbox that waits in a warm pool.
//
// Its columns stand in groups, one for each subject. Code that writes several columns of a subject assigns the group, or
// calls a method of it. A row changes only within Update.
type Sandbox struct {
	ID            string `gorm:"primaryKey"`
	EnvironmentID string
	Backend       sandbox.Backend
	Instance      string

	Container
	Tenure
	Terms
	Origin Origin `gorm:"embedded"`

	// Desired is what the ledger wants of the sandbox. Phase is what was last seen, at ObservedAt.
	Desired    Desired
	Phase      sandbox.Phase
	ObservedAt Time
	Standing   Standing `gorm:"embedded"`
	Ending     Ending   `gorm:"embedded"`
	Crash      Crash    `gorm:"embedded"`
	Meter      Meter    `gorm:"embedded"`
	Pending    Pending  `gorm:"embedded"`
	Snapshot   Snapshot `gorm:"embedded;embeddedPrefix:state_"`

	Schedule Schedule `gorm:"embedded"`
	Claim    Claim    `gorm:"embedded"`
	// LastSequence numbers the sandbox's last event.
	LastSequence int64

	// Retired is set when only this is left of the sandbox. The row itself is gone and cannot be stored.
	Retired *Retirement `gorm:"-"`
}
