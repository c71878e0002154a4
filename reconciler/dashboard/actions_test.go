package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// confirm requests an action on the first generation and sends the form of its confirmation.
func (b *browser) confirm(path string) answer {
	b.w.Helper()
	if a := b.get(path); a.StatusCode != 200 || !strings.Contains(a.body, `name="generation" value="1"`) {
		b.w.Fatalf("%s is answered with %d: %s", path, a.StatusCode, a.body)
	}
	return b.post(path, url.Values{"csrf": {b.csrf}, "generation": {"1"}})
}

func TestLeasesAreRenewedPutToSleepAndExpired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, exec := w.game()
	b := w.loggedIn(w.token("ops", sandbox.ScopeLease))
	now := func() sandbox.Lease {
		t.Helper()
		got, err := w.Service.GetLease(t.Context(), l.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	done := func(a answer) {
		t.Helper()
		if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != w.pathOf("{lease}", l, exec) {
			t.Errorf("it is answered with %d: %s", a.StatusCode, a.body)
		}
	}
	w.Pass(time.Hour)
	done(b.confirm(w.pathOf("{lease}/renew", l, exec)))
	if at := now().ExpiresAt; !at.Equal(l.ExpiresAt.Add(time.Hour)) {
		t.Errorf("renewed, it ends at %s, and it was to end at %s", at, l.ExpiresAt)
	}
	done(b.confirm(w.pathOf("{lease}/sleep", l, exec)))
	if got := now(); got.Phase != sandbox.PhaseAsleep {
		t.Errorf("put to sleep it is %s", got.Phase)
	}
	if a := b.get(w.pathOf("{lease}/sleep", l, exec)); a.StatusCode != http.StatusConflict {
		t.Errorf("putting it to sleep again is answered with %d", a.StatusCode)
	}
	done(b.confirm(w.pathOf("{lease}/expire", l, exec)))
	if got := now(); got.Status != sandbox.LeaseDestroyed || got.EndedBy != sandbox.EndedByRelease {
		t.Errorf("expired it is %s by %s", got.Status, got.EndedBy)
	}
	events, err := w.Service.ListEvents(t.Context(), sandbox.EventFilter{LeaseID: l.ID, Type: "lease.*"})
	if err != nil || len(events) < 2 {
		t.Fatalf("%v, %v", events, err)
	}
	for _, e := range events {
		if e.Actor != "token:ops" || e.Address != "127.0.0.1" {
			t.Errorf("%s happened on behalf of %q from %q", e.Type, e.Actor, e.Address)
		}
	}
}

func TestAConfirmationIsForTheGenerationThatItShowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, exec := w.game()
	b := w.loggedIn(w.token("ops", sandbox.ScopeLease))
	path := w.pathOf("{lease}/expire", l, exec)
	b.get(path)
	if _, err := w.Service.Release(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	w.acquire("did:plc:ann", "catan-7")
	if a := b.post(path, url.Values{"csrf": {b.csrf}, "generation": {"1"}}); a.StatusCode != http.StatusConflict {
		t.Errorf("a late confirmation is answered with %d: %s", a.StatusCode, a.body)
	}
	if a := b.post(path, url.Values{"csrf": {b.csrf}}); a.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a confirmation of no generation is answered with %d", a.StatusCode)
	}
	now, err := w.Service.GetLease(t.Context(), l.ID)
	if err != nil || now.Status != sandbox.LeaseActive || now.Generation != 2 {
		t.Errorf("the next generation is %s, %v", now.Status, err)
	}
}

func TestALeaseWhoseSandboxCannotBeRemovedYetHasExpiredAllTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, exec := w.game()
	b := w.loggedIn(w.token("ops", sandbox.ScopeLease))
	w.FailKills(true)
	if a := b.confirm(w.pathOf("{lease}/expire", l, exec)); a.StatusCode != http.StatusSeeOther {
		t.Errorf("it is answered with %d: %s", a.StatusCode, a.body)
	}
	if a := b.get(w.pathOf("{lease}", l, exec)); !strings.Contains(a.body, "the engine is away") ||
		!strings.Contains(a.body, "Ended by") {
		t.Errorf("the page does not say so: %s", a.body)
	}
	w.FailKills(false)
}
