// Package feed follows the ledger once for all open pages, and notifies each of changes.
package feed

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// retry is the wait of the feed before a reconnect.
const retry = time.Second

// Events provides the events for the feed.
type Events interface {
	Ledger(ctx context.Context) (sandbox.LedgerInfo, error)
	FollowEvents(ctx context.Context, f sandbox.EventFilter, yield func(sandbox.Event) error) error
}

// Feed follows the ledger once for all pages, while at least one is open.
type Feed struct {
	events  Events
	most    int
	log     *slog.Logger
	watched chan struct{} // has an element when the first follower joined

	mu        sync.Mutex // guards the fields below
	followers map[*Follower]struct{}
}

// Follower is one open page. Its only state is whether something has changed.
type Follower struct {
	// Changed has an element after a change.
	Changed chan struct{}

	wants func(sandbox.Event) bool
}

// Tell notifies the page of a possible change. It does not block.
func (f *Follower) Tell() {
	select {
	case f.Changed <- struct{}{}:
	default: // already notified
	}
}

// New returns a feed for at most this many pages at the same time.
func New(events Events, most int, log *slog.Logger) *Feed {
	return &Feed{
		events:    events,
		most:      most,
		log:       log,
		watched:   make(chan struct{}, 1),
		followers: map[*Follower]struct{}{},
	}
}

// Join adds a page. wants selects its events. Errors: CapacityExceeded.
func (f *Feed) Join(wants func(sandbox.Event) bool) (*Follower, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.followers) >= f.most {
		return nil, sandbox.Errorf(sandbox.CapacityExceeded,
			"%d pages follow the ledger already: reload this page to see changes", f.most)
	}
	one := &Follower{wants: wants, Changed: make(chan struct{}, 1)}
	f.followers[one] = struct{}{}
	select {
	case f.watched <- struct{}{}:
	default:
	}
	return one, nil
}

// Leave removes a page.
func (f *Feed) Leave(one *Follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.followers, one)
}

// errUnwatched ends the feed when no page is open.
var errUnwatched = errors.New("no page is open")

// pass notifies the followers of an event. It does not block.
func (f *Feed) pass(e sandbox.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for one := range f.followers {
		if one.wants(e) {
			one.Tell()
		}
	}
	if len(f.followers) == 0 {
		return errUnwatched
	}
	return nil
}

// notifyAll notifies all followers of a possible change.
func (f *Feed) notifyAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for one := range f.followers {
		one.Tell()
	}
}

// Run follows the ledger's events while pages are open, until ctx ends.
func (f *Feed) Run(ctx context.Context) {
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
			case <-time.After(retry):
			}
		}
	}
}

// follow passes on new events. First it notifies all followers, because it may have missed events.
func (f *Feed) follow(ctx context.Context) error {
	info, err := f.events.Ledger(ctx)
	if err != nil {
		return err
	}
	f.notifyAll()
	return f.events.FollowEvents(ctx, sandbox.EventFilter{AfterID: info.LastEventID}, f.pass)
}
