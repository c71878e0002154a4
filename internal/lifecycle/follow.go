package lifecycle

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
)

// Next is what a follower does after a page.
type Next int

// More: another page follows. Wait: one follows after the ledger's next change. End: none follows.
const (
	More Next = iota
	Wait
	End
)

// Follow yields the events of each page, until the last one, an error, or the end of ctx or life. It holds one page,
// and none while it waits. It calls read for one page after the other; read keeps the position. It calls passed, unless
// nil, after the events of each page.
func Follow[E any](ctx context.Context, store *ledger.Store, life context.Context,
	read func() ([]E, Next, error), yield func(E) error, passed func()) error {
	for {
		changed := store.Changed()
		events, next, err := read()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		for _, ev := range events {
			if err := yield(ev); err != nil {
				return err
			}
		}
		if passed != nil {
			passed()
		}
		switch next {
		case More:
			continue
		case End:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-life.Done():
			return ErrClosing
		}
	}
}
