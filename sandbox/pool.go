package sandbox

import (
	"fmt"
	"time"
)

// DefaultPoolTTL is how long a sandbox waits in a warm pool before it is replaced.
const DefaultPoolTTL = Duration(24 * time.Hour)

// MaxPoolSize is the largest size of a warm pool.
const MaxPoolSize = 100

// PoolMode is the state in which sandboxes of a warm pool wait.
type PoolMode string

// The modes. PoolPaused is the default: a waiting sandbox is asleep. It uses no CPU, runs no code and costs
// what a sleeping sandbox costs. A claim wakes it with a call to the engine. PoolRunning needs no wake: a claim
// is one message to the sandbox, at the cost of an awake sandbox.
const (
	PoolPaused  PoolMode = "paused"
	PoolRunning PoolMode = "running"
)

// WarmPool keeps sandboxes ready, so that an acquire only claims one.
type WarmPool struct {
	Size    int64    `json:"size" doc:"Number of sandboxes that wait, 0 to 100." minimum:"0" maximum:"100"`
	MaxSize int64    `json:"max_size,omitempty" doc:"Largest size, at most 100. After a burst of leases within 10s the pool grows up to this size; it shrinks 10m later. Default: it does not grow." minimum:"0" maximum:"100"`
	Mode    PoolMode `json:"mode,omitempty" enum:"paused,running" doc:"paused: waiting sandboxes sleep by sleep_mode and cost what sleeping sandboxes cost; an acquire wakes one. running: waiting sandboxes are awake and cost as such; an acquire needs no wake. Default paused."`
	TTL     Duration `json:"ttl,omitempty" doc:"A waiting sandbox is replaced after this time. Default 24h."`
	Paused  bool     `json:"paused,omitempty" doc:"Create no new sandboxes; those that wait are still leased."`
}

const (
	// PoolDemandWindow is the length of a burst: leases that begin within it are served by one pool size. It is
	// about the time of a refill.
	PoolDemandWindow = 10 * time.Second
	// PoolDemandMemory is how long a pool keeps its size after a burst.
	PoolDemandMemory = 10 * time.Minute
)

// SizeFor returns the pool size for a demand: the most leases that began within one PoolDemandWindow.
func (p *WarmPool) SizeFor(demand int64) int64 { return max(p.Size, min(demand, p.MaxSize)) }

// Runs reports whether waiting sandboxes are awake.
func (p *WarmPool) Runs() bool { return p.Mode == PoolRunning }

// withDefaults returns the pool with its defaults filled in; nil stays nil.
func (p *WarmPool) withDefaults() *WarmPool {
	if p == nil {
		return nil
	}
	filled := *p
	orDefault(&filled.TTL, DefaultPoolTTL)
	orDefault(&filled.Mode, PoolPaused)
	return &filled
}

// fields returns the problems of a pool. Its defaults must be filled in.
func (p *WarmPool) fields() (f []Field) {
	if p == nil {
		return nil
	}
	if p.Size < 0 || p.Size > MaxPoolSize {
		f = append(f, Field{"warm_pool.size", fmt.Sprintf("must be between 0 and %d, not %d", MaxPoolSize, p.Size)})
	}
	if p.MaxSize != 0 && (p.MaxSize < p.Size || p.MaxSize > MaxPoolSize) {
		f = append(f, Field{"warm_pool.max_size", fmt.Sprintf("must be between warm_pool.size (%d) and %d, not %d",
			p.Size, MaxPoolSize, p.MaxSize)})
	}
	if p.Mode != PoolPaused && p.Mode != PoolRunning {
		f = append(f, Field{"warm_pool.mode", fmt.Sprintf("must be paused or running, not %q", p.Mode)})
	}
	if p.TTL < Duration(time.Minute) || p.TTL > Duration(365*24*time.Hour) {
		f = append(f, Field{"warm_pool.ttl", "must be between 1m and 8760h"})
	}
	return f
}

// PoolStatus is the status of an environment's warm pool.
type PoolStatus struct {
	// Ready counts sandboxes that wait, Pending those that are being created.
	Ready   int64 `json:"ready"`
	Pending int64 `json:"pending"`
	// Failures counts consecutive failed creations. At MaxPoolFailures the pool stops until the environment
	// changes.
	Failures  int64     `json:"failures,omitempty"`
	LastError string    `json:"last_error,omitempty"`
	RetryAt   time.Time `json:"retry_at,omitzero"`
}

// MaxPoolFailures is the number of consecutive failures after which a pool gives up.
const MaxPoolFailures = 8
