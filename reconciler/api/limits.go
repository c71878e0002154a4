package api

import (
	"math"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxCallers is how many callers a limit remembers: the latest. One that is forgotten begins with a full bucket.
const maxCallers = 8192

// Limits bound what callers may ask for. Each is a bucket that holds what comes in the given time at once, and
// fills by the rate.
type Limits struct {
	// PerToken and PerAddress are requests a second, of one token and from one address; what comes within two
	// seconds may come at once. 0 means no limit. Conditions do not count: they come in storms, when a game ends, and
	// are bounded by how many may wait for the ledger. From an address that has failed too often they do count.
	PerToken, PerAddress float64
	// Failures is how many failed authentications a minute are answered to one address as what they are; those
	// beyond are put off. What authenticates is never refused for what others of the address send. 0 means no limit.
	Failures int
}

// limiter is one limit, for each of many callers. A nil one has none.
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
	if err != nil { // only of a size that is not positive
		panic(err)
	}
	return &limiter{per: rate.Limit(perSecond), burst: burst, buckets: buckets}
}

// bucket returns a caller's bucket.
func (l *limiter) bucket(caller string) *rate.Limiter {
	fresh := rate.NewLimiter(l.per, l.burst)
	if had, ok, _ := l.buckets.PeekOrAdd(caller, fresh); ok {
		l.buckets.Get(caller) // it is the latest now
		return had
	}
	return fresh
}

// take takes one from a caller's bucket. Errors: CapacityExceeded when it is empty, with the time to wait.
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

// charge takes n from a caller's bucket, and leaves it in debt where it holds less: the caller's next requests wait.
func (l *limiter) charge(caller string, n int, now time.Time) {
	if l == nil {
		return
	}
	for b := l.bucket(caller); n > 0; n -= l.burst {
		b.ReserveN(now, min(n, l.burst))
	}
}

// isEmpty reports whether nothing could be taken from a caller's bucket.
func (l *limiter) isEmpty(caller string, now time.Time) bool {
	return l != nil && l.bucket(caller).TokensAt(now) < 1
}

func (l *limiter) refusal(b *rate.Limiter, what string, now time.Time) error {
	seconds := int(math.Ceil((1 - b.TokensAt(now)) / float64(l.per)))
	p := newProblem(sandbox.CapacityExceeded, sandbox.ReasonRateLimited, "too many "+what+": come back in "+(time.Duration(seconds)*time.Second).String(), nil, nil)
	p.retryAfter = strconv.Itoa(max(seconds, 1))
	return p
}

// noteFailure counts a failed authentication from an address, and returns what is answered: its error, or that the
// address has failed too often.
func (s *server) noteFailure(address string, err error) error {
	if problemOf(err).Code != sandbox.Unauthenticated {
		return err
	}
	if limited := s.failures.take(address, failedTooOften, s.now()); limited != nil {
		return limited
	}
	return err
}

// limitAddress takes a request from its address's bucket. Errors: CapacityExceeded.
func (s *server) limitAddress(path, address string) error {
	if path == conditionsPath && !s.failures.isEmpty(address, s.now()) {
		return nil
	}
	return s.perAddress.take(address, "requests from this address", s.now())
}

// chargeItems counts a request of n items as n requests. The first is counted already.
func (s *server) chargeItems(x *exchange, n int) {
	more := min(n, sandbox.MaxBatch) - 1
	s.perToken.charge(x.token, more, s.now())
	s.perAddress.charge(x.remote, more, s.now())
}
