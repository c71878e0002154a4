package localapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits of the API (developers.cloudflare.com/fundamentals/api/reference/limits, read 2026-11): after this number of
// calls with a token in five minutes, all its calls are refused for the next five. GraphQL has a separate limit.
const (
	CallsPerWindow   = 1200
	QueriesPerWindow = 320
	CallWindow       = 5 * time.Minute
)

// codeThrottled is Cloudflare's own code, as wrangler shows it.
const codeThrottled = 971

// quota counts the calls with one token.
type quota struct {
	limit        int
	calls        []time.Time // of the last window
	blockedUntil time.Time
	most         int // of all windows
	refused      int
}

// take counts a call, and returns how long calls are refused; 0 means that this one is answered.
func (q *quota) take(now time.Time) time.Duration {
	if now.Before(q.blockedUntil) {
		q.refused++
		return q.blockedUntil.Sub(now)
	}
	old := 0
	for old < len(q.calls) && !q.calls[old].After(now.Add(-CallWindow)) {
		old++
	}
	q.calls = q.calls[old:]
	if len(q.calls) >= q.limit {
		q.blockedUntil, q.calls = now.Add(CallWindow), nil
		q.refused++
		return CallWindow
	}
	q.calls = append(q.calls, now)
	q.most = max(q.most, len(q.calls))
	return 0
}

// reset returns the time until the quota allows more calls.
func (q *quota) reset(now time.Time) time.Duration {
	if now.Before(q.blockedUntil) || len(q.calls) == 0 {
		return q.blockedUntil.Sub(now)
	}
	return q.calls[0].Add(CallWindow).Sub(now)
}

// throttle answers a call with a token that has made too many, and reports whether it did.
func (s *Server) throttle(w http.ResponseWriter, r *http.Request, token string) bool {
	limit := CallsPerWindow
	if r.URL.Path == graphQLPath {
		limit = QueriesPerWindow
	}
	s.mu.Lock()
	key := budget{token, limit}
	q := s.quotas[key]
	if q == nil {
		q = &quota{limit: limit}
		s.quotas[key] = q
	}
	now := s.cfg.Now()
	wait := q.take(now)
	left, reset := limit-len(q.calls), q.reset(now)
	s.mu.Unlock()
	if wait > 0 {
		left, reset = 0, wait
		w.Header().Set("Retry-After", wholeSeconds(wait))
	}
	w.Header().Set("Ratelimit-Policy", fmt.Sprintf(`"default";q=%d;w=%d`, limit, int(CallWindow.Seconds())))
	w.Header().Set("Ratelimit", fmt.Sprintf(`"default";r=%d;t=%s`, left, wholeSeconds(reset)))
	if wait == 0 {
		return false
	}
	write(w, failed(http.StatusTooManyRequests, codeThrottled, "Please wait and consider throttling your request speed"))
	return true
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
}

// budget identifies a quota: a token, for calls or for queries.
type budget struct {
	token string
	limit int
}

// Load is how much of its quota a token has used.
type Load struct {
	// Most is the largest number of calls that were answered in any five minutes. Refused counts all other calls.
	Most, Refused int
}

// Calls returns the load of calls with all tokens, and Queries that of GraphQL queries.
func (s *Server) Calls() Load   { return s.load(CallsPerWindow) }
func (s *Server) Queries() Load { return s.load(QueriesPerWindow) }

func (s *Server) load(limit int) (l Load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, q := range s.quotas {
		if key.limit == limit {
			l.Most, l.Refused = max(l.Most, q.most), l.Refused+q.refused
		}
	}
	return l
}

// ForgetCalls resets every quota.
func (s *Server) ForgetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.quotas)
}

// Limits of Workers (developers.cloudflare.com/workers/platform/limits, read 2026-11).
const (
	MaxWorkers = 500
	// codeTooManyWorkers is Cloudflare's own code.
	codeTooManyWorkers = 10037
)

// Limits of containers (developers.cloudflare.com/containers/platform/limits, read 2026-11).
const (
	maxMilliCPU, maxMemoryMiB, maxDiskMB = 4000, 12288, 20000
	minMilliCPU, memoryPerCPU            = 1000, 3072
	diskPerGiB                           = 2000

	accountMemoryMiB, accountMilliCPU, accountDiskMB = 6 << 20, 1_500_000, 30_000_000
)

// refuse returns why Cloudflare does not run a size, "" if it does. A named size must be one of Cloudflare's sizes.
func (c configuration) refuse() string {
	cpu, memory, disk := int64(c.VCPU*1000), c.MemoryMiB, c.Disk.SizeMB
	for _, t := range sandbox.InstanceTypes {
		named := configuration{InstanceType: t.Name}.inFigures()
		if named.VCPU == c.VCPU && named.MemoryMiB == memory && named.Disk.SizeMB == disk {
			return ""
		}
	}
	switch {
	case cpu < minMilliCPU || cpu > maxMilliCPU:
		return "vcpu must be between 1 and 4"
	case memory > maxMemoryMiB || memory*1000 < cpu*memoryPerCPU:
		return "memory_mib must be at least 3072 for each vcpu, and at most 12288"
	case disk > maxDiskMB || disk*1024 > memory*diskPerGiB:
		return "disk size_mb must be at most 2000 for each 1024 of memory_mib, and at most 20000"
	}
	return ""
}

// checkSize refuses an invalid size, or more instances of it than the account can run.
func (c configuration) checkSize(instances int) *answer {
	if why := c.refuse(); why != "" {
		a := failed(http.StatusBadRequest, 1000, "VALIDATE_INPUT: "+why)
		return &a
	}
	n := int64(instances)
	if n*c.MemoryMiB > accountMemoryMiB || n*int64(c.VCPU*1000) > accountMilliCPU || n*c.Disk.SizeMB > accountDiskMB {
		a := failed(http.StatusBadRequest, 1000, "SURPASSED_TOTAL_LIMITS")
		return &a
	}
	return nil
}
