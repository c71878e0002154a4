package chart

import (
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// MaxCommands, MaxCalls and MaxEvents limit what a Lifeline draws. The latest are drawn.
	MaxCommands = 200
	MaxCalls    = 200
	MaxEvents   = 300
	laneWidth   = 1000.0
	// leastSpan is the width of the shortest visible span.
	leastSpan = 3.0
)

// Lifeline is the life of a lease's current generation as lanes, each an SVG of 1000 by 16 units.
type Lifeline struct {
	From, To time.Time
	// Over means that the sandbox is gone. Otherwise To is now.
	Over  bool
	Lanes []Lane
}

// Lane is one row of a Lifeline. Text describes it in words.
type Lane struct {
	Name, Text string
	Spans      []LaneSpan
}

// LaneSpan is a part of a lane.
type LaneSpan struct {
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

// NewLifeline draws a life. All lists are latest first.
func NewLifeline(l sandbox.Lease, events []sandbox.Event, commands []sandbox.Exec, calls []sandbox.LLMCall,
	now time.Time) *Lifeline {
	v := &Lifeline{From: l.LeasedAt, To: now}
	if !l.DestroyedAt.IsZero() {
		v.To, v.Over = l.DestroyedAt, true
	}
	held := spell{l.LeasedAt, v.To, "held", "leased"}
	if !l.EndedAt.IsZero() {
		held.to = l.EndedAt
	}
	v.add("Lease", []spell{held}, "leased for "+format.Span(held.to.Sub(held.from)))

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
			sleeping = append(sleeping, spell{from, until, state.tone, state.name + " for " + format.Span(until.Sub(from))})
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
		o := format.Outcome(c)
		run := spell{c.StartedAt, c.FinishedAt, "ran", format.CommandLine(c.Command) + ": " + o.Text}
		switch {
		case o.Tone == "bad":
			run.tone = "failed"
			failed++
		case run.to.IsZero():
			run.to = v.To
		}
		runs = append(runs, run)
	}
	v.add("Commands", runs, format.Counted(len(runs), "command", MaxCommands)+alsoFailed(failed))

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
		v.add("Models", thoughts, format.Counted(len(thoughts), "call", MaxCalls))
	}
	return v
}

// add adds a lane.
func (v *Lifeline) add(name string, spells []spell, text string) {
	a := Lane{Name: name, Text: text}
	whole := max(v.To.Sub(v.From), time.Second)
	for _, s := range spells {
		x := laneWidth * float64(s.from.Sub(v.From)) / float64(whole)
		width := max(laneWidth*float64(s.to.Sub(s.from))/float64(whole), leastSpan)
		x = min(max(x, 0), laneWidth-leastSpan)
		a.Spans = append(a.Spans, LaneSpan{round(x), round(min(width, laneWidth-x)), s.tone, s.title})
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
		parts = append(parts, "awake for "+format.Span(awake))
	}
	if asleep > 0 {
		parts = append(parts, "asleep for "+format.Span(asleep))
	}
	return strings.Join(parts, ", ")
}

func alsoFailed(n int) string {
	if n == 0 {
		return ""
	}
	return ", " + format.Count(int64(n)) + " failed"
}
