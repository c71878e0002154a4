package api

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits are rate limits of callers. Each is a token bucket.
type Limits struct {
	// PerToken and PerAddress are requests per second of one token and from one address, with a burst of 2 s. 0 means no
	// limit. Conditions do not count, because the end of a game sends a burst of them; MaxConditions limits them. They do
	// count from an address with too many failures.
	PerToken, PerAddress float64
	// Failures is how many failed authentications per minute from one address get a 401; more get a 429. They do not
	// affect valid credentials from the same address. 0 means no limit.
	Failures int
}

// noteFailure counts a failed authentication from an address. It returns the response: the error, or a problem for too
// many failures.
func (s *server) noteFailure(address string, err error) error {
	if problem.Of(err).Code != sandbox.Unauthenticated {
		return err
	}
	if limited := s.failures.Take(address, failedTooOften, s.now()); limited != nil {
		return limited
	}
	return err
}

// limitAddress counts a request for the limit of its address. Errors: CapacityExceeded.
func (s *server) limitAddress(path, address string) error {
	if path == conditionsPath && !s.failures.IsEmpty(address, s.now()) {
		return nil
	}
	return s.perAddress.Take(address, "requests from this address", s.now())
}

// chargeItems counts a request of n items as n requests. The first one is already counted.
func (s *server) chargeItems(x *exchange.Exchange, n int) {
	more := min(n, sandbox.MaxBatch) - 1
	s.perToken.Charge(x.Token, more, s.now())
	s.perAddress.Charge(x.Remote, more, s.now())
}
