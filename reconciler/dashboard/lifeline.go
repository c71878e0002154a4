package dashboard

import (
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// drawnCommands, drawnCalls and drawnEvents limit what a lifeline draws. The latest are drawn.
	drawnCommands = 200
	drawnCalls    = 200
	drawnEvents   = 300
	laneWidth     = 1000.0
	// leastSpan is the width of the shortest visible span.
	leastSpan = 3.0
)

// lifeline is the life of a lease's current generation as lanes, each an SVG of 1000 by 16 units.
type lifeline struct {
	From, To time.Time
	// Over means that the sandbox is gone. Otherwise To is now.
	Over  bool
	Lanes []lane
}

// lane is one row of a lifeline. Text says in words what it shows.
type lane struct {
	Name, Text string
	Spans      []laneSpan
}

// laneSpan is a part of a lane.
type laneSpan struct {
	X, Width float64
	Tone     string // a class of the style sheet
	Title    string
}

// spell is a time in one state.
type spell struct {
	from, to    time.Time
	tone, title string
}

// states are the tones of a sandbox after its events.
var states = map[sandbox.EventType]struct{ tone, name string }{
	sandbox.EventAccepted: {"starting", "starting"}, sandbox.EventPreparing: {"starting", "starting"},
	sandbox.EventAdopted: {"awake", "awake"}, sandbox.EventReady: {"awake", "awake"},
	sandbox.EventAwake:  {"awake", "awake"},
	sandbox.EventAsleep: {"asleep", "asleep"}, sandbox.EventStopped: {"asleep", "stopped"},
	sandbox.EventFailed: {"failed", "failed"}, sandbox.EventDeleteRequested: {"starting", "ending"},
	sandbox.EventDeleted: {"", "gone"},
}

// life returns the lifeline of a lease. commands are its latest ones, latest first.
func (p *page) life(l sandbox.Lease, commands []sandbox.Exec) (*lifeline, error) {
	events, err := p.service.ListEvents(p.ctx, sandbox.EventFilter{
		LeaseID: l.ID, SandboxID: l.SandboxID, Type: "sandbox.*", Latest: true, Limit: drawnEvents,
	})
	if code := sandbox.CodeOf(err); code == sandbox.NotFound || code == sandbox.EventSequenceExpired {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var calls []sandbox.LLMCall
	if l.LLM.Calls > 0 && p.may("list-llm-calls") {
		calls, err = p.service.ListLLMCalls(p.ctx,
			sandbox.LLMCallQuery{EnvironmentID: l.EnvironmentID, LeaseID: l.ID, Limit: drawnCalls})
		if err != nil {
			return nil, err
		}
	}
	return newLifeline(l, events, commands, calls, p.now()), nil
}

// newLifeline draws a life. All lists are latest first.
func newLifeline(l sandbox.Lease, events []sandbox.Event, commands []sandbox.Exec, calls []sandbox.LLMCall,
	now time.Time) *lifeline {
	v := &lifeline{From: l.LeasedAt, To: now}
	if !l.DestroyedAt.IsZero() {
		v.To, v.Over = l.DestroyedAt, true
	}
	held := spell{l.LeasedAt, v.To, "held", "leased"}
	if !l.EndedAt.IsZero() {
		held.to = l.EndedAt
	}
	v.add("Lease", []spell{held}, "leased for "+span(held.to.Sub(held.from)))

	var sleeping []spell
	until := v.To
	for _, e := range events {
		state, known := states[e.Type]
		if !known {
			continue
		}
		from := e.At
		if from.Before(v.From) { // it waited in a warm pool
			from = v.From
		}
		if state.tone != "" && until.After(from) {
			sleeping = append(sleeping, spell{from, until, state.tone, state.name + " for " + span(until.Sub(from))})
		}
		until = from
	}
	v.add("Sandbox", sleeping, total(sleeping))

	var runs []spell
	failed := 0
	for _, c := range commands {
		if c.Generation != l.Generation {
			continue
		}
		o := outcomeOf(c)
		run := spell{c.StartedAt, c.FinishedAt, "ran", commandLine(c.Command) + ": " + o.Text}
		switch {
		case o.Tone == "bad":
			run.tone = "failed"
			failed++
		case run.to.IsZero():
			run.to = v.To
		}
		runs = append(runs, run)
	}
	v.add("Commands", runs, counted(len(runs), "command", drawnCommands)+alsoFailed(failed))

	var thoughts []spell
	for _, c := range calls {
		if c.Generation != l.Generation {
			continue
		}
		call := spell{c.StartedAt, c.EndedAt, "call", c.Model + ": " + string(c.Outcome)}
		if call.to.IsZero() {
			call.to = v.To
		}
		thoughts = append(thoughts, call)
	}
	if len(thoughts) > 0 {
		v.add("Models", thoughts, counted(len(thoughts), "call", drawnCalls))
	}
	return v
}

// add adds a lane.
func (v *lifeline) add(name string, spells []spell, text string) {
	a := lane{Name: name, Text: text}
	whole := max(v.To.Sub(v.From), time.Second)
	for _, s := range spells {
		x := laneWidth * float64(s.from.Sub(v.From)) / float64(whole)
		width := max(laneWidth*float64(s.to.Sub(s.from))/float64(whole), leastSpan)
		x = min(max(x, 0), laneWidth-leastSpan)
		a.Spans = append(a.Spans, laneSpan{round(x), round(min(width, laneWidth-x)), s.tone, s.title})
	}
	v.Lanes = append(v.Lanes, a)
}

// total says how long a sandbox was awake and asleep.
func total(spells []spell) string {
	var awake, asleep time.Duration
	for _, s := range spells {
		switch s.tone {
		case "awake":
			awake += s.to.Sub(s.from)
		case "asleep":
			asleep += s.to.Sub(s.from)
		}
	}
	var parts []string
	if awake > 0 {
		parts = append(parts, "awake for "+span(awake))
	}
	if asleep > 0 {
		parts = append(parts, "asleep for "+span(asleep))
	}
	return strings.Join(parts, ", ")
}

// counted says how many there are of something, of which at most a number is drawn.
func counted(n int, what string, most int) string {
	switch n {
	case 0:
		return "no " + what + "s"
	case 1:
		return "1 " + what
	case most:
		return "the latest " + count(int64(n)) + " " + what + "s"
	default:
		return count(int64(n)) + " " + what + "s"
	}
}

func alsoFailed(n int) string {
	if n == 0 {
		return ""
	}
	return ", " + count(int64(n)) + " failed"
}
