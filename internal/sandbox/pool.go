package sandbox

import (
	"fmt"
	"time"
)

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

// withDefaults returns the pool with its defaults filled in; none stays none.
func (p *WarmPool) withDefaults() *WarmPool {
	if p == nil {
		return nil
	}
	filled := *p
	orDefault(&filled.TTL, DefaultPoolTTL)
	return &filled
}

// fields returns what is wrong with a pool whose defaults are filled in.
func (p *WarmPool) fields() (f []Field) {
	if p == nil {
		return nil
	}
	if p.Size < 0 || p.Size > MaxPoolSize {
		f = append(f, Field{"warm_pool.size", fmt.Sprintf("must be between 0 and %d, not %d", MaxPoolSize, p.Size)})
	}
	if p.TTL < Duration(time.Minute) || p.TTL > Duration(365*24*time.Hour) {
		f = append(f, Field{"warm_pool.ttl", "must be between 1m and 8760h"})
	}
	return f
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
