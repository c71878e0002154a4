package ledger

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Sandbox is a row of sandboxes: one generation of a lease, or a sandbox that waits in a warm pool.
//
// Its columns are in groups, one per subject. Code that writes several columns of a subject assigns the group
// or calls a method of it. A row may only change within Update.
type Sandbox struct {
	ID            string `gorm:"primaryKey"`
	EnvironmentID string
	Backend       sandbox.Backend
	Instance      string

	Container
	Tenure
	Terms
	Origin Origin `gorm:"embedded"`

	// Desired is the wanted state of the sandbox. Phase is the last observed one, at ObservedAt.
	Desired    Desired
	Phase      sandbox.Phase
	ObservedAt micro.Time
	Status     Status   `gorm:"embedded"`
	Ending     Ending   `gorm:"embedded"`
	Crash      Crash    `gorm:"embedded"`
	Meter      Meter    `gorm:"embedded"`
	Pending    Pending  `gorm:"embedded"`
	Snapshot   Snapshot `gorm:"embedded;embeddedPrefix:state_"`
	// CompanionStates are the states of its companions, by name. A companion without one was not started yet.
	CompanionStates CompanionStates `gorm:"serializer:json"`

	Schedule Schedule `gorm:"embedded"`
	Claim    Claim    `gorm:"embedded"`
	// LastSequence is the number of the sandbox's last event.
	LastSequence int64

	// Tombstone is set if only this is left of the sandbox. Such a row does not exist and cannot be stored.
	Tombstone *Tombstone `gorm:"-"`
}

// Desired is the wanted state of a sandbox.
type Desired string

// The wanted states.
const (
	Present Desired = "present"
	Gone    Desired = "gone"
)
