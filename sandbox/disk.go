package sandbox

import "time"

// KeptDisk says what became of the disk of a sandbox whose environment has keep_disk, on a backend where a sandbox that
// stops loses its disk. It is data of EventStopped and EventAwake.
type KeptDisk struct {
	// SavedAt is when the disk was saved that the sandbox wakes with, or woke with. It is zero if there is none.
	SavedAt time.Time `json:"saved_at,omitzero"`
	// Lost is why the sandbox wakes, or woke, with an empty disk; "" if it does not.
	Lost string `json:"lost,omitempty"`
}

// DiskLost is the data of EventDiskLost.
type DiskLost struct {
	Reason string `json:"reason"`
}
