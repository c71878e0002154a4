package ledger

import (
	"sync"
	"time"
)

// serverTime tells the database's time between two measurements of it, so that all replicas go by
// one clock. This process's own clock is used for the time passed only.
type serverTime struct {
	mu       sync.Mutex // guards what follows
	at       time.Time  // the database's clock at the last measurement
	measured time.Time  // when that was, on this process's monotonic clock
}

func (c *serverTime) set(at Time) {
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
