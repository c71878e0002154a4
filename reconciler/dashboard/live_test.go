package dashboard_test

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// followed is a page that follows. changes gets an element for each notification, and is closed when the page is
// disconnected.
type followed struct {
	changes chan struct{}
	end     context.CancelFunc
}

// follow opens the live updates of a page, from the ledger's latest event.
func (b *browser) follow(query string) *followed {
	b.w.Helper()
	info, err := b.w.Service.Ledger(b.w.Context())
	if err != nil {
		b.w.Fatal(err)
	}
	ctx, end := context.WithCancel(b.w.Context())
	r := b.request(http.MethodGet, "/ui/live?"+query+"&after="+itoa(info.LastEventID), nil).WithContext(ctx)
	resp, err := b.w.server.Client().Transport.RoundTrip(r)
	if err != nil {
		b.w.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != "text/event-stream" {
		b.w.Fatalf("following is answered with %d %s", resp.StatusCode, got)
	}
	f := &followed{changes: make(chan struct{}, 1000), end: end}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(f.changes)
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if lines.Text() == "event: changed" {
				f.changes <- struct{}{}
			}
		}
	}()
	b.w.Cleanup(func() {
		end()
		_ = resp.Body.Close()
		<-done
	})
	return f
}

// wantChange waits until the page is notified of a change.
func (w *world) wantChange(f *followed, of string) {
	w.Helper()
	select {
	case _, ok := <-f.changes:
		if !ok {
			w.Fatalf("it was disconnected before a notification of %s", of)
		}
	case <-time.After(time.Minute):
		w.Fatalf("it was not notified of %s within a minute", of)
	}
}

func TestAPageHearsOfWhatChangesAndOfNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.game()
	other := w.acquire("did:plc:bob", "rpg-1")
	all := w.loggedIn(w.token("all", sandbox.ScopeRead)).follow("")
	w.wantChange(all, "what happened until the feed was there") // the first follower is always notified
	rpg := w.loggedIn(w.token("rpg", sandbox.ScopeRead, "rpg-*")).follow("")
	one := w.loggedIn(w.token("one", sandbox.ScopeRead)).follow("lease=" + url.QueryEscape(l.ID))

	w.run(l.ID, "echo", "again")
	w.wantChange(all, "a command")
	w.wantChange(one, "a command in its lease")
	w.run(other.ID, "echo", "again")
	w.wantChange(rpg, "a command in its environment")
	for len(one.changes) > 0 { // the first command has several events
		<-one.changes
	}
	if len(rpg.changes) > 1 {
		t.Errorf("the limited token's page was notified %d times", len(rpg.changes))
	}
}

// TestAPageThatWasReadBeforeAChangeHearsOfItWhenItFollows: no change between reading and following is lost.
func TestAPageThatWasReadBeforeAChangeHearsOfItWhenItFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.game()
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	w.wantChange(b.follow(""), "the beginning")
	late := b.follow("lease=" + url.QueryEscape(l.ID) + "&after=1") // the page misses the second of two events
	w.wantChange(late, "what happened after the event that it was read as of")
}

func TestAPageWhoseTokenIsRevokedHearsNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *api.Config, d *dashboard.Config) { d.KeepAlive = 10 * time.Millisecond })
	w.game()
	f := w.loggedIn(w.token("ops", sandbox.ScopeRead)).follow("")
	if _, err := w.registry.RevokeToken(t.Context(), "ops"); err != nil {
		t.Fatal(err)
	}
	w.Pass(access.Staleness)
	w.eventually("it is cut off", func() bool {
		select {
		case _, open := <-f.changes:
			return !open
		default:
			return false
		}
	})
}

func TestNoMorePagesFollowThanThereIsRoomFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *api.Config, d *dashboard.Config) { d.MaxStreams = 1 })
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	f := b.follow("")
	if a := b.get("/ui/live"); a.StatusCode != http.StatusTooManyRequests || !strings.Contains(a.body, "1 pages follow") {
		t.Errorf("the second is answered with %d", a.StatusCode)
	}
	f.end()
	w.eventually("there is room again", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := w.server.Client().Transport.RoundTrip(b.request(http.MethodGet, "/ui/live", nil).WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func TestFollowingAnotherEnvironmentIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.game()
	b := w.loggedIn(w.token("rpg", sandbox.ScopeRead, "rpg-*"))
	for _, query := range []string{
		"environment=catan-7", "lease=" + url.QueryEscape(l.ID), "environment=rpg-1&lease=" + url.QueryEscape(l.ID),
	} {
		if a := b.get("/ui/live?" + query); a.StatusCode != http.StatusForbidden {
			t.Errorf("%s is answered with %d", query, a.StatusCode)
		}
	}
}
