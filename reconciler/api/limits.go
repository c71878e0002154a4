package api

import (
	"math"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxCallers is how many callers a limit remembers, the most recent ones. A forgotten caller starts with a full bucket.
const maxCallers = 8192

// Limits are rate limits of callers. Each is a token bucket.
type Limits struct {
	// PerToken and PerAddress are requests per second of one token and from one address, with a burst of 2 s. 0 means no
	// limit. Conditions do not count, because the end of a game sends a burst of them; MaxConditions limits them. They do
	// count from an address with too many failures.
	PerToken, PerAddress float64
	// Failures is how many failed authentications per minute one address gets a 401 for; more get a 429. They do not
	// affect valid credentials from the same address. 0 means no limit.
	Failures int
}

// limiter applies one limit to many callers. A nil limiter has no limit.
type limiter struct {
	per     rate.Limit
	burst   int
	buckets *lru.Cache[string, *rate.Limiter]
}

func newLimiter(perSecond float64, burst int) *limiter {
	if perSecond <= 0 {
		return nil
	}
	buckets, err := lru.New[string, *rate.Limiter](maxCallers)
	if err != nil { // only for a size that is not positive
		panic(err)
	}
	return &limiter{per: rate.Limit(perSecond), burst: burst, buckets: buckets}
}

// bucket returns the bucket of a caller.
func (l *limiter) bucket(caller string) *rate.Limiter {
	fresh := rate.NewLimiter(l.per, l.burst)
	if had, ok, _ := l.buckets.PeekOrAdd(caller, fresh); ok {
		l.buckets.Get(caller) // marks it as most recent
		return had
	}
	return fresh
}

// take takes one token from a caller's bucket. Errors: CapacityExceeded with the time to wait if the bucket is empty.
func (l *limiter) take(caller, what string, now time.Time) error {
	if l == nil {
		return nil
	}
	b := l.bucket(caller)
	if b.AllowN(now, 1) {
		return nil
	}
	return l.refusal(b, what, now)
}

// charge takes n tokens from a caller's bucket. The bucket may go into debt, so that the next requests wait.
func (l *limiter) charge(caller string, n int, now time.Time) {
	if l == nil {
		return
	}
	for b := l.bucket(caller); n > 0; n -= l.burst {
		b.ReserveN(now, min(n, l.burst))
	}
}

// isEmpty reports whether a caller's bucket is empty.
func (l *limiter) isEmpty(caller string, now time.Time) bool {
	return l != nil && l.bucket(caller).TokensAt(now) < 1
}

func (l *limiter) refusal(b *rate.Limiter, what string, now time.Time) error {
	seconds := int(math.Ceil((1 - b.TokensAt(now)) / float64(l.per)))
	p := newProblem(sandbox.CapacityExceeded, sandbox.ReasonRateLimited,
		"too many "+what+": retry in "+(time.Duration(seconds)*time.Second).String(), nil, nil)
	p.retryAfter = strconv.Itoa(max(seconds, 1))
	return p
}

// noteFailure counts a failed authentication from an address. It returns the response: the error, or a problem for too
// many failures.
func (s *server) noteFailure(address string, err error) error {
	if problemOf(err).Code != sandbox.Unauthenticated {
		return err
	}
	if limited := s.failures.take(address, failedTooOften, s.now()); limited != nil {
		return limited
	}
	return err
}

// limitAddress counts a request for the limit of its address. Errors: CapacityExceeded.
func (s *server) limitAddress(path, address string) error {
	if path == conditionsPath && !s.failures.isEmpty(address, s.now()) {
		return nil
	}
	return s.perAddress.take(address, "requests from this address", s.now())
}

// chargeItems counts a request of n items as n requests. The first one is already counted.
func (s *server) chargeItems(x *exchange, n int) {
	more := min(n, sandbox.MaxBatch) - 1
	s.perToken.charge(x.token, more, s.now())
	s.perAddress.charge(x.remote, more, s.now())
}
