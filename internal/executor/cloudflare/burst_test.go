package cloudflare_test

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

//go:embed testdata/burst.js
var burstScript string

// burst makes sandboxes of a ledger act at the same time, through burst.js.
type burst struct {
	*world
	ledger string
}

// TestBursts: Durable Objects share calls of D1, and each write is as safe as with a separate call.
func TestBursts(t *testing.T) {
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{Append: countsScript + burstScript})
	for name, test := range map[string]func(*burst){
		"many starts and ends are few calls":             burstIsFewCalls,
		"a failure of D1 loses no end":                   burstOutlivesFailures,
		"a write that D1 refuses fails no other":         burstWithRefusedWrite,
		"an object is reset during the call of others":   burstWithoutItsCaller,
		"an object is reset while its write waits":       burstWithoutAWaiter,
		"an older state replaces no newer one":           burstKeepsTheNewest,
		"what an older Worker owes is written":           burstOfAnOlderWorker,
		"a sandbox that was killed is deleted once more": burstEndsTwice,
		"a start that D1 does not learn of is undone":    burstUndoesStarts,
		"a container without its sandbox ends":           burstEndsStrays,
	} {
		t.Run(name, func(t *testing.T) {
			b := &burst{&world{t, server, server.Worker()}, sandbox.RandomIDs(sandbox.LedgerIDLength)}
			b.wantListed(0) // it creates the tables
			b.fault("")
			test(b)
		})
	}
}

// ask makes sandboxes act, and returns why some failed.
func (b *burst) ask(act, query string) (failed []string) {
	b.Helper()
	answer, err := http.Post(b.server.URL+"/burst/"+act+"?ledger="+b.ledger+"&"+query, "", nil)
	b.must(err)
	defer answer.Body.Close()
	b.must(json.NewDecoder(answer.Body).Decode(&failed))
	return failed
}

// fault changes D1 from now on; "" removes the change.
func (b *burst) fault(query string) { b.ask("fault", query) }

// try makes the sandboxes with numbers in [from, to) act.
func (b *burst) try(act string, from, to int) (failed []string) {
	b.Helper()
	return b.ask(act, fmt.Sprintf("from=%d&to=%d", from, to))
}

func (b *burst) do(act string, number int) {
	b.Helper()
	if failed := b.try(act, 0, number); len(failed) > 0 {
		b.Fatalf("%s of %d sandboxes: %d failed, such as %s", act, number, len(failed), failed[0])
	}
}

func (b *burst) wantListed(want int) {
	b.Helper()
	list, err := b.worker.List(b.Context(), b.server.Instance, b.ledger)
	b.must(err)
	for _, s := range list {
		if s.State != sandbox.StateRunning {
			b.Errorf("sandbox %s is listed as %s", s.SandboxID, s.State)
		}
	}
	if len(list) != want {
		b.Fatalf("%d sandboxes are listed, want %d", len(list), want)
	}
}

// awaitSettled waits until alarms have retried all failed writes.
func (b *burst) awaitSettled(number int) {
	b.Helper()
	testwait.NoError(b, patience, "all failed writes of sandboxes are retried", func() error {
		if failed := b.try("settled", 0, number); len(failed) > 0 {
			return errors.New(strings.Join(failed, "\n"))
		}
		return nil
	})
}

// burstIsFewCalls also counts rows, because shared calls must not write more rows.
func burstIsFewCalls(b *burst) {
	const number = 200
	for _, way := range []struct {
		fault        string
		starts, ends int // calls at most
	}{{"slow=50&alone=1", 2 * number, number}, {"slow=50", 40, 20}} {
		b := &burst{b.world, sandbox.RandomIDs(sandbox.LedgerIDLength)}
		b.fault(way.fault)
		for _, c := range []struct {
			act               string
			calls, rows, list int
		}{{"start", way.starts, 7 * number, number}, {"end", way.ends, 3 * number, 0}} {
			before, began := b.counts(), time.Now()
			b.do(c.act, number)
			got := b.counts().since(before)
			b.Logf("%s: %d sandboxes %s with %d calls and %d rows in %s", way.fault, number, c.act, got.Calls, got.D1,
				time.Since(began).Round(time.Millisecond))
			if got.D1 != c.rows || got.Calls > c.calls {
				b.Errorf("they wrote %d rows with %d calls, want %d with at most %d", got.D1, got.Calls, c.rows, c.calls)
			}
			b.wantListed(c.list)
		}
	}
}

func burstOutlivesFailures(b *burst) {
	const number = 20
	b.do("start", number)
	b.fault("slow=50&fail=1") // the first call fails, and is retried
	b.do("end", number/2)
	b.wantListed(number / 2)
	b.fault("slow=50&fail=1000")
	if failed := b.try("end", number/2, number); len(failed) != number/2 {
		b.Errorf("without D1 %d ends fail, want %d", len(failed), number/2)
	}
	b.fault("")
	b.wantListed(number / 2)
	b.awaitSettled(number)
	b.wantListed(0)
}

func burstWithRefusedWrite(b *burst) {
	const number = 20
	b.fault("slow=50")
	failed := b.ask("start", fmt.Sprintf("bad=1&from=0&to=%d", number))
	if len(failed) != 1 || !strings.Contains(failed[0], "bad: ") {
		b.Errorf("these failed: %v", failed)
	}
	b.wantListed(number)
}

// during runs act while D1 carries out nothing: the first sandbox makes the call, and the ends of two more wait.
func (b *burst) during(act func()) (failed []string) {
	b.Helper()
	b.do("start", 3)
	b.fault("slow=8000")
	ends := make(chan []string, 2)
	go func() { ends <- b.try("end", 0, 1) }()
	b.awaitWrites("1")
	go func() { ends <- b.try("end", 1, 3) }()
	b.awaitWrites("3")
	act()
	return append(<-ends, <-ends...)
}

// awaitWrites waits until this number of writes has arrived since the last change of D1.
func (b *burst) awaitWrites(number string) {
	b.Helper()
	testwait.Until(b, patience, number+" writes have come", func() bool { return b.ask("writes", "")[0] == number })
}

func burstWithoutItsCaller(b *burst) {
	failed := b.during(func() { b.try("abort", 0, 1) })
	if len(failed) != 1 || !strings.Contains(failed[0], "the test resets this object") {
		b.Errorf("these ends failed: %v", failed)
	}
	b.fault("")
	b.awaitSettled(3)
	b.wantListed(0)
}

func burstWithoutAWaiter(b *burst) {
	failed := b.during(func() { b.try("abort", 1, 2) })
	if len(failed) != 1 || !strings.Contains(failed[0], "the test resets this object") {
		b.Errorf("these ends failed: %v", failed)
	}
	b.fault("")
	b.awaitSettled(3)
	b.wantListed(0)
}

func burstKeepsTheNewest(b *burst) {
	b.do("start", 3)
	b.do("late", 3)
	b.wantListed(3)
}

// burstEndsTwice: a late write may have restored the row of a killed sandbox.
func burstEndsTwice(b *burst) {
	b.do("start", 1)
	b.do("end", 1)
	b.wantListed(0)
	b.do("restore", 1)
	b.wantListed(1)
	b.do("end", 1)
	b.wantListed(0)
}

func burstOfAnOlderWorker(b *burst) {
	b.do("start", 1)
	b.do("age", 1)
	b.try("abort", 0, 1)
	if failed := b.try("settled", 0, 1); len(failed) != 1 || !strings.Contains(failed[0], "older than its state") {
		b.Errorf("it has no pending write: %v", failed)
	}
	b.do("alarm", 1)
	b.do("settled", 1)
	b.do("end", 1)
	b.wantListed(0)
}

// burstUndoesStarts: D1 fails while a container starts, and after it has started.
func burstUndoesStarts(b *burst) {
	for _, slow := range []string{"0", "3000"} {
		spec := b.spec()
		b.fault("fail=1000&slow=" + slow)
		err := b.worker.Spawn(b.Context(), spec, cloudflare.Limits{})
		b.fault("")
		b.wantError(err, sandbox.Unavailable, "")
		b.wantPeriods(spec.Handle, cloudflare.CauseStartFailed)
		_, err = b.worker.Inspect(b.Context(), spec.Handle)
		b.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)

		b.must(b.worker.Spawn(b.Context(), spec, cloudflare.Limits{}))
		if got := b.sh(spec.Handle, "echo fine"); got != "fine\n" {
			b.Errorf("after a retry it says %q", got)
		}
		b.wantPeriods(spec.Handle, cloudflare.CauseStartFailed, "")
		b.must(b.worker.Kill(b.Context(), spec.Handle))
	}
}

func burstEndsStrays(b *burst) {
	h := b.spawn(cloudflare.Limits{})
	b.ledger = h.LedgerID
	for _, act := range []string{"drop", "alarm"} {
		if failed := b.ask(act, "id="+h.SandboxID); len(failed) > 0 {
			b.Fatalf("%s: %s", act, failed[0])
		}
	}
	b.wantPeriods(h, cloudflare.CauseStartFailed)
}
