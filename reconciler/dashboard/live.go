package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/stream"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/feed"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// liveEvery is the minimum interval between two updates of a page.
const liveEvery = time.Second

// followed is the subject of a page: a lease, an environment, or everything that the caller may see.
func followed(p *page) (rights.Target, error) {
	switch environment, lease := p.query("environment"), p.query("lease"); {
	case lease != "":
		return rights.Lease(lease), nil
	case environment != "":
		return rights.Environment(environment), nil
	}
	return rights.Nothing(), nil
}

// live notifies a page by server-sent events of changes after the event in its URL.
func live(p *page) error {
	environment, lease := p.query("environment"), p.query("lease")
	if lease != "" {
		_, of, err := sandbox.ParseLeaseID(lease)
		if err != nil {
			return err
		}
		environment = of
	}
	after, err := p.number("after")
	if err != nil {
		return err
	}
	if last, err := strconv.ParseInt(p.r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		after = last
	}
	one, err := p.feed.Join(func(e sandbox.Event) bool {
		return p.caller.Allows(e.EnvironmentID) && (environment == "" || e.EnvironmentID == environment) &&
			(lease == "" || e.LeaseID == lease)
	})
	if err != nil {
		return err
	}
	defer p.feed.Leave(one)
	info, err := p.service.Ledger(p.ctx) // after joining, so that no event is missed
	if err != nil {
		return err
	}
	if info.LastEventID != after {
		one.Tell()
	}
	p.stream(one)
	return nil
}

// stream sends notifications until the browser disconnects or its login ends.
func (p *page) stream(one *feed.Follower) {
	ctx, cancel := stream.Context(p.r)
	defer cancel()
	rc := http.NewResponseController(p.w)
	h := p.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // otherwise nginx would buffer lines
	send := func(format string, args ...any) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(p.streamTimeout)) // fails only without a connection, in tests
		_, err := fmt.Fprintf(p.w, format, args...)
		if err == nil {
			err = rc.Flush()
		}
		return err == nil || errors.Is(err, http.ErrNotSupported)
	}
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }() // see above
	alive := time.NewTicker(p.keepAlive)
	defer alive.Stop()
	if !send(": following\n\n") {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-alive.C:
			if !p.stillIn() || !send(": idle\n\n") {
				return
			}
		case <-one.Changed:
			if !p.emitChanged(ctx, send) {
				return
			}
		}
	}
}

// emitChanged sends a notification and then waits, so that later changes are batched.
func (p *page) emitChanged(ctx context.Context, send func(format string, args ...any) bool) bool {
	asking, cancel := context.WithTimeout(ctx, pageTimeout)
	info, err := p.service.Ledger(asking)
	cancel()
	if err != nil || !send("id: %d\nevent: changed\ndata: {}\n\n", info.LastEventID) {
		return false // the browser reconnects
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(liveEvery):
		return true
	}
}

// stillIn reports whether the login and its token are still valid.
func (p *page) stillIn() bool {
	_, _, err := p.gate.LoggedIn(p.r, p.login)
	return err == nil
}
