package dashboard

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// sessionsPerPage is how many sessions of a lease a page lists.
const sessionsPerPage = 100

// sessionsPage lists the sessions of a lease.
type sessionsPage struct {
	leaseHead
	Sessions []sandbox.Session
	// More means that there are more sessions.
	More bool
}

// sessions lists the sessions of a lease in all generations, latest first.
func sessions(p *page) error {
	h, err := p.leaseHead("sessions")
	if err != nil {
		return err
	}
	v := sessionsPage{leaseHead: h}
	v.Sessions, err = p.service.ListSessions(p.ctx, sandbox.SessionFilter{LeaseID: h.ID, Limit: sessionsPerPage + 1})
	if err != nil {
		return err
	}
	if v.More = len(v.Sessions) > sessionsPerPage; v.More {
		v.Sessions = v.Sessions[:sessionsPerPage]
	}
	return p.showLease("sessions", "Sessions of "+h.AgentDID, h.Lease, v)
}

// sessionPage is the recording of one session.
type sessionPage struct {
	sandbox.Session
	Entries []entry
	// First and Next are the URLs of the first and the next part of the recording, "" for none.
	First, Next string
}

// entry is one part of a recording.
type entry struct {
	sandbox.SessionEvent
	Text string
}

// Title says what the entry is.
func (e entry) Title() string {
	switch e.Type {
	case sandbox.SessionInput:
		return "Input by the " + string(e.Source)
	case sandbox.SessionOutput:
		return "Output"
	case sandbox.SessionError:
		return "Standard error"
	default:
		return "Note of the service"
	}
}

// session shows the recording of a session, which is bounded by sandbox.MaxSessionPage entries of at most 8 KiB.
func session(p *page) error {
	generation, err := p.number("generation")
	if err != nil {
		return err
	}
	after, err := p.number("after")
	if err != nil {
		return err
	}
	ref := sandbox.SessionRef{LeaseID: p.r.PathValue("id"), Generation: generation, ID: p.r.PathValue("session")}
	s, err := p.service.GetSession(p.ctx, ref)
	if err != nil {
		return err
	}
	v := sessionPage{Session: s}
	here := func(after string) string {
		return link.To(link.Lease(s.LeaseID, "sessions", s.ID), "generation", itoa(s.Generation), "after", after)
	}
	events, err := p.service.ListSessionEvents(p.ctx, sandbox.SessionEventFilter{SessionRef: ref, After: after})
	if err != nil {
		return err
	}
	for _, e := range events {
		v.Entries = append(v.Entries, entry{e, string(e.Data)})
	}
	if n := len(events); n > 0 && events[n-1].Sequence < s.LastSequence {
		v.Next = here(itoa(events[n-1].Sequence))
	}
	if after > 0 {
		v.First = here("")
	}
	live, err := p.liveAddress("", s.LeaseID)
	if err != nil {
		return err
	}
	return p.show("session", "Session "+s.ID, "leases", live, v)
}
