package localapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits of the API (developers.cloudflare.com/fundamentals/api/reference/limits, read 2026-11): after so many calls with a
// token in five minutes, all calls are refused for the next five.
const (
	CallsPerWindow = 1200
	CallWindow     = 5 * time.Minute
)

// codeThrottled is Cloudflare's own, as wrangler shows it.
const codeThrottled = 971

// quota counts the calls with one token.
type quota struct {
	calls        []time.Time // of the last window
	blockedUntil time.Time
}

// take counts a call, and returns for how long it is refused; 0: it is answered.
func (q *quota) take(now time.Time) time.Duration {
	if now.Before(q.blockedUntil) {
		return q.blockedUntil.Sub(now)
	}
	old := 0
	for old < len(q.calls) && !q.calls[old].After(now.Add(-CallWindow)) {
		old++
	}
	q.calls = q.calls[old:]
	if len(q.calls) >= CallsPerWindow {
		q.blockedUntil, q.calls = now.Add(CallWindow), nil
		return CallWindow
	}
	q.calls = append(q.calls, now)
	return 0
}

// throttle answers a call with a token that has made too many, and reports whether it did.
func (s *Server) throttle(w http.ResponseWriter, token string) bool {
	s.mu.Lock()
	q := s.quotas[token]
	if q == nil {
		q = &quota{}
		s.quotas[token] = q
	}
	wait := q.take(s.cfg.Now())
	left := CallsPerWindow - len(q.calls)
	s.mu.Unlock()
	w.Header().Set("X-Ratelimit-Limit", strconv.Itoa(CallsPerWindow))
	if wait == 0 {
		w.Header().Set("X-Ratelimit-Remaining", strconv.Itoa(left))
		return false
	}
	w.Header().Set("X-Ratelimit-Remaining", "0")
	w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	write(w, failed(http.StatusTooManyRequests, codeThrottled, "Please wait and consider throttling your request speed"))
	return true
}

// Limits of containers (developers.cloudflare.com/containers/platform/limits, read 2026-11).
const (
	maxMilliCPU, maxMemoryMiB, maxDiskMB = 4000, 12288, 20000
	minMilliCPU, memoryPerCPU            = 1000, 3072
	diskPerGiB                           = 2000

	accountMemoryMiB, accountMilliCPU, accountDiskMB = 6 << 20, 1_500_000, 30_000_000
)

// refuse says what of a size Cloudflare does not run, "" for one that it does. One that has a name is one of the sizes.
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

// checkSize refuses a size, or so many of it that the account cannot run them.
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
