// Package ratelimit limits the rate of requests of each caller.
package ratelimit

import (
	"math"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxCallers is how many callers a limit remembers, the most recent ones. A forgotten caller starts with a full bucket.
const maxCallers = 8192

// Limiter applies one limit to many callers. A nil limiter has no limit.
type Limiter struct {
	per     rate.Limit
	burst   int
	buckets *lru.Cache[string, *rate.Limiter]
}

// New returns a limit of requests per second with a burst, nil unless perSecond is positive.
func New(perSecond float64, burst int) *Limiter {
	if perSecond <= 0 {
		return nil
	}
	buckets, err := lru.New[string, *rate.Limiter](maxCallers)
	if err != nil { // only for a size that is not positive
		panic(err)
	}
	return &Limiter{per: rate.Limit(perSecond), burst: burst, buckets: buckets}
}

// bucket returns the bucket of a caller.
func (l *Limiter) bucket(caller string) *rate.Limiter {
	fresh := rate.NewLimiter(l.per, l.burst)
	if had, ok, _ := l.buckets.PeekOrAdd(caller, fresh); ok {
		l.buckets.Get(caller) // marks it as most recent
		return had
	}
	return fresh
}

// Take takes one token from a caller's bucket. Errors: CapacityExceeded with the time to wait if the bucket is empty.
func (l *Limiter) Take(caller, what string, now time.Time) error {
	if l == nil {
		return nil
	}
	b := l.bucket(caller)
	if b.AllowN(now, 1) {
		return nil
	}
	return l.refusal(b, what, now)
}

// Charge takes n tokens from a caller's bucket. The bucket may go into debt, so that the next requests wait.
func (l *Limiter) Charge(caller string, n int, now time.Time) {
	if l == nil {
		return
	}
	for b := l.bucket(caller); n > 0; n -= l.burst {
		b.ReserveN(now, min(n, l.burst))
	}
}

// IsEmpty reports whether a caller's bucket is empty.
func (l *Limiter) IsEmpty(caller string, now time.Time) bool {
	return l != nil && l.bucket(caller).TokensAt(now) < 1
}

func (l *Limiter) refusal(b *rate.Limiter, what string, now time.Time) error {
	seconds := int(math.Ceil((1 - b.TokensAt(now)) / float64(l.per)))
	p := problem.New(sandbox.CapacityExceeded, sandbox.ReasonRateLimited,
		"too many "+what+": retry in "+(time.Duration(seconds)*time.Second).String(), nil, nil)
	p.RetryAfter = strconv.Itoa(max(seconds, 1))
	return p
}
