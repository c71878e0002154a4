package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// liveEvery is how often at most a page is told that something has changed.
	liveEvery = time.Second
	// feedRetry is how long the feed waits before it follows again what it could not.
	feedRetry = time.Second
)

// Events is what the feed follows.
type Events interface {
	Ledger(ctx context.Context) (sandbox.LedgerInfo, error)
	FollowEvents(ctx context.Context, f sandbox.EventFilter, yield func(sandbox.Event) error) error
}

// feed follows the ledger once for all pages, while there is one that wants to hear of it.
type feed struct {
	events  Events
	most    int
	log     *slog.Logger
	watched chan struct{} // holds one when the first follower has come

	mu        sync.Mutex // guards everything that follows
	followers map[*follower]struct{}
}

// follower is one page that is open. All that is kept for it is whether something has changed.
type follower struct {
	wants   func(sandbox.Event) bool
	changed chan struct{} // holds one when it has
}

func (f *follower) tell() {
	select {
	case f.changed <- struct{}{}:
	default: // it knows
	}
}

func newFeed(events Events, most int, log *slog.Logger) *feed {
	return &feed{events: events, most: most, log: log, watched: make(chan struct{}, 1), followers: map[*follower]struct{}{}}
}

// join adds a page. Errors: CapacityExceeded.
func (f *feed) join(wants func(sandbox.Event) bool) (*follower, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.followers) >= f.most {
		return nil, sandbox.Errorf(sandbox.CapacityExceeded, "%d pages follow the ledger already: reload this one to see what has changed", f.most)
	}
	one := &follower{wants: wants, changed: make(chan struct{}, 1)}
	f.followers[one] = struct{}{}
	select {
	case f.watched <- struct{}{}:
	default:
	}
	return one, nil
}

func (f *feed) leave(one *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.followers, one)
}

// errUnwatched ends the following of events that no page shows.
var errUnwatched = errors.New("no page is open")

// pass tells those of an event whom it concerns. It never waits for one of them.
func (f *feed) pass(e sandbox.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for one := range f.followers {
		if one.wants(e) {
			one.tell()
		}
	}
	if len(f.followers) == 0 {
		return errUnwatched
	}
	return nil
}

// tellAll tells everybody that something may have changed.
func (f *feed) tellAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for one := range f.followers {
		one.tell()
	}
}

// run follows the ledger's events while pages are open, until ctx ends.
func (f *feed) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.watched:
		}
		for ctx.Err() == nil {
			err := f.follow(ctx)
			if errors.Is(err, errUnwatched) {
				break
			}
			if ctx.Err() == nil {
				f.log.Warn("dashboard: following events; pages are told nothing until it works again", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(feedRetry):
			}
		}
	}
}

// follow passes on what happens from now on. What happened before is told as well: that something has.
func (f *feed) follow(ctx context.Context) error {
	info, err := f.events.Ledger(ctx)
	if err != nil {
		return err
	}
	f.tellAll()
	return f.events.FollowEvents(ctx, sandbox.EventFilter{AfterID: info.LastEventID}, f.pass)
}

// live tells a page, by server-sent events, that what it shows has changed after the event that it was read as of.
func live(p *page) error {
	environment, lease := p.query("environment"), p.query("lease")
	if lease != "" {
		_, of, err := sandbox.ParseLeaseID(lease)
		if err != nil {
			return err
		}
		environment = of
	}
	if environment != "" && !p.caller.Allows(environment) {
		_, err := p.service.GetEnvironment(p.ctx, environment)
		return err // it says what the token may touch
	}
	after, err := p.number("after")
	if err != nil {
		return err
	}
	if last, err := strconv.ParseInt(p.r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		after = last
	}
	one, err := p.feed.join(func(e sandbox.Event) bool {
		return p.caller.Allows(e.EnvironmentID) && (environment == "" || e.EnvironmentID == environment) && (lease == "" || e.LeaseID == lease)
	})
	if err != nil {
		return err
	}
	defer p.feed.leave(one)
	info, err := p.service.Ledger(p.ctx) // after it has joined, so that nothing falls in between
	if err != nil {
		return err
	}
	if info.LastEventID != after {
		one.tell()
	}
	p.stream(one)
	return nil
}

// stream sends what a follower is told, until the browser or its log-in has gone.
func (p *page) stream(one *follower) {
	ctx, rc := p.r.Context(), http.NewResponseController(p.w)
	h := p.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold lines back
	send := func(format string, args ...any) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(p.streamTimeout)) // only connections have deadlines, a recorder has none
		_, err := fmt.Fprintf(p.w, format, args...)
		if err == nil {
			err = rc.Flush()
		}
		return err == nil || errors.Is(err, http.ErrNotSupported)
	}
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }() // as above
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
		case <-one.changed:
			if !p.tellChanged(send) {
				return
			}
		}
	}
}

// tellChanged says that something has changed, and then waits a little: what happens meanwhile is told together.
func (p *page) tellChanged(send func(format string, args ...any) bool) bool {
	ctx, cancel := context.WithTimeout(p.r.Context(), pageTimeout)
	info, err := p.service.Ledger(ctx)
	cancel()
	if err != nil || !send("id: %d\nevent: changed\ndata: {}\n\n", info.LastEventID) {
		return false // the browser comes back
	}
	select {
	case <-p.r.Context().Done():
		return false
	case <-time.After(liveEvery):
		return true
	}
}

// stillIn reports whether the log-in and its token are good still.
func (p *page) stillIn() bool {
	_, _, err := p.gate.LoggedIn(p.r, p.login)
	return err == nil
}
