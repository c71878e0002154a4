package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/segments"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/wholefile"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// totals are the use of calls, by month or sandbox, and then by route.
type totals map[string]map[string]Used

func (t totals) add(key, route string, u Used) {
	if t[key] == nil {
		t[key] = make(map[string]Used)
	}
	t[key][route] = t[key][route].plus(u)
}

// sums are the state of a book at a position in its journal.
type sums struct {
	Position  segments.Position `json:"position"`
	Months    totals            `json:"months"`
	Sandboxes totals            `json:"sandboxes"`
	// Running are the running calls, by id.
	Running map[string]line `json:"running"`
}

// sumsFile stores the sums in the journal's directory. Later lines of the journal complete them.
const sumsFile = "sums.json"

// book keeps the journal and the sums of all calls. It admits calls within the limits.
type book struct {
	now       func() time.Time
	maxUnread int64

	mu      sync.Mutex // guards what follows
	budget  budget
	journal *journal
	sums    sums
	// unwritten are lines of ended calls that could not be written. Their calls still count as running.
	unwritten []line
	closed    bool
	stored    segments.Position // position of the stored sums

	storing sync.Mutex // guards the sums file; locked before mu
}

// budget limits the cost of all calls since the beginning of a month.
type budget struct {
	month string
	most  *sandbox.NanoUSD
}

func monthOf(t time.Time) string { return t.UTC().Format(monthForm) }

// used returns the use that a call counts as. While its usage is unknown, these are its reserved tokens.
func (l line) used() Used {
	return Used{USD: l.Cost, Requests: 1, Tokens: max(l.Tokens.Total(), l.Reserved)}
}

// openBook reads the journal in a directory. It ends calls that a killed gateway left running.
func openBook(o Options) (*book, error) {
	dir, now := o.Dir, o.Now
	b := &book{
		now: now, maxUnread: o.MaxUnread,
		sums: sums{Months: totals{}, Sandboxes: totals{}, Running: map[string]line{}},
	}
	text, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err == nil {
		err = json.Unmarshal(text, &b.sums)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the sums of LLM calls, %s: %w", filepath.Join(dir, sumsFile), err)
	}
	if b.journal, err = openJournal(dir, o.SegmentBytes, now(), b.sums.Position); err != nil {
		return nil, err
	}
	err = segments.ReadAll(b.journal.segments, b.sums.Position, decoded(func(at segments.Position, l line) {
		b.sums.Position = at
		if l.Outcome == sandbox.LLMRunning {
			b.sums.Running[l.ID] = l
		} else {
			b.settle(l)
		}
	}))
	if err != nil {
		err = fmt.Errorf("read the LLM journal: %w", err)
	}
	for _, l := range b.sums.Running {
		if err == nil {
			l.Outcome, l.EndedAt, l.Unknown = sandbox.LLMInterrupted, now().UTC(), true
			if _, err = b.journal.append(l); err == nil {
				b.settle(l)
			}
		}
	}
	// The sums only shorten the next start. So a gateway starts on a full disk: others need it to remove sandboxes.
	if err == nil {
		_ = b.store()
	}
	if err != nil {
		return nil, errors.Join(err, b.journal.close())
	}
	return b, nil
}

// settle adds an ended call to the sums.
func (b *book) settle(l line) {
	delete(b.sums.Running, l.ID)
	b.sums.Months.add(monthOf(l.StartedAt), l.Route, l.used())
	b.sums.Sandboxes.add(l.SandboxID, l.Route, l.used())
}

// store writes the sums.
func (b *book) store() error {
	b.storing.Lock()
	defer b.storing.Unlock()
	b.mu.Lock()
	b.sums.Position = b.journal.position()
	at := b.sums.Position
	text, err := json.Marshal(b.sums)
	dir := b.journal.dir
	b.mu.Unlock()
	if err == nil {
		err = wholefile.WriteDurable(filepath.Join(dir, sumsFile), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("store the sums of LLM calls: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored = at
	return nil
}

// configure sets the budget. It raises the sums of a month to those in the ledger.
func (b *book) configure(c Config) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.budget = budget{c.Month, c.Cap}
	for route, recorded := range c.Recorded {
		var running Used // the ledger may count them with their reservations
		for _, l := range b.sums.Running {
			if l.Route == route && monthOf(l.StartedAt) == c.Month {
				running = running.plus(l.used())
			}
		}
		own := b.sums.Months[c.Month][route].plus(running)
		b.sums.Months.add(c.Month, route, Used{
			max(recorded.USD-own.USD, 0), max(recorded.Requests-own.Requests, 0), max(recorded.Tokens-own.Tokens, 0),
		})
	}
	previous := monthOf(b.now().UTC().AddDate(0, 0, -35)) // its calls may still run
	for month := range b.sums.Months {
		if month < previous && (c.Month == "" || month < c.Month) {
			delete(b.sums.Months, month)
		}
	}
}

// admit reserves the most that a call can use, and records its beginning. It returns the number of the line in the
// journal.
func (b *book) admit(l line, r Route) (int64, *refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, refuse(http.StatusServiceUnavailable, codeNotConfigured, "the gateway is shutting down: try again later")
	}
	if err := b.flush(); err != nil {
		return 0, journalFailed()
	}
	if n := b.journal.unread(); n > b.maxUnread {
		return 0, refuse(http.StatusServiceUnavailable, codeJournalFull, "the journal of LLM calls is full, because the "+
			"service has not read it: %d MiB wait. Start the service that manages this environment", n>>20)
	}
	if bad := b.check(l, r); bad != nil {
		return 0, bad
	}
	at, err := b.journal.append(l)
	if err != nil {
		return 0, journalFailed()
	}
	b.sums.Running[l.ID] = l
	return at, nil
}

// journalFailed hides the error from the sandbox, because the error names paths of the gateway.
func journalFailed() *refusal {
	return refuse(http.StatusServiceUnavailable, codeJournalFailed,
		"the call cannot be recorded, so it was not sent: the gateway's disk may be full")
}

// limit is a limit with the use that counts for it.
type limit struct {
	name           string // such as lease_limits
	scope          string // such as "the lease"
	most           sandbox.LLMLimits
	used, reserved Used
}

// check refuses a call once a limit is reached. The call that reaches a limit may exceed it, so that a limit never
// refuses the first call.
func (b *book) check(l line, r Route) *refusal {
	month := monthOf(l.StartedAt)
	lease := limit{"lease_limits", "the lease", r.LeaseLimits, b.sums.Sandboxes[l.SandboxID][l.Route], Used{}}
	monthly := limit{"monthly_limits", "the environment", r.MonthlyLimits, b.sums.Months[month][l.Route], Used{}}
	var all Used
	for _, other := range b.sums.Running {
		all = all.plus(other.used())
		if other.Route != l.Route {
			continue
		}
		if other.SandboxID == l.SandboxID {
			lease.reserved = lease.reserved.plus(other.used())
		}
		if monthOf(other.StartedAt) == month {
			monthly.reserved = monthly.reserved.plus(other.used())
		}
	}
	reserved := b.checkBudget(month, all.USD)
	if reserved != nil && reserved.code == codeBudget {
		return reserved
	}
	for _, limit := range []limit{lease, monthly} {
		switch bad := limit.check(l.Route); {
		case bad != nil && bad.code == codeLimit:
			return bad
		case bad != nil:
			reserved = bad
		}
	}
	return reserved
}

func (b *book) checkBudget(month string, reserved sandbox.NanoUSD) *refusal {
	if b.budget.most == nil {
		return nil
	}
	var used sandbox.NanoUSD
	for m, routes := range b.sums.Months {
		if m < min(b.budget.month, month) {
			continue
		}
		for _, u := range routes {
			used += u.USD
		}
	}
	switch most := *b.budget.most; {
	case used >= most:
		return refuse(http.StatusForbidden, codeBudget, "all LLM calls of the environment together have used $%s of the "+
			"month's budget of $%s: raise the budget, or wait for the next month", used, most)
	case used+reserved >= most:
		return refuse(http.StatusTooManyRequests, codeReserved, "running calls reserve the rest of the month's budget of "+
			"$%s: try again when they have ended", most).again()
	}
	return nil
}

func (m limit) check(route string) *refusal {
	for _, v := range []struct {
		name                 string
		most, used, reserved int64
		text                 func(int64) string
	}{
		{"usd", int64(m.most.USD), int64(m.used.USD), int64(m.reserved.USD),
			func(n int64) string { return "$" + sandbox.NanoUSD(n).String() }},
		{"requests", m.most.Requests, m.used.Requests, m.reserved.Requests,
			func(n int64) string { return fmt.Sprintf("%d requests", n) }},
		{"tokens", m.most.Tokens, m.used.Tokens, m.reserved.Tokens,
			func(n int64) string { return fmt.Sprintf("%d tokens", n) }},
	} {
		switch {
		case v.most == 0:
		case v.used >= v.most:
			return refuse(http.StatusForbidden, codeLimit, "%s has used %s on route %s and reached %s.%s, which is %s",
				m.scope, v.text(v.used), route, m.name, v.name, v.text(v.most))
		case v.used+v.reserved >= v.most:
			return refuse(http.StatusTooManyRequests, codeReserved, "running calls on route %s reserve the rest of %s.%s, "+
				"which is %s: try again when they have ended", route, m.name, v.name, v.text(v.most)).again()
		}
	}
	return nil
}

// end records the end of a call. If the line cannot be written, the call counts as running until it can.
func (b *book) end(l line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unwritten = append(b.unwritten, l)
	_ = b.flush() // flush is retried before the next call
}

// flush writes the lines whose write has failed.
func (b *book) flush() error {
	for len(b.unwritten) > 0 {
		l := b.unwritten[0]
		if _, err := b.journal.append(l); err != nil {
			return err
		}
		b.settle(l)
		b.unwritten = b.unwritten[1:]
	}
	return nil
}

// sync returns once a line of this run is on disk.
func (b *book) sync(at int64) error {
	return b.journal.sync(at, func() (*os.File, int64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.journal.file, b.journal.line
	})
}

// calls returns the oldest lines after a position. It removes lines up to that position, which are recorded elsewhere.
func (b *book) calls(after segments.Position) ([]Entry, error) {
	b.mu.Lock()
	_ = b.flush() // flush is retried before the next call
	old := b.journal.confirm(after)
	b.mu.Unlock()
	if old {
		if err := b.store(); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	var err error
	if old {
		err = b.journal.prune(b.stored)
	}
	all := slices.Clone(b.journal.segments)
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var found []Entry
	err = segments.ReadPage(all, after, decoded(func(at segments.Position, l line) {
		found = append(found, Entry{at, l.LLMCall})
	}))
	if err != nil {
		return nil, fmt.Errorf("read the LLM journal: %w", err)
	}
	return found, nil
}

// forget drops the sums of a removed sandbox.
func (b *book) forget(id string) error {
	b.mu.Lock()
	_, ok := b.sums.Sandboxes[id]
	delete(b.sums.Sandboxes, id)
	b.mu.Unlock()
	if !ok {
		return nil
	}
	return b.store()
}

func (b *book) status() (running int, unread int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sums.Running), b.journal.unread()
}

func (b *book) close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	err := b.flush()
	b.mu.Unlock()
	err = errors.Join(err, b.store())
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(err, b.journal.close())
}
