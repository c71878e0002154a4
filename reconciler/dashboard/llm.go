package dashboard

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// callsPerPage is how many LLM calls a page lists.
const callsPerPage = 100

// calls are model calls as pages list them.
type calls struct {
	Calls []sandbox.LLMCall
	// First and Earlier are the URLs of the latest calls and of earlier ones, "" for none.
	First, Earlier string
}

// Took returns how long a call took, "" while it runs.
func (calls) Took(c sandbox.LLMCall) string {
	if c.EndedAt.IsZero() {
		return ""
	}
	return format.Precise(c.EndedAt.Sub(c.StartedAt))
}

// Counted reports whether the upstream has reported the tokens of a call.
func (calls) Counted(c sandbox.LLMCall) bool { return c.Outcome != sandbox.LLMRunning && !c.Unknown }

// llmPage lists the model calls of an environment, or of one lease in it.
type llmPage struct {
	scope
	calls
	// Lease limits the list to one lease, "" for all.
	Lease string
}

// llmCalls lists model calls, latest first.
func llmCalls(p *page) error {
	s := p.scope
	v := llmPage{scope: s, Lease: p.query("lease")}
	live, err := p.liveAddress(s.Environment, "")
	if err != nil {
		return err
	}
	v.calls, err = p.calls(s.Any, s.Environment, v.Lease, func(before string) string {
		return link.To(link.Root+"llm-calls", "environment", s.Environment, "lease", v.Lease, "before", before)
	})
	if err != nil {
		return err
	}
	return p.show("llm", "Models", "llm", live, v)
}

// callsPage lists the model calls of one lease.
type callsPage struct {
	leaseHead
	calls
}

// callsOfLease lists the model calls of a lease, latest first.
func callsOfLease(p *page) error {
	h, err := p.leaseHead("calls")
	if err != nil {
		return err
	}
	v := callsPage{leaseHead: h}
	v.calls, err = p.calls(true, h.EnvironmentID, h.ID, func(before string) string {
		return link.To(link.Lease(h.ID, "calls"), "before", before)
	})
	if err != nil {
		return err
	}
	return p.showLease("calls", "Models of "+h.AgentDID, h.Lease, v)
}

// calls returns the calls before the cursor in the URL, none unless isAny. here returns the URL of the page with
// another cursor.
func (p *page) calls(isAny bool, environment, lease string, here func(before string) string) (v calls, err error) {
	q := sandbox.LLMCallQuery{
		EnvironmentID: environment, LeaseID: lease, Before: p.query("before"), Limit: callsPerPage,
	}
	if err := q.Validate(); err != nil {
		return v, err
	}
	if q.Before != "" {
		v.First = here("")
	}
	if !isAny {
		return v, nil
	}
	v.Calls, err = p.service.ListLLMCalls(p.ctx, q)
	if len(v.Calls) == callsPerPage {
		v.Earlier = here(v.Calls[callsPerPage-1].Cursor())
	}
	return v, err
}
