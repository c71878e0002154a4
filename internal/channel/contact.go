package channel

import (
	"context"
	"fmt"
	"time"
)

// Contact is the state of a client's contact with its guest.
type Contact struct {
	// Connected: the session has a carrier. Suspended: see Client.Suspend.
	Connected, Suspended bool
	// Heard is the time of the guest's latest sign of life, zero before the first.
	Heard time.Time
}

// Contact returns the state of the contact. It sends nothing.
func (c *Client) Contact() Contact {
	c.mu.Lock()
	l, suspended := c.link, c.suspended
	c.mu.Unlock()
	if l == nil || l.over() {
		return Contact{Suspended: suspended}
	}
	return Contact{Connected: l.attachedTo() != nil, Suspended: suspended, Heard: l.lastHeard()}
}

// Ping returns once the guest gives a sign of life. It dials if there is no carrier. Errors: as Call.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	began := time.Now()
	l, err := c.ready(ctx)
	if err != nil {
		return err
	}
	return l.awaitSign(ctx, began)
}

// awaitSign asks for a sign of life on each new carrier, and returns once there is one later than after.
func (s *session) awaitSign(ctx context.Context, after time.Time) error {
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.signs.Broadcast()
	})()
	s.mu.Lock()
	defer s.mu.Unlock()
	var asked *carrier
	for s.carrier == nil || !s.heard.After(after) {
		if s.ended != nil {
			return fmt.Errorf("%w: %w", ErrLost, s.ended)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for a sign of life of the sandbox: %w", ctx.Err())
		}
		if s.carrier != nil && s.carrier != asked {
			asked = s.carrier
			asked.pingDue = true
			s.work.Broadcast()
		}
		s.signs.Wait()
	}
	return nil
}
