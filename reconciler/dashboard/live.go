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

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// liveEvery is the minimum interval between two updates of a page.
	liveEvery = time.Second
	// feedRetry is the wait of the feed before a reconnect.
	feedRetry = time.Second
)

// Events provides the events for the feed.
type Events interface {
	Ledger(ctx context.Context) (sandbox.LedgerInfo, error)
	FollowEvents(ctx context.Context, f sandbox.EventFilter, yield func(sandbox.Event) error) error
}

// feed follows the ledger once for all pages, while at least one is open.
type feed struct {
	events  Events
	most    int
	log     *slog.Logger
	watched chan struct{} // has an element when the first follower joined

	mu        sync.Mutex // guards the fields below
	followers map[*follower]struct{}
}

// follower is one open page. Its only state is whether something has changed.
type follower struct {
	wants   func(sandbox.Event) bool
	changed chan struct{} // has an element after a change
}

func (f *follower) tell() {
	select {
	case f.changed <- struct{}{}:
	default: // already notified
	}
}

func newFeed(events Events, most int, log *slog.Logger) *feed {
	return &feed{
		events:    events,
		most:      most,
		log:       log,
		watched:   make(chan struct{}, 1),
		followers: map[*follower]struct{}{},
	}
}

// join adds a page. Errors: CapacityExceeded.
func (f *feed) join(wants func(sandbox.Event) bool) (*follower, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.followers) >= f.most {
		return nil, sandbox.Errorf(sandbox.CapacityExceeded,
			"%d pages follow the ledger already: reload this page to see changes", f.most)
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

// errUnwatched ends the feed when no page is open.
var errUnwatched = errors.New("no page is open")

// pass notifies the followers of an event. It does not block.
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

// notifyAll notifies all followers of a possible change.
func (f *feed) notifyAll() {
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
				f.log.Warn("dashboard: following events; pages get no live updates until this works again", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(feedRetry):
			}
		}
	}
}

// follow passes on new events. First it notifies all followers, because it may have missed events.
func (f *feed) follow(ctx context.Context) error {
	info, err := f.events.Ledger(ctx)
	if err != nil {
		return err
	}
	f.notifyAll()
	return f.events.FollowEvents(ctx, sandbox.EventFilter{AfterID: info.LastEventID}, f.pass)
}

// followed is the subject of a page: a lease, an environment, or everything that the caller may see.
func followed(p *page) (api.Target, error) {
	switch environment, lease := p.query("environment"), p.query("lease"); {
	case lease != "":
		return api.Lease(lease), nil
	case environment != "":
		return api.Environment(environment), nil
	}
	return api.Nothing(), nil
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
	one, err := p.feed.join(func(e sandbox.Event) bool {
		return p.caller.Allows(e.EnvironmentID) && (environment == "" || e.EnvironmentID == environment) &&
			(lease == "" || e.LeaseID == lease)
	})
	if err != nil {
		return err
	}
	defer p.feed.leave(one)
	info, err := p.service.Ledger(p.ctx) // after joining, so that no event is missed
	if err != nil {
		return err
	}
	if info.LastEventID != after {
		one.tell()
	}
	p.stream(one)
	return nil
}

// stream sends notifications until the browser disconnects or its login ends.
func (p *page) stream(one *follower) {
	ctx, rc := p.r.Context(), http.NewResponseController(p.w)
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
		case <-one.changed:
			if !p.emitChanged(send) {
				return
			}
		}
	}
}

// emitChanged sends a notification and then waits, so that later changes are batched.
func (p *page) emitChanged(send func(format string, args ...any) bool) bool {
	ctx, cancel := context.WithTimeout(p.r.Context(), pageTimeout)
	info, err := p.service.Ledger(ctx)
	cancel()
	if err != nil || !send("id: %d\nevent: changed\ndata: {}\n\n", info.LastEventID) {
		return false // the browser reconnects
	}
	select {
	case <-p.r.Context().Done():
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
