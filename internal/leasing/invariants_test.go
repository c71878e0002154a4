package leasing_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// invariant is true for every picture, whatever happened before.
type invariant struct {
	says string
	// broken describes a violation, "" if there is none.
	broken func(p *picture, k *known) string
}

// known is what a test knows in addition to a picture.
type known struct {
	// before is the picture before the last step, nil at first.
	before *picture
	// live has the ids of the followed events.
	live []int64
	// sent has the sent conditions, by delivery.
	sent map[string]sandbox.Condition
	// outside has sandboxes that were created, removed or stopped from outside. The engine may not have seen that yet,
	// because the backend has not been well for long enough since.
	outside map[string]bool
	// commands are the detached commands whose start was acknowledged.
	commands []sandbox.ExecRef
}

// invariants hold after every step.
var invariants = []invariant{
	{"an active lease has a sandbox", activeHasSandbox},
	{"only what crashed is kept, and only while it exists", onlyCrashedIsKept},
	{"a pending lease has a spawn that is under way or due", pendingIsWorkedOn},
	{"a sandbox of ours has a row, and one that is confirmed gone is gone", sandboxHasRow},
	{"a backend's sandbox is of the generation that its row says", sandboxIsOfItsGeneration},
	{"a lease has one generation that is to live, its last", oneGenerationLives},
	{"a batch of all or none has no lease that lives once one could not begin", batchIsWhole},
	{"generations are numbered from 1 and never change hands", generationsAreFixed},
	{"what has ended stays as it ended", endedStaysEnded},
	{"what is gone never changes again", goneStaysGone},
	{"a lease is not renewed once it has expired", expiredIsNotRenewed},
	{"a condition ends no other generation, and none that began after it", conditionsEndOnlyWhatIsOlder},
	{"sequences have no gaps", sequencesHaveNoGaps},
	{"the events of a sandbox, replayed, are its row", replayIsTheRow},
	{"what was followed is what is stored", liveIsReplay},
	{"a lease's view says what its row says", viewIsTheRow},
	{"a sandbox stands where its row is", standsWhereItIs},
	{"an open usage period is of the state that its sandbox is in", openPeriodIsThePhase},
	{"usage periods of a sandbox do not overlap, nor exceed its life", periodsDoNotOverlap},
	{"gross cost is the sum of usage periods", costIsTheSumOfPeriods},
	{"an acknowledged command has a record", acknowledgedCommandHasRecord},
	{"no command runs whose sandbox is gone", noCommandRunsInWhatIsGone},
	{"a command begins once, ends at most once, and its record says so", commandIsItsEvents},
}

// converged holds once all faults have ended and all due work is done.
var converged = []invariant{
	{"no lease is pending or expired", nothingIsUnderWay},
	{"what exists is what is wanted", whatExistsIsWanted},
	{"nothing is claimed, held or waits for a retry", nothingIsLeftBehind},
	{"no orphan is found any more", noOrphanIsOpen},
	{"no command runs", noCommandRuns},
}

func activeHasSandbox(p *picture, k *known) string {
	for _, l := range p.leases {
		if _, ok := p.boxes[l.SandboxID]; l.Status == sandbox.LeaseActive && !ok && !k.outside[l.SandboxID] {
			return p.name(l.SandboxID)
		}
	}
	return ""
}

func onlyCrashedIsKept(p *picture, _ *known) string {
	for id, s := range p.rows {
		if s.Ending.KeptUntil != 0 && (s.Ending.By != sandbox.EndedByCrashed || s.Phase != sandbox.PhaseAsleep) {
			return fmt.Sprintf("%s is %s, ended by %q", p.name(id), s.Phase, s.Ending.By)
		}
	}
	return ""
}

// longestRetry is the longest wait of a failed step, including the claim of a dead process.
const longestRetry = 40 * time.Second

func pendingIsWorkedOn(p *picture, _ *known) string {
	for _, l := range p.leases {
		s := p.rows[l.SandboxID]
		if l.Status != sandbox.LeasePending {
			continue
		}
		if next := max(s.Schedule.DueAt, s.Claim.Until); next.Time().Sub(p.now) > longestRetry {
			return p.name(s.ID)
		}
	}
	return ""
}

func sandboxHasRow(p *picture, k *known) string {
	for id := range p.boxes {
		if s := p.rows[id]; !k.outside[id] && (s == nil || s.Phase == sandbox.PhaseGone) {
			return p.name(id)
		}
	}
	return ""
}

func sandboxIsOfItsGeneration(p *picture, k *known) string {
	for id, box := range p.boxes {
		s := p.rows[id]
		if s == nil || s.Origin.PooledAt != 0 || k.outside[id] {
			continue // the labels of a pooled sandbox name no lease
		}
		if box.LeaseID != s.Lease() || box.Generation != s.Generation || box.AgentDID != s.AgentDID {
			return fmt.Sprintf("%s is on its backend %s generation %d", p.name(id), box.LeaseID, box.Generation)
		}
	}
	return ""
}

func oneGenerationLives(p *picture, _ *known) string {
	current := make(map[string]string)
	for _, l := range p.leases {
		current[l.ID] = l.SandboxID
	}
	for id, rows := range p.generations() {
		last := rows[len(rows)-1]
		if current[id] != last.ID {
			return fmt.Sprintf("%s is shown in another generation than its last, %d", id, last.Generation)
		}
		for _, s := range rows[:len(rows)-1] {
			if s.Desired == ledger.Present {
				return p.name(s.ID) + " is not the last and is to live"
			}
		}
	}
	return ""
}

func generationsAreFixed(p *picture, k *known) string {
	for id, rows := range p.generations() {
		for i, s := range rows {
			if s.Generation != int64(i+1) {
				return fmt.Sprintf("%s has generation %d in place %d", id, s.Generation, i+1)
			}
		}
	}
	if k.before == nil {
		return ""
	}
	for id, was := range k.before.rows {
		s := p.rows[id]
		if s == nil {
			return k.before.name(id) + " has no row any more"
		}
		if was.LeaseID != nil &&
			(s.Lease() != was.Lease() || s.Generation != was.Generation || s.AgentDID != was.AgentDID || s.Owner != was.Owner) {
			return k.before.name(id) + " became " + p.name(id)
		}
	}
	return ""
}

func endedStaysEnded(p *picture, k *known) string {
	if k.before == nil {
		return ""
	}
	stepped, err := p.steppedSince(k.before)
	if err != nil {
		return err.Error()
	}
	for id, was := range k.before.rows {
		s := p.rows[id]
		if was.Desired != ledger.Gone {
			continue
		}
		// A step of the clock moves the end of a lease whose sandbox is still being removed.
		moved := was.Phase != sandbox.PhaseGone && s.Ending.At == was.Ending.At.Add(micro.SpanOf(stepped))
		if s.Desired != ledger.Gone || s.Ending.By != was.Ending.By || s.Ending.Reason != was.Ending.Reason ||
			s.Ending.At != was.Ending.At && !moved {
			return fmt.Sprintf("%s ended by %s at %s, and now by %q at %s",
				p.name(id), was.Ending.By, was.Ending.At.Time(), s.Ending.By, s.Ending.At.Time())
		}
	}
	return ""
}

func goneStaysGone(p *picture, k *known) string {
	if k.before == nil {
		return ""
	}
	for id, was := range k.before.rows {
		if was.Phase != sandbox.PhaseGone {
			continue
		}
		is := *p.rows[id]
		// A command that the end of the lease interrupted may be known to be over only afterwards.
		is.LastSequence, is.ObservedAt, is.Schedule.DueAt = was.LastSequence, was.ObservedAt, was.Schedule.DueAt
		if !reflect.DeepEqual(*was, is) {
			return p.name(id)
		}
	}
	return ""
}

func expiredIsNotRenewed(p *picture, k *known) string {
	if k.before == nil {
		return ""
	}
	for _, was := range k.before.leases {
		if was.Status != sandbox.LeaseExpired && was.Status != sandbox.LeaseDestroyed {
			continue
		}
		for _, l := range p.leases {
			if l.SandboxID == was.SandboxID && (l.Status == sandbox.LeasePending || l.Status == sandbox.LeaseActive) {
				return fmt.Sprintf("%s was %s and is %s", p.name(l.SandboxID), was.Status, l.Status)
			}
		}
	}
	return ""
}

func conditionsEndOnlyWhatIsOlder(p *picture, k *known) string {
	began := make(map[string]sandbox.Event)
	for _, e := range p.events {
		if e.Type == sandbox.EventAccepted {
			began[e.SandboxID] = e // for a sandbox from a pool, the second event counts
		}
		if e.Type != sandbox.EventConditionApplied {
			continue
		}
		var data struct {
			Delivery string `json:"delivery"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return err.Error()
		}
		c := k.sent[data.Delivery]
		switch age := began[e.SandboxID].At.Sub(c.Timestamp); {
		case c.Data.Generation != 0 && c.Data.Generation != e.Generation:
			return fmt.Sprintf("%s was ended by %s of generation %d", p.name(e.SandboxID), c.Type, c.Data.Generation)
		case c.Data.Generation == 0 && age >= 0 && !p.steppedAfter(began[e.SandboxID].ID):
			return fmt.Sprintf("%s was ended by %s of %s before it began", p.name(e.SandboxID), c.Type, age)
		}
	}
	return ""
}

func sequencesHaveNoGaps(p *picture, _ *known) string {
	for id, events := range p.eventsOf() {
		for i, e := range events {
			if e.Sequence != int64(i+1) {
				return fmt.Sprintf("%s: event %d has sequence %d", p.name(id), i+1, e.Sequence)
			}
		}
		if last := p.rows[id].LastSequence; last != int64(len(events)) {
			return fmt.Sprintf("%s has %d events and says %d", p.name(id), len(events), last)
		}
	}
	return ""
}

// tale is what a sandbox's events say about it.
type tale struct {
	lease      string
	generation int64
	phase      sandbox.Phase
	ended      sandbox.EndedBy
	stands     sandbox.SandboxState
}

// replay derives a sandbox's tale from its events alone.
func replay(events []sandbox.Event) (s tale, err error) {
	for _, e := range events {
		s.lease, s.generation = e.LeaseID, e.Generation
		s.stands = s.stands.After(e.Type)
		was := s.phase
		switch e.Type {
		case sandbox.EventAccepted:
			s.phase = sandbox.PhasePending
		case sandbox.EventReady, sandbox.EventAwake:
			s.phase = sandbox.PhaseAwake
		case sandbox.EventAsleep, sandbox.EventStopped:
			s.phase = sandbox.PhaseAsleep
		case sandbox.EventDeleted:
			s.phase = sandbox.PhaseGone
		case sandbox.EventEnded:
			var data struct {
				EndedBy sandbox.EndedBy `json:"ended_by"`
			}
			if s.ended != "" {
				return s, fmt.Errorf("it ended twice, by %s first", s.ended)
			}
			err = json.Unmarshal(e.Data, &data)
			s.ended = data.EndedBy
		}
		switch {
		case err != nil:
			return s, err
		case was == sandbox.PhaseGone && (s.phase != was || e.Type == sandbox.EventDeleted):
			return s, fmt.Errorf("it was destroyed, and then %s", e.Type)
		}
	}
	return s, nil
}

func replayIsTheRow(p *picture, _ *known) string {
	for id, events := range p.eventsOf() {
		told, err := replay(events)
		if err != nil {
			return p.name(id) + ": " + err.Error()
		}
		row := p.rows[id]
		if is := (tale{row.Lease(), row.Generation, row.Phase, row.Ending.By, row.Status.State}); told != is {
			return fmt.Sprintf("%s: its events tell %+v, its row %+v", p.name(id), told, is)
		}
	}
	return ""
}

func liveIsReplay(p *picture, k *known) string {
	stored := make([]int64, len(p.events))
	for i, e := range p.events {
		stored[i] = e.ID
	}
	if !slices.Equal(stored, k.live) {
		return fmt.Sprintf("%v are stored and %v were followed", stored, k.live)
	}
	return ""
}

func viewIsTheRow(p *picture, _ *known) string {
	for _, l := range p.leases {
		s := p.rows[l.SandboxID]
		want := sandbox.LeaseActive
		switch {
		case s.Phase == sandbox.PhaseGone:
			want = sandbox.LeaseDestroyed
		case s.Desired == ledger.Gone || p.held[s.ID].Time().Before(p.now) && !l.ExpiresAt.After(p.now):
			want = sandbox.LeaseExpired
		case s.Phase == sandbox.PhasePending:
			want = sandbox.LeasePending
		}
		if l.Status != want || l.Phase != s.Phase || l.Generation != s.Generation || l.LastSequence != s.LastSequence {
			return fmt.Sprintf("%s is shown %s and %s, and is %s and %s", p.name(s.ID), l.Status, l.Phase, want, s.Phase)
		}
		if s.Desired == ledger.Gone && (l.EndedBy != s.Ending.By || l.EndedAt != s.Ending.At.Time()) {
			return fmt.Sprintf("%s is shown ended by %q, and ended by %s", p.name(s.ID), l.EndedBy, s.Ending.By)
		}
	}
	return ""
}

func batchIsWhole(p *picture, _ *known) string {
	lives, failed, last := make(map[string]string), make(map[string]string), make(map[string]int64)
	for _, s := range p.rows {
		last[s.BatchID+s.Lease()] = max(last[s.BatchID+s.Lease()], s.Generation)
	}
	for id, s := range p.rows {
		switch isLast := s.Generation == last[s.BatchID+s.Lease()]; {
		case s.BatchID == "":
		case s.Desired == ledger.Present && s.Phase == sandbox.PhasePending && s.Schedule.Attempts > 0,
			s.ReadyAt == 0 && s.Ending.By == sandbox.EndedByFailed && isLast:
			failed[s.BatchID] = p.name(id)
		case s.Desired == ledger.Present:
			lives[s.BatchID] = p.name(id)
		}
	}
	for batch, one := range failed {
		if other, ok := lives[batch]; ok {
			return fmt.Sprintf("%s could not begin, and %s of its batch lives", one, other)
		}
	}
	return ""
}

func standsWhereItIs(p *picture, _ *known) string {
	for id, s := range p.rows {
		want := map[sandbox.Phase]sandbox.SandboxState{
			sandbox.PhasePending: sandbox.SandboxPending,
			sandbox.PhaseAwake:   sandbox.SandboxReady,
			sandbox.PhaseAsleep:  sandbox.SandboxAsleep,
			sandbox.PhaseGone:    sandbox.SandboxDeleted,
		}[s.Phase]
		switch {
		case s.Phase == sandbox.PhaseGone:
		case s.Ending.KeptUntil != 0:
			want = sandbox.SandboxFailed
		case s.Desired == ledger.Gone:
			want = sandbox.SandboxDeleting
		case s.Status.StopReason == sandbox.StopCrashed && s.Phase == sandbox.PhaseAsleep,
			s.Phase == sandbox.PhaseAsleep && s.SleepMode == sandbox.SleepStop && s.Status.StopReason != sandbox.StopOutside:
			want = sandbox.SandboxStopped
		}
		failed := s.Ending.By != "" && !s.Ending.By.EndedByRules()
		if s.Status.State != want || failed && s.Status.ErrorCode == "" ||
			s.Phase == sandbox.PhaseAsleep && s.Status.StopReason == "" {
			return fmt.Sprintf("%s is %s and wanted %s, and stands %s (%q, %q)",
				p.name(id), s.Phase, s.Desired, s.Status.State, s.Status.ErrorCode, s.Status.StopReason)
		}
	}
	return ""
}

func openPeriodIsThePhase(p *picture, _ *known) string {
	for id, s := range p.rows {
		var open []sandbox.Phase
		for _, u := range p.periods[id] {
			if u.EndedAt == 0 {
				open = append(open, u.State)
			}
		}
		billed := s.Phase == sandbox.PhaseAwake || s.Phase == sandbox.PhaseAsleep
		var want []sandbox.Phase
		switch {
		case billed && s.Ending.By == sandbox.EndedByVanished:
			// Its usage ended when it was last there. Only its remains must still be removed.
		case s.Desired == ledger.Gone && p.boxes[id].State == "" && len(open) == 0:
			// A failed removal found it gone. Only its remains must still be removed.
		case s.Desired == ledger.Gone && s.Phase == sandbox.PhaseAwake &&
			p.boxes[id].State != sandbox.StateRunning && len(open) == 1:
			// Billing as stopped begins when a failed removal finds the sandbox stopped.
			want = open
		case billed:
			want = []sandbox.Phase{s.Phase}
		case s.Phase == sandbox.PhasePending && len(s.PostStart) > 0 && len(open) == 1:
			// Its commands run before it is ready.
			if want = open; p.boxes[id].State == sandbox.StateRunning {
				want = []sandbox.Phase{sandbox.PhaseAwake}
			}
		}
		if !slices.Equal(open, want) {
			return fmt.Sprintf("%s is %s, ended by %q, and is counted %v", p.name(id), s.Phase, s.Ending.By, open)
		}
	}
	return ""
}

func periodsDoNotOverlap(p *picture, _ *known) string {
	stepped := p.steppedAfter(0)
	for id, periods := range p.periods {
		var used time.Duration
		var last micro.Time
		for _, u := range periods {
			end := u.EndedAt
			if end == 0 {
				end = micro.At(p.now)
			}
			if end < u.StartedAt || !stepped && u.StartedAt < last {
				return fmt.Sprintf("%s: a period begins before the one before it has ended", p.name(id))
			}
			last = end
			used += end.Time().Sub(u.StartedAt.Time())
		}
		begun := p.rows[id].LeasedAt
		if pooled := p.rows[id].Origin.PooledAt; pooled != 0 {
			begun = pooled
		}
		if p.rows[id].Phase != sandbox.PhaseGone && used > p.now.Sub(begun.Time()) {
			return fmt.Sprintf("%s is %s old and was used for %s", p.name(id), p.now.Sub(begun.Time()), used)
		}
	}
	return ""
}

func costIsTheSumOfPeriods(p *picture, _ *known) string {
	var want, rows sandbox.CostRow
	adder := &bill{now: p.now, books: p.books}
	for _, periods := range p.periods {
		for i := range periods {
			adder.addUp(&want, &periods[i], sandbox.CostQuery{})
		}
	}
	for _, r := range p.costs.Rows {
		rows.Gross += r.Gross
	}
	for what, got := range map[string]sandbox.NanoUSD{
		"the total":             p.costs.Total.Gross,
		"the sum of all leases": rows.Gross,
		"the sum of all days":   p.byDay.Total.Gross,
	} {
		if got != want.Gross {
			return fmt.Sprintf("%s is $%s, and the periods cost $%s", what, got, want.Gross)
		}
	}
	return ""
}

func nothingIsUnderWay(p *picture, _ *known) string {
	for _, s := range p.rows {
		if s.Desired == ledger.Gone && s.Phase != sandbox.PhaseGone || s.Phase == sandbox.PhasePending {
			return fmt.Sprintf("%s is wanted %s and is %s: %s", p.name(s.ID), s.Desired, s.Phase, s.Schedule.LastError)
		}
	}
	return ""
}

func whatExistsIsWanted(p *picture, _ *known) string {
	wanted := make(map[string]bool)
	for id, s := range p.rows {
		if s.Phase != sandbox.PhaseGone {
			wanted[id] = true
		}
	}
	for id := range wanted {
		if _, ok := p.boxes[id]; !ok {
			return p.name(id) + " does not exist"
		}
	}
	for id := range p.boxes {
		if !wanted[id] {
			return p.name(id) + " exists"
		}
	}
	return ""
}

func nothingIsLeftBehind(p *picture, _ *known) string {
	for id, s := range p.rows {
		if s.Schedule.Attempts != 0 || s.Claim.Until.Time().After(p.now) { // the name of an expired claim means nothing
			return fmt.Sprintf("%s is claimed for %q after %d failures: %s",
				p.name(id), s.Claim.For, s.Schedule.Attempts, s.Schedule.LastError)
		}
		if p.held[id].Time().After(p.now) {
			return p.name(id) + " is held"
		}
	}
	return ""
}

func noOrphanIsOpen(p *picture, _ *known) string {
	for _, f := range p.drift {
		if f.Kind == sandbox.DriftOrphan || f.Kind == sandbox.DriftLeftover {
			return fmt.Sprintf("%s %s of %s", f.Kind, f.Field, p.name(f.SandboxID))
		}
	}
	return ""
}

func acknowledgedCommandHasRecord(p *picture, k *known) string {
	for i, r := range k.commands {
		if p.execs[r.ID].LeaseID != r.LeaseID {
			return fmt.Sprintf("command %d of %s", i, r.LeaseID)
		}
	}
	return ""
}

func commandIsItsEvents(p *picture, _ *known) string {
	told := make(map[string][]sandbox.ExecState)
	for _, e := range p.events {
		state, ok := map[sandbox.EventType]sandbox.ExecState{
			sandbox.EventExecStarted:   sandbox.ExecRunning,
			sandbox.EventExecFinished:  sandbox.ExecFinished,
			sandbox.EventExecFailed:    sandbox.ExecFailed,
			sandbox.EventExecCancelled: sandbox.ExecCancelled,
		}[e.Type]
		if !ok {
			continue
		}
		var data struct {
			ExecID string `json:"exec_id"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return err.Error()
		}
		told[data.ExecID] = append(told[data.ExecID], state)
	}
	if len(told) != len(p.execs) {
		return fmt.Sprintf("%d commands have events and %d have records", len(told), len(p.execs))
	}
	for id, states := range told {
		x := p.execs[id]
		want := []sandbox.ExecState{sandbox.ExecRunning}
		if x.State != sandbox.ExecRunning {
			want = append(want, x.State)
		}
		if !slices.Equal(states, want) {
			return fmt.Sprintf("a command of %s is %s, and its events tell %v", p.name(x.SandboxID), x.State, states)
		}
	}
	return ""
}

func noCommandRunsInWhatIsGone(p *picture, _ *known) string {
	for _, x := range p.execs {
		if s := p.rows[x.SandboxID]; x.State == sandbox.ExecRunning && s.Phase == sandbox.PhaseGone {
			return "a command of " + p.name(s.ID)
		}
	}
	return ""
}

func noCommandRuns(p *picture, _ *known) string {
	for _, x := range p.execs {
		if x.State == sandbox.ExecRunning {
			return fmt.Sprintf("a command of %s, whose sandbox is %s", p.name(x.SandboxID), p.rows[x.SandboxID].Phase)
		}
	}
	return ""
}

// sorted returns a set's members in order, so that a repeated history draws the same ones.
func sorted[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
