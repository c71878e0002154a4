package dashboard

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// actionTimeout bounds how long an action is waited for. What it has begun goes on without.
const actionTimeout = 20 * time.Second

// action is what can be done to a lease, once it is confirmed.
type action struct {
	Name  string // in the address
	Label string
	// Consequence says what it does, before it is done.
	Consequence string
	Danger      bool
	operation   string
	applies     func(l sandbox.Lease) bool
	do          func(ctx context.Context, s service.Service, r sandbox.LeaseRef) error
}

var actions = []action{
	{
		Name: "renew", Label: "Renew", operation: "renew-lease", applies: isLive,
		Consequence: "Its time to live begins anew, up to its longest lifetime. Nothing else changes.",
		do: func(ctx context.Context, s service.Service, r sandbox.LeaseRef) error {
			_, err := s.Renew(ctx, sandbox.Renew{LeaseRef: r})
			return err
		},
	},
	{
		Name: "sleep", Label: "Put to sleep", operation: "sleep-lease",
		Consequence: "The sandbox sleeps until its next use, which wakes it. It is refused while a command runs.",
		applies: func(l sandbox.Lease) bool {
			return l.Status == sandbox.LeaseActive && l.Phase == sandbox.PhaseAwake
		},
		do: func(ctx context.Context, s service.Service, r sandbox.LeaseRef) error {
			_, err := s.Sleep(ctx, r)
			return err
		},
	},
	{
		Name: "expire", Label: "Expire", operation: "release-lease", applies: isLive, Danger: true,
		Consequence: "The lease ends now, and its sandbox is destroyed with all files in it. This cannot be undone; the agent's next acquire begins a new generation.",
		do:          expire,
	},
}

// expire ends a lease. That its sandbox is not gone yet is no failure: it is tried until it is.
func expire(ctx context.Context, s service.Service, r sandbox.LeaseRef) error {
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

// confirmPage asks whether something shall be done.
type confirmPage struct {
	sandbox.Lease
	Action action
}

// ask shows what an action would do, and the form that does it.
func (a action) ask(p *page) error {
	l, err := p.service.GetLease(p.ctx, p.r.PathValue("id"))
	if err != nil {
		return err
	}
	if !a.applies(l) {
		return a.refusal(l)
	}
	return p.show("confirm", a.Label, "leases", "", confirmPage{l, a})
}

func (a action) refusal(l sandbox.Lease) error {
	return sandbox.Errorf(sandbox.Conflict, "lease %s generation %d is %s, its sandbox is %s: it cannot be done now", l.ID, l.Generation, l.Status, words(string(l.SandboxState)))
}

// carryOut does it to the generation that the form shows: what came after is left alone.
func (a action) carryOut(p *page) error {
	generation, err := strconv.ParseInt(p.r.PostForm.Get("generation"), 10, 64)
	if err != nil || generation < 1 {
		return sandbox.InvalidFields("the form", []sandbox.Field{{Name: "generation", Problem: "must be the lease's generation"}})
	}
	ctx, cancel := context.WithTimeout(p.ctx, actionTimeout)
	defer cancel()
	id := p.r.PathValue("id")
	if err := a.do(ctx, p.service, sandbox.LeaseRef{ID: id, Generation: generation}); err != nil {
		return err
	}
	http.Redirect(p.w, p.r, leasePath(id), http.StatusSeeOther)
	return nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
