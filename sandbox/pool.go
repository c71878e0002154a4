package sandbox

import (
	"fmt"
	"time"
)

// DefaultPoolTTL is how long a sandbox waits in a warm pool before a fresh one takes its place.
const DefaultPoolTTL = Duration(24 * time.Hour)

// MaxPoolSize bounds a warm pool.
const MaxPoolSize = 100

// PoolMode is how sandboxes of a warm pool wait.
type PoolMode string

// The modes. PoolPaused is the default: what waits uses no CPU, runs no code, and costs what sleeps. A claim wakes it, which
// is a call to the engine. PoolRunning needs no wake: a claim is a message, at the price of a sandbox that is awake.
const (
	PoolPaused  PoolMode = "paused"
	PoolRunning PoolMode = "running"
)

// WarmPool keeps sandboxes made, so that an acquire only has to claim one.
type WarmPool struct {
	Size    int64    `json:"size" doc:"How many sandboxes wait, 0 to 100." minimum:"0" maximum:"100"`
	MaxSize int64    `json:"max_size,omitempty" doc:"The pool grows up to this size, at most 100, after many leases began within 10s of each other, and shrinks 10m later. Default: it does not grow." minimum:"0" maximum:"100"`
	Mode    PoolMode `json:"mode,omitempty" enum:"paused,running" doc:"paused: what waits sleeps, by sleep_mode, and costs what sleeps; an acquire wakes it. running: it is awake, and costs so; an acquire wakes and starts nothing. Default paused."`
	TTL     Duration `json:"ttl,omitempty" doc:"A waiting sandbox is replaced after this time. Default 24h."`
	Paused  bool     `json:"paused,omitempty" doc:"Make no new ones; those that wait are still given out."`
}

const (
	// PoolDemandWindow is how close together leases begin that a growing pool is to serve at once: about the time to refill.
	PoolDemandWindow = 10 * time.Second
	// PoolDemandMemory is how long a pool keeps the size that a burst gave it.
	PoolDemandMemory = 10 * time.Minute
)

// SizeFor returns how many sandboxes wait after a demand: the most leases that began within PoolDemandWindow of each other.
func (p *WarmPool) SizeFor(demand int64) int64 { return max(p.Size, min(demand, p.MaxSize)) }

// Runs reports whether what waits is awake.
func (p *WarmPool) Runs() bool { return p.Mode == PoolRunning }

// withDefaults returns the pool with its defaults filled in; none stays none.
func (p *WarmPool) withDefaults() *WarmPool {
	if p == nil {
		return nil
	}
	filled := *p
	orDefault(&filled.TTL, DefaultPoolTTL)
	orDefault(&filled.Mode, PoolPaused)
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
	if p.MaxSize != 0 && (p.MaxSize < p.Size || p.MaxSize > MaxPoolSize) {
		f = append(f, Field{"warm_pool.max_size", fmt.Sprintf("must be between warm_pool.size (%d) and %d, not %d", p.Size, MaxPoolSize, p.MaxSize)})
	}
	if p.Mode != PoolPaused && p.Mode != PoolRunning {
		f = append(f, Field{"warm_pool.mode", fmt.Sprintf("must be paused or running, not %q", p.Mode)})
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
