package llm_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// clock is a clock that tests set.
type clock struct{ at atomic.Int64 }

func (c *clock) set(text string) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	c.at.Store(at.UnixNano())
}

func (c *clock) now() time.Time { return time.Unix(0, c.at.Load()).UTC() }

func at(text string) (*clock, option) {
	c := &clock{}
	c.set(text)
	return c, func(o *llm.Options) { o.Now = c.now }
}

// limited is a configuration of a route with limits. Each call costs chatCost and uses 27 tokens.
func limited(lease, monthly sandbox.LLMLimits) llm.Config {
	r := route(sandbox.LLMOpenAI, plain)
	r.LeaseLimits, r.MonthlyLimits = lease, monthly
	return llm.Config{Environment: "env-1", Account: "acct-1", Routes: map[string]llm.Route{"main": r}}
}

func (w *world) as(id string) {
	w.caller.Store(&llm.Caller{Sandbox: id, Agent: "did:plc:ann", Lease: "lease-of-" + id, Generation: 1})
}

// spend makes calls until one is refused, and returns the number of successful ones.
func (w *world) spend() (int, answer) {
	w.t.Helper()
	for n := 0; ; n++ {
		if a := w.post(chatPath, chatBody); a.status != http.StatusOK || n > 20 {
			return n, a
		}
	}
}

func TestLimitsRefuseFurtherCallsOnceReached(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		limits sandbox.LLMLimits
		calls  int
		says   string
	}{
		"usd":      {sandbox.LLMLimits{USD: 2*chatCost + 1}, 3, "0.000171001"},
		"requests": {sandbox.LLMLimits{Requests: 2}, 2, "2 requests"},
		"tokens":   {sandbox.LLMLimits{Tokens: 54}, 2, "54 tokens"},
	} {
		for _, of := range []string{"lease_limits", "monthly_limits"} {
			w := newWorld(t)
			w.out.serve(say(`{` + chatUsage + `}`))
			c := limited(row.limits, sandbox.LLMLimits{})
			if of == "monthly_limits" {
				c = limited(sandbox.LLMLimits{}, row.limits)
			}
			w.set(c)
			n, a := w.spend()
			if n != row.calls || a.status != http.StatusForbidden || a.reason() != "limit_reached" ||
				!strings.Contains(a.body, row.says) || !strings.Contains(a.body, of+"."+name) {
				t.Errorf("%s.%s: after %d calls it says %d %s", of, name, n, a.status, a.body)
			}
			w.as("box-2")
			n, _ = w.spend()
			if want := map[string]int{"lease_limits": row.calls}[of]; n != want {
				t.Errorf("%s.%s: another sandbox has %d calls, want %d", of, name, n, want)
			}
			w.close() // the sums survive
			w.open()
			w.set(c)
			if n, a := w.spend(); n > 0 || a.reason() != "limit_reached" {
				t.Errorf("%s.%s: after a restart, there are %d more calls: %+v", of, name, n, a)
			}
		}
	}
}

// TestTheSumsNeedNotBeStoredToStart: on a full disk the gateway starts, because removals of sandboxes need it.
func TestTheSumsNeedNotBeStoredToStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.out.serve(say(`{` + chatUsage + `}`))
	c := limited(sandbox.LLMLimits{Requests: 3}, sandbox.LLMLimits{})
	w.set(c)
	if a := w.post(chatPath, chatBody); a.status != http.StatusOK {
		t.Fatalf("the first call says %+v", a)
	}
	w.close()
	obstacle := filepath.Join(w.dir, "sums.json.new") // a directory where the file is written
	must(t, os.Mkdir(obstacle, 0o700))
	for range 2 {
		w.open()
		w.set(c)
		if a := w.post(chatPath, chatBody); a.status != http.StatusOK {
			t.Errorf("a call says %+v", a)
		}
		if err := w.broker.Close(); err == nil {
			t.Error("the sums were stored")
		}
		w.close()
	}
	must(t, os.Remove(obstacle))
	w.open()
	w.set(c)
	if n, a := w.spend(); n > 0 || a.reason() != "limit_reached" {
		t.Errorf("after 3 calls of 3 there are %d more: %+v", n, a)
	}
}

func TestRunningCallsReserveWhatTheyCanUse(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]sandbox.LLMLimits{
		"usd": {USD: 1000}, "requests": {Requests: 1}, "tokens": {Tokens: 100},
	} {
		w := newWorld(t)
		w.set(limited(limits, sandbox.LLMLimits{}))
		next := make(chan struct{})
		w.out.serve(then(stream(event(`{"choices":[{}]}`)), func(rw http.ResponseWriter, r *http.Request) {
			<-next
			stream(event(`{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`), event("[DONE]"))(rw, r)
		}))
		res, in := w.firstLine(t.Context(), chatPath, chatStream)
		a := w.post(chatPath, chatBody)
		if a.status != http.StatusTooManyRequests || a.reason() != "reserved" || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: it says %+v", name, a)
		}
		close(next)
		_, err := io.ReadAll(in)
		must(t, err)
		must(t, res.Body.Close())
		w.last()
		w.out.serve(say(`{` + chatUsage + `}`))
		if a := w.post(chatPath, chatBody); (a.status == http.StatusOK) == (name == "requests") {
			t.Errorf("%s: after the call that used nothing, it says %+v", name, a)
		}
	}
}

func TestTheBudgetIsForAllRoutesAndMonthsContinueWithWhatIsLeft(t *testing.T) {
	t.Parallel()
	c, option := at("2026-11-30T23:59:00Z")
	w := newWorld(t, option)
	w.out.serve(say(`{` + chatUsage + `}`))
	budget := sandbox.NanoUSD(4 * chatCost)
	config := limited(sandbox.LLMLimits{}, sandbox.LLMLimits{Requests: 3})
	config.Routes["other"] = route(sandbox.LLMOpenAI, plain)
	config.Month, config.Cap = "2026-11", &budget
	w.set(config)
	if n, a := w.spend(); n != 3 || a.reason() != "limit_reached" {
		t.Errorf("the first month has %d calls: %+v", n, a)
	}
	c.set("2026-12-01T00:00:00Z")
	if n, a := w.spend(); n != 1 || a.status != http.StatusForbidden || a.reason() != "budget_exceeded" {
		t.Errorf("the next month has %d calls: %+v", n, a)
	}
	if a := w.post("/llm/other/v1/chat/completions", chatBody); a.reason() != "budget_exceeded" {
		t.Errorf("the other route says %+v", a)
	}
	config.Month = "2026-12"
	w.set(config)
	if n, a := w.spend(); n != 2 || a.reason() != "limit_reached" {
		t.Errorf("with its budget, the next month has %d more calls: %+v", n, a)
	}
	zero := sandbox.NanoUSD(0)
	config.Cap = &zero
	w.set(config)
	if n, a := w.spend(); n != 0 || a.reason() != "budget_exceeded" {
		t.Errorf("without a budget, there are %d more calls: %+v", n, a)
	}
}

func TestWhatTheLedgerHasRecordedCounts(t *testing.T) {
	t.Parallel()
	_, option := at("2026-11-24T12:00:00Z")
	w := newWorld(t, option)
	w.out.serve(say(`{` + chatUsage + `}`))
	c := limited(sandbox.LLMLimits{}, sandbox.LLMLimits{Requests: 5})
	c.Month, c.Recorded = "2026-11", map[string]llm.Used{"main": {Requests: 3}}
	w.set(c)
	w.post(chatPath, chatBody)
	c.Recorded["main"] = llm.Used{Requests: 4}
	w.set(c) // the gateway already counts these calls
	c.Recorded["main"] = llm.Used{Requests: 2}
	w.set(c) // the ledger is behind
	if n, a := w.spend(); n != 1 || a.reason() != "limit_reached" {
		t.Errorf("there are %d more calls: %+v", n, a)
	}
}

func TestARemovedSandboxIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.out.serve(say(`{` + chatUsage + `}`))
	c := limited(sandbox.LLMLimits{Requests: 1}, sandbox.LLMLimits{})
	w.set(c)
	w.spend()
	must(t, w.broker.Forget("box-1"))
	w.close()
	w.open()
	w.set(c)
	if n, _ := w.spend(); n != 1 {
		t.Errorf("a sandbox of the same name has %d calls", n)
	}
}

func TestFiftyLeasesThatRaceExceedTheBudgetByOneCallAtMost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const tokens = 5000
	w.out.serve(say(fmt.Sprintf(`{"usage":{"prompt_tokens":1,"completion_tokens":%d}}`, tokens)))
	c := limited(sandbox.LLMLimits{}, sandbox.LLMLimits{USD: sandbox.USD})
	m := modelM()
	m.MaxOutputTokens = tokens
	c.Routes["main"].Models["m"] = m
	w.set(c)
	body := fmt.Sprintf(`{"model":"m","messages":[],"max_tokens":%d}`, tokens)
	var callers sync.WaitGroup
	var reserved atomic.Int64
	for range 50 {
		callers.Go(func() {
			for {
				a := w.post(chatPath, body)
				switch {
				case a.status == http.StatusTooManyRequests:
					reserved.Add(1)
					time.Sleep(5 * time.Millisecond) //nolint:forbidigo // the pace of a caller that was refused
				case a.status != http.StatusOK:
					if a.reason() != "limit_reached" {
						t.Errorf("it says %+v", a)
					}
					return
				}
			}
		})
	}
	callers.Wait()
	var total sandbox.NanoUSD
	for _, c := range w.ended() {
		total += c.Cost
	}
	const one = 1000 + tokens*10_000
	if total < sandbox.USD || total >= sandbox.USD+one {
		t.Errorf("all calls together cost %s", total)
	}
	t.Logf("%d calls waited for reservations", reserved.Load())
}

// copyDir copies a journal as it is on disk.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

func TestACallThatTheGatewayDidNotSurviveIsInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := limited(sandbox.LLMLimits{Requests: 3}, sandbox.LLMLimits{})
	w.set(c)
	w.out.serve(say(`{` + chatUsage + `}`))
	w.post(chatPath, chatBody)
	w.out.serve(then(stream(event(`{"choices":[{}]}`)), hang))
	ctx, cancel := context.WithCancel(t.Context())
	res, _ := w.firstLine(ctx, chatPath, chatStream)
	dir := copyDir(t, w.dir)
	cancel()
	must(t, res.Body.Close())
	w.last()

	// The last line is incomplete.
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	must(t, err)
	f, err := os.OpenFile(files[len(files)-1], os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(`{"id":"torn","outco`)
	must(t, err)
	must(t, f.Close())

	again := newWorld(t, func(o *llm.Options) { o.Dir = dir })
	list := again.entries()
	if len(list) != 4 {
		t.Fatalf("the journal has %+v", list)
	}
	begun, got := list[2].Call, list[3].Call
	if got.Outcome != sandbox.LLMInterrupted || !got.Unknown || got.Cost != begun.Cost || got.Cost == 0 ||
		got.EndedAt.IsZero() || got.ID != begun.ID || begun.Outcome != sandbox.LLMRunning {
		t.Errorf("it began as %+v and is %+v", begun, got)
	}
	again.out.serve(say(`{` + chatUsage + `}`))
	again.set(c)
	if n, a := again.spend(); n != 1 || a.reason() != "limit_reached" {
		t.Errorf("there are %d more calls: %+v", n, a)
	}
	before := audit.Position{}
	for _, e := range list {
		if !e.After(before) || e.Run == before.Run && e.Line != before.Line+1 {
			t.Errorf("%+v comes after %+v", e.Position, before)
		}
		before = e.Position
	}
}

func small(o *llm.Options) { o.SegmentBytes = 2000 }

func TestLinesAreKeptUntilTheyAreReadElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, small)
	w.set(limited(sandbox.LLMLimits{Requests: 1000}, sandbox.LLMLimits{}))
	w.out.serve(say(`{` + chatUsage + `}`))
	files := func() int {
		list, err := filepath.Glob(filepath.Join(w.dir, "*.jsonl"))
		must(t, err)
		return len(list)
	}
	calls := 0
	for ; files() < 4; calls++ {
		w.post(chatPath, chatBody)
	}
	eventually(t, "the last call has ended in the journal, too", func() bool { return w.broker.Status().Running == 0 })
	if s := w.broker.Status(); s.Unread < 6000 {
		t.Errorf("the status is %+v", s)
	}
	list, err := w.broker.Calls(audit.Position{})
	must(t, err)
	if again, err := w.broker.Calls(audit.Position{}); err != nil || len(again) != 2*calls || len(list) != 2*calls {
		t.Errorf("of %d calls, it tells %d lines, and then %d, %v", calls, len(list), len(again), err)
	}
	if more, err := w.broker.Calls(list[len(list)/2].Position); err != nil || len(more) != calls-1 || files() >= 4 {
		t.Errorf("it tells %d lines of %d after the middle, and keeps %d files, %v", len(more), calls, files(), err)
	}
	if more, err := w.broker.Calls(list[len(list)-1].Position); err != nil || len(more) > 0 || files() != 1 {
		t.Errorf("after the end, it tells %+v, and keeps %d files, %v", more, files(), err)
	}
	if s := w.broker.Status(); s.Unread != 0 {
		t.Errorf("the status is %+v", s)
	}
	w.close()
	w.open(small)
	w.set(limited(sandbox.LLMLimits{Requests: int64(calls)}, sandbox.LLMLimits{}))
	if a := w.post(chatPath, chatBody); a.reason() != "limit_reached" {
		t.Errorf("the sums do not survive their lines: %+v", a)
	}
}

func TestAFullJournalRefusesCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, small, func(o *llm.Options) { o.MaxUnread = 3000 })
	w.set(config(sandbox.LLMOpenAI, plain))
	w.out.serve(say(`{` + chatUsage + `}`))
	n, a := w.spend()
	if n < 2 || a.status != http.StatusServiceUnavailable || a.reason() != "journal_full" || len(w.out.got()) != n {
		t.Errorf("after %d calls, it says %+v", n, a)
	}
	w.entries()
	if a := w.post(chatPath, chatBody); a.status != http.StatusOK {
		t.Errorf("once it is read: %+v", a)
	}
}

func TestACallThatCannotBeRecordedIsNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, small)
	w.set(config(sandbox.LLMOpenAI, plain))
	w.out.serve(say(`{` + chatUsage + `}`))
	moved := w.dir + ".moved" // the journal cannot begin another file
	must(t, os.Rename(w.dir, moved))
	n, a := w.spend()
	if a.status != http.StatusServiceUnavailable || a.reason() != "journal_failed" || strings.Contains(a.body, w.dir) {
		t.Errorf("after %d calls, it says %+v", n, a)
	}
	if got := len(w.out.got()); got != n {
		t.Errorf("the upstream got %d calls, and %d had an answer", got, n)
	}
	must(t, os.Rename(moved, w.dir))
	if a := w.post(chatPath, chatBody); a.status != http.StatusOK {
		t.Errorf("afterwards, it says %d %s", a.status, a.body)
	}
	if list := w.ended(); len(list) != n+1 {
		t.Errorf("the journal has %d calls, want %d", len(list), n+1)
	}
}
