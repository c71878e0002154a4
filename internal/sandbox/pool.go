package sandbox

import "time"

// DefaultPoolTTL is how long a sandbox waits in a warm pool before a fresh one takes its place.
const DefaultPoolTTL = Duration(24 * time.Hour)

// MaxPoolSize bounds a warm pool.
const MaxPoolSize = 100

// WarmPool keeps sandboxes made and asleep, so that an acquire only has to wake one.
type WarmPool struct {
	Size   int64    `json:"size" doc:"How many sandboxes wait, 0 to 100." minimum:"0" maximum:"100"`
	TTL    Duration `json:"ttl,omitempty" doc:"A waiting sandbox is replaced after this time. Default 24h."`
	Paused bool     `json:"paused,omitempty" doc:"Make no new ones; those that wait are still given out."`
}

// PoolStatus is where an environment's warm pool stands.
type PoolStatus struct {
	// Ready sandboxes wait, Pending ones are being made.
	Ready   int64 `json:"ready"`
	Pending int64 `json:"pending"`
	// Failures counts sandboxes that could not be made, in a row. At MaxPoolFailures no more are
	// tried until the environment is changed.
	Failures  int64     `json:"failures,omitempty"`
	LastError string    `json:"last_error,omitempty"`
	RetryAt   time.Time `json:"retry_at,omitzero"`
}

// MaxPoolFailures is after how many failures in a row a pool gives up.
const MaxPoolFailures = 8
