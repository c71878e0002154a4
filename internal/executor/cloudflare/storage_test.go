package cloudflare_test

import (
	_ "embed" // a part of a Worker
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

//go:embed testdata/dump.js
var dumpScript string

// dump returns the rows of the storage of a sandbox's Durable Object, by table.
func (w *world) dump(h driver.Handle) (tables map[string][]json.RawMessage) {
	w.Helper()
	w.ask("/dump?name="+url.QueryEscape(h.LedgerID+"/"+h.SandboxID), &tables)
	return tables
}

// stored returns all contents of the storage of a sandbox's Durable Object and of the database, as text.
func (w *world) stored(h driver.Handle) string {
	w.Helper()
	all := fmt.Sprintf("%s", w.dump(h))
	for _, table := range w.server.Query("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'sandbox%'") {
		all += fmt.Sprint(table["name"], w.server.Query(fmt.Sprintf("SELECT * FROM %s", table["name"])))
	}
	return all
}

// TestNoSecretOutlivesASandbox reads the storage, not only answers.
func TestNoSecretOutlivesASandbox(t *testing.T) {
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{Append: dumpScript})
	w := &world{t, server, server.Worker()}
	w.each(map[string]func(*world){
		"that was killed": func(w *world) {
			w.endsWithoutSecrets(time.Hour, func(h driver.Handle) { w.must(w.worker.Kill(w.Context(), h)) })
		},
		"that was killed asleep": func(w *world) {
			w.endsWithoutSecrets(time.Hour, func(h driver.Handle) {
				w.must(w.worker.Sleep(w.Context(), h))
				w.must(w.worker.Kill(w.Context(), h))
			})
		},
		"that has reached its deadline": func(w *world) {
			w.endsWithoutSecrets(40*time.Second, func(h driver.Handle) { w.awaitStopped(h) })
		},
	})
}

func (w *world) endsWithoutSecrets(life time.Duration, end func(h driver.Handle)) {
	const value, config, key = "value-of-a-variable", "secret-of-the-configuration", `"key":"`
	h := w.spawn(cloudflare.Limits{}, func(s *driver.SandboxSpec) {
		s.Deadline = time.Now().Add(life)
		s.Env = map[string]string{"TOKEN": value}
		s.Config = []byte(`{"password":"` + config + `"}`)
	})
	if got := w.sh(h, "echo kept > /data/note; echo $TOKEN; cat /workspace/config.json"); !strings.Contains(got, value) ||
		!strings.Contains(got, config) {
		w.Fatalf("the sandbox has %q", got)
	}
	if alive := w.stored(h); !strings.Contains(alive, value) || !strings.Contains(alive, key) {
		w.Fatalf("this test does not see what is stored: %s", alive)
	}
	end(h)
	var stored string
	testwait.Poll(patience, func() bool { // at a deadline, the alarm deletes it
		stored = w.stored(h)
		return !strings.Contains(stored, value) && !strings.Contains(stored, key)
	})
	for what, text := range map[string]string{"a variable": value, "its configuration": config, "its port's key": key} {
		if strings.Contains(stored, text) {
			w.Errorf("after its end %s is stored: %s", what, stored)
		}
	}
}

// TestNoTablesOutliveASandbox: Cloudflare bills even empty tables of Durable Objects.
func TestNoTablesOutliveASandbox(t *testing.T) {
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{Append: dumpScript})
	w := &world{t, server, server.Worker()}
	spec := w.spec()
	spec.Env = map[string]string{"PURGED": "yes"}
	for range 2 { // the second time in the same object
		w.must(w.worker.Spawn(t.Context(), spec, cloudflare.Limits{}))
		w.sh(spec.Handle, "echo kept > /data/note")
		if has := w.dump(spec.Handle); len(has["sandbox"]) != 1 || len(has[""]) != 1 {
			t.Fatalf("a sandbox has %s", has)
		}
		w.must(w.worker.Kill(t.Context(), spec.Handle))
		testwait.Until(t, patience, "its tables are gone", func() bool { return len(w.dump(spec.Handle)) == 1 })
		absentAt(w, spec.Handle)
	}
	absentAt(w, w.spec().Handle)
}

// absentAt asks about a sandbox that does not exist, which creates nothing.
func absentAt(w *world, h driver.Handle) {
	w.Helper()
	_, err := w.worker.Inspect(w.Context(), h)
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	w.wantError(w.worker.Wake(w.Context(), h), sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	w.must(w.worker.Kill(w.Context(), h))
	w.wantPeriods(h)
	if has := w.dump(h); len(has) != 1 || len(has[""]) != 0 {
		w.Errorf("a sandbox that does not exist has %s", has)
	}
}

// TestWebSocketsCloseAfterTheirLastWork: an open WebSocket keeps the Durable Object in memory, and billed.
func TestWebSocketsCloseAfterTheirLastWork(t *testing.T) {
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{Append: dumpScript})
	w := &world{t, server, server.Worker()}
	h := w.spawn(cloudflare.Limits{})
	w.sh(h, "echo hello")
	worked := time.Now()
	testwait.Until(t, 20*time.Second, "no WebSocket is open", func() bool { return len(w.dump(h)["running"]) == 0 })
	if open := time.Since(worked); open < 9*time.Second || open > 14*time.Second {
		t.Errorf("the WebSocket closed %s after the last work, want 10 s", open)
	}
	if got := w.sh(h, "echo again"); got != "again\n" { // opens another WebSocket
		t.Errorf("later the sandbox says %q", got)
	}
}
