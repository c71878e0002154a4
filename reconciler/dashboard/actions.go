package dashboard

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// actionTimeout limits the wait for an action. The action continues afterwards.
const actionTimeout = 20 * time.Second

// action is an operation on a lease that the user must confirm.
type action struct {
	Name  string // in the URL
	Label string
	// Consequence describes the effect on the confirmation page.
	Consequence string
	Danger      bool
	operation   string
	applies     func(l sandbox.Lease) bool
	do          func(ctx context.Context, s contents, r sandbox.LeaseRef) error
}

var actions = []action{
	{
		Name: "renew", Label: "Renew", operation: "renew-lease", applies: isLive,
		Consequence: "The time to live starts again, up to the maximum lifetime. Nothing else changes.",
		do: func(ctx context.Context, s contents, r sandbox.LeaseRef) error {
			_, err := s.Renew(ctx, sandbox.Renew{LeaseRef: r})
			return err
		},
	},
	{
		Name: "sleep", Label: "Put to sleep", operation: "sleep-lease",
		Consequence: "The sandbox sleeps until its next use. This fails while a command runs.",
		applies: func(l sandbox.Lease) bool {
			return l.Status == sandbox.LeaseActive && l.Phase == sandbox.PhaseAwake
		},
		do: func(ctx context.Context, s contents, r sandbox.LeaseRef) error {
			_, err := s.Sleep(ctx, r)
			return err
		},
	},
	{
		Name: "wake", Label: "Wake", operation: "wake-lease",
		Consequence: "The sandbox wakes now and costs as an awake one, until it has been idle again.",
		applies: func(l sandbox.Lease) bool {
			return l.Status == sandbox.LeaseActive && l.Phase == sandbox.PhaseAsleep
		},
		do: func(ctx context.Context, s contents, r sandbox.LeaseRef) error {
			_, err := s.Wake(ctx, r)
			return err
		},
	},
	{
		Name: "expire", Label: "Expire", operation: "release-lease", applies: isLive, Danger: true,
		Consequence: "The lease ends now, and its sandbox is destroyed with all its files. This cannot be undone. " +
			"The agent's next acquire starts a new generation.",
		do: expire,
	},
}

// expire ends a lease. It succeeds even if the sandbox still exists: the reconciler retries its destruction.
func expire(ctx context.Context, s contents, r sandbox.LeaseRef) error {
	_, err := s.Release(ctx, r)
	if err == nil {
		return nil
	}
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), actionTimeout)
	defer cancel()
	if l, getErr := s.GetLease(again, r.ID); getErr == nil && l.Generation == r.Generation && !isLive(l) {
		return nil
	}
	return err
}

// ask shows the consequence of an action and the form that runs it.
func (a action) ask(p *page) error {
	l, err := p.service.GetLease(p.ctx, p.r.PathValue("id"))
	if err != nil {
		return err
	}
	if !a.applies(l) {
		return a.refusal(l)
	}
	return p.confirm("leases", confirmation{
		Label:       a.Label,
		Subject:     fmt.Sprintf("The lease of %s in %s, generation %d.", l.AgentDID, l.EnvironmentID, l.Generation),
		Consequence: a.Consequence, Danger: a.Danger,
		Post: link.Lease(l.ID, a.Name), Back: link.Lease(l.ID),
		Fields: []format.Pair{{Name: "generation", Value: itoa(l.Generation)}},
	})
}

func (a action) refusal(l sandbox.Lease) error {
	return sandbox.Errorf(sandbox.Conflict,
		"lease %s generation %d is %s and its sandbox is %s, so the action is not possible now",
		l.ID, l.Generation, l.Status, format.Words(string(l.SandboxState)))
}

// carryOut runs the action on the generation in the form. It does not affect later generations.
func (a action) carryOut(p *page) error {
	generation, err := strconv.ParseInt(p.r.PostForm.Get("generation"), 10, 64)
	if err != nil || generation < 1 {
		return sandbox.InvalidFields("the form",
			[]sandbox.Field{{Name: "generation", Problem: "must be the lease's generation"}})
	}
	ctx, cancel := context.WithTimeout(p.ctx, actionTimeout)
	defer cancel()
	id := p.r.PathValue("id")
	if err := a.do(ctx, p.service, sandbox.LeaseRef{ID: id, Generation: generation}); err != nil {
		return err
	}
	return p.done(link.Lease(id))
}
