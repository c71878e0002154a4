package dashboard

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// callsPerPage is how many LLM calls a page lists.
const callsPerPage = 100

// llmPage lists calls of models.
type llmPage struct {
	scope
	// Lease limits the list to one lease, "" for all.
	Lease string
	Calls []sandbox.LLMCall
	// First and Earlier are the URLs of the latest calls and of earlier ones, "" for none.
	First, Earlier string
}

// Took returns how long a call took, "" while it runs.
func (llmPage) Took(c sandbox.LLMCall) string {
	if c.EndedAt.IsZero() {
		return ""
	}
	return c.EndedAt.Sub(c.StartedAt).Round(time.Millisecond).String()
}

// Counted reports whether the upstream has told the tokens of a call.
func (llmPage) Counted(c sandbox.LLMCall) bool { return c.Outcome != sandbox.LLMRunning && !c.Unknown }

// llmCalls lists calls of models, latest first.
func llmCalls(p *page) error {
	s := p.scope
	v := llmPage{scope: s, Lease: p.query("lease")}
	here := func(before string) string {
		return address(Root+"llm-calls", "environment", s.Environment, "lease", v.Lease, "before", before)
	}
	var before time.Time
	if text := p.query("before"); text != "" {
		var err error
		if before, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return sandbox.InvalidFields("the page's URL",
				[]sandbox.Field{{Name: "before", Problem: "must be a time such as 2026-11-24T20:00:00Z"}})
		}
		v.First = here("")
	}
	live, err := p.liveAddress(s.Environment, "")
	if err != nil {
		return err
	}
	if s.Any {
		v.Calls, err = p.service.ListLLMCalls(p.ctx, sandbox.LLMCallQuery{
			EnvironmentID: s.Environment, LeaseID: v.Lease, Before: before, Limit: callsPerPage,
		})
		if err != nil {
			return err
		}
	}
	if len(v.Calls) == callsPerPage {
		v.Earlier = here(v.Calls[callsPerPage-1].StartedAt.Format(time.RFC3339Nano))
	}
	return p.show("llm", "Models", "llm", live, v)
}
