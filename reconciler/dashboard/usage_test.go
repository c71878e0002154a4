package dashboard_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// usagePage is the usage page of a lease, split into parts.
type usagePage struct {
	answer
	rows  []string // of the table, the latest first
	paths []string // of the lines
}

var (
	tableRow  = regexp.MustCompile(`(?s)<tbody>.*</tbody>`)
	linePaths = regexp.MustCompile(`class="stroke" d="([^"]*)"`)
)

func (b *browser) usage(l sandbox.Lease, query string) usagePage {
	b.w.Helper()
	p := usagePage{answer: b.get("/ui/leases/" + url.PathEscape(l.ID) + "/usage" + query)}
	if p.StatusCode != 200 {
		b.w.Fatalf("the page is answered with %d: %s", p.StatusCode, p.body)
	}
	if table := tableRow.FindString(p.body); table != "" {
		p.rows = strings.Split(table, "<tr>")[1:]
	}
	for _, m := range linePaths.FindAllStringSubmatch(p.body, -1) {
		p.paths = append(p.paths, m[1])
	}
	return p
}

func TestUsageIsShownOverTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	never := sandbox.Duration(0)
	w.environment("catan-7",
		func(p *sandbox.PutEnvironment) { p.SleepAfter, p.TTL = &never, sandbox.Duration(5*time.Hour) })
	l := w.acquire("did:plc:ann", "catan-7")
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	if p := b.usage(l, ""); len(p.rows) != 0 || !strings.Contains(p.body, "No samples") ||
		!strings.Contains(p.body, "available within a minute") {
		t.Errorf("before the first sample the page is %s", p.body)
	}
	minutes := func(n int) {
		for range n {
			w.Advance(time.Minute)
			w.Burn(l.SandboxID, 15*time.Second)
		}
	}
	minutes(20)
	w.Pass(10 * time.Minute)
	minutes(10)
	p := b.usage(l, "")
	if len(p.rows) != 30 || len(p.paths) != 3 || strings.Count(p.body, "0.25</td>") != 28 {
		t.Errorf("%d samples in %d lines are shown: %s", len(p.rows), len(p.paths), p.body)
	}
	for _, path := range p.paths {
		if strings.Count(path, "M") != 2 {
			t.Errorf("a gap of ten minutes is no gap in %s", path)
		}
	}
	if !strings.Contains(p.body, "0.25 of 0.5 cores") || strings.Contains(p.body, "available within") {
		t.Errorf("the current usage is not compared with the last sample: %s", p.body)
	}
	if !strings.Contains(p.body, `/usage?last=6h"`) {
		t.Errorf("no link leads to the last 6 hours: %s", p.body)
	}
	if day := b.usage(l, "?last=24h"); len(day.rows) != 3 || !strings.Contains(day.body, "at most") ||
		!strings.Contains(day.body, `aria-current="true">24 hours`) {
		t.Errorf("%d rows are shown for the last day: %s", len(day.rows), day.body)
	}
	w.BackendAway(true)
	if p := b.usage(l, ""); len(p.rows) != 30 || !strings.Contains(p.body, "the engine is away") {
		t.Errorf("with its backend away %d samples are shown: %s", len(p.rows), p.body)
	}
	w.BackendAway(false)
	w.Pass(70 * time.Minute)
	if p := b.usage(l, ""); len(p.rows) != 0 {
		t.Errorf("%d samples are shown for the last hour", len(p.rows))
	}
	if _, err := w.Service.Release(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	if p := b.usage(l, "?last=6h"); len(p.rows) == 0 || !strings.Contains(p.body, "has ended") {
		t.Errorf("once it has ended %d rows are shown: %s", len(p.rows), p.body)
	}
	if a := b.get("/ui/leases/" + url.PathEscape(l.ID)); !strings.Contains(a.body, "/usage") {
		t.Errorf("the page of the lease that has ended does not lead to its usage: %s", a.body)
	}
}
