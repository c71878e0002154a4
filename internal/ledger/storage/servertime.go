package storage

import (
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
)

// serverTime extrapolates the database's time between two measurements, so that all replicas use one clock.
// It uses this process's own clock only for the passed time.
type serverTime struct {
	mu       sync.Mutex // guards what follows
	at       time.Time  // the database's clock at the last measurement
	measured time.Time  // when that was, on this process's monotonic clock
}

func (c *serverTime) set(at micro.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.measured = at.Time(), time.Now()
}

// Now is the database's time.
func (c *serverTime) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at.Add(time.Since(c.measured))
}
