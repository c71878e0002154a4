package cloudflare_test

import (
	_ "embed"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

//go:embed testdata/counts.js
var countsScript string

// counts are the counts of counts.js.
type counts struct {
	Calls  int // calls of D1
	D1     int // rows that they have written
	Object int // rows that Durable Objects have written to their storage
}

func (c counts) since(before counts) counts {
	return counts{c.Calls - before.Calls, c.D1 - before.D1, c.Object - before.Object}
}

func (w *world) counts() (c counts) {
	w.Helper()
	w.ask("/counts", &c)
	return c
}

// TestRows counts the calls and rows that Cloudflare bills for a lease. The guide and the estimates have these figures.
func TestRows(t *testing.T) {
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{Append: countsScript + burstScript})
	w := &world{t, server, server.Worker()}
	b := &burst{w, w.spec().LedgerID}
	b.wantListed(0) // it creates the tables

	var h driver.Handle
	spawn := func() {
		h = w.spawn(cloudflare.Limits{}, func(s *driver.SandboxSpec) {
			s.AgentDID = "did:plc:counted"
			s.LeaseID = sandbox.LeaseID(s.AgentDID, s.EnvironmentID)
		})
	}
	act := func(name string) func() {
		return func() {
			if failed := b.ask(name, "id="+h.SandboxID); len(failed) > 0 {
				t.Fatalf("%s: %s", name, failed[0])
			}
		}
	}
	command := func() { w.sh(h, "echo hello") }
	began := w.counts()
	for _, step := range []struct {
		what string
		act  func()
		want counts // Object is a maximum
	}{
		{"the first start of an agent", spawn, counts{2, 8, 27}},
		{"a command, which opens a WebSocket", command, counts{Object: 1}},
		{"another command", command, counts{}},
		{"a command that changes /data", func() { w.sh(h, "echo hello > /data/said") }, counts{Object: 2}},
		{"an alarm after a command", act("alarm"), counts{1, 2, 6}},
		{"the time without a command", act("rest"), counts{Object: 1}},
		{"an alarm without a command", act("alarm"), counts{1, 1, 2}},
		{"a renewal", func() {
			_, err := w.worker.Touch(t.Context(), h, driver.Limits{}, cloudflare.Limits{})
			w.must(err)
		}, counts{1, 2, 5}},
		{"a sleep, which closes the WebSocket", func() { w.must(w.worker.Sleep(t.Context(), h)) }, counts{1, 1, 5}},
		{"a wake", func() { w.must(w.worker.Wake(t.Context(), h)) }, counts{1, 2, 10}},
		{"a kill", func() { w.must(w.worker.Kill(t.Context(), h)) }, counts{1, 3, 6}},
		{"the next generation's start", spawn, counts{2, 5, 27}},
		{"its kill", func() { w.must(w.worker.Kill(t.Context(), h)) }, counts{1, 3, 6}},
	} {
		before := w.counts()
		step.act()
		got := w.counts().since(before)
		t.Logf("%s: %+v", step.what, got)
		if got.Calls != step.want.Calls || got.D1 != step.want.D1 || got.Object > step.want.Object {
			t.Errorf("%s: %+v, want %+v", step.what, got, step.want)
		}
	}
	t.Logf("in all: %+v", w.counts().since(began))
}
