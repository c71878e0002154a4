package dashboard

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// leasesOfEnvironment is how many leases the page of an environment lists.
const leasesOfEnvironment = 10

// environmentPage is one environment.
type environmentPage struct {
	sandbox.Environment
	Actions []change
	Budget  *budgetView
	// Cost is the cost of the current month at list price.
	Cost   sandbox.NanoUSD
	Month  string
	Active []sandbox.Lease // those used last
	More   bool            // there are more
	Rules  sandbox.Egress
	Routes []string // of models
}

// environment shows one environment.
func environment(p *page) error {
	e, err := p.service.GetEnvironment(p.ctx, p.r.PathValue("id"))
	if err != nil {
		return err
	}
	v := environmentPage{
		Environment: e, Budget: budgetOf(e), Month: p.now().UTC().Format("January"), Rules: e.EgressRules(),
		Routes: slices.Sorted(maps.Keys(e.LLM)),
	}
	for _, c := range changes {
		if p.may(c.operation) && c.applies(e) {
			v.Actions = append(v.Actions, c)
		}
	}
	spent, err := p.spentThisMonth()
	if err != nil {
		return err
	}
	v.Cost = spent.byEnvironment[e.ID]
	v.Active, err = p.service.ListLeases(p.ctx, sandbox.LeaseFilter{
		EnvironmentID: e.ID, Status: sandbox.LeaseActive, Sort: "-" + sandbox.SortByActivity, Limit: leasesOfEnvironment + 1,
	})
	if err != nil {
		return err
	}
	if v.More = len(v.Active) > leasesOfEnvironment; v.More {
		v.Active = v.Active[:leasesOfEnvironment]
	}
	live, err := p.liveAddress(e.ID, "")
	if err != nil {
		return err
	}
	return p.show("environment", e.ID, "environments", live, v)
}

// change is an operation on an environment that the user must confirm.
type change struct {
	Name  string // in the URL
	Label string
	// Consequence describes the effect on the confirmation page.
	Consequence string
	Danger      bool
	operation   string
	applies     func(e sandbox.Environment) bool
	do          func(ctx context.Context, p *page, e sandbox.Environment) error
}

var changes = []change{
	{
		Name: "end", Label: "End", operation: "post-condition", Danger: true,
		Consequence: "All leases that end on this condition end now, and their sandboxes are destroyed with their files. " +
			"The environment grants no leases until it is reopened.",
		applies: func(e sandbox.Environment) bool { return e.Status == sandbox.EnvironmentOpen && endingOf(e) != "" },
		do:      end,
	},
	{
		Name: "reopen", Label: "Reopen", operation: "reopen-environment",
		Consequence: "The environment grants leases again. Leases that have ended stay ended.",
		applies:     func(e sandbox.Environment) bool { return e.Status == sandbox.EnvironmentClosed },
		do: func(ctx context.Context, p *page, e sandbox.Environment) error {
			_, err := p.service.ReopenEnvironment(ctx, e.ID)
			return err
		},
	},
}

// endingOf returns the first condition that ends all leases of an environment, "" if all are about one agent.
func endingOf(e sandbox.Environment) string {
	for _, c := range e.ExpiryConditions {
		if !strings.HasPrefix(c, "agent.") {
			return c
		}
	}
	return ""
}

// end sends an environment the condition that ends it, as a game does. Errors: Conflict if it is still open.
func end(ctx context.Context, p *page, e sandbox.Environment) error {
	c := sandbox.Condition{
		Type: endingOf(e), Timestamp: p.now().UTC(),
		Data: sandbox.ConditionData{EnvironmentID: e.ID, Reason: "ended in the dashboard"},
	}
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("ending environment %s: %w", e.ID, err)
	}
	_, err = p.service.Deliver(ctx, sandbox.Delivery{
		ID: "dashboard-" + rand.Text(), Body: body, Source: sandbox.ActorOf(ctx).Name, Condition: c,
	})
	if err != nil {
		return err
	}
	if now, err := p.service.GetEnvironment(ctx, e.ID); err != nil || now.Status != sandbox.EnvironmentOpen {
		return err
	}
	return sandbox.Errorf(sandbox.Conflict,
		"environment %s is still open after %s: it was opened later than this condition; try again", e.ID, c.Type)
}

// ask shows the consequence of a change and the form that makes it.
func (c change) ask(p *page) error {
	e, err := p.service.GetEnvironment(p.ctx, p.r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := c.check(e); err != nil {
		return err
	}
	ask := confirmation{
		Label: c.Label, Title: c.Label + " " + e.ID,
		Subject:     fmt.Sprintf("The environment has %s.", format.Counted(int(e.Leases.Live()), "live lease", -1)),
		Consequence: c.Consequence, Danger: c.Danger, Post: link.Environment(e.ID, c.Name), Back: link.Environment(e.ID),
	}
	if c.Name == "end" {
		ask.Note = "This sends the condition " + endingOf(e) + "."
	}
	return p.confirm("environments", ask)
}

// check refuses a change that does not apply to the environment. Errors: Conflict.
func (c change) check(e sandbox.Environment) error {
	if c.applies(e) {
		return nil
	}
	return sandbox.Errorf(sandbox.Conflict, "environment %s is %s, so the action %s is not possible now",
		e.ID, e.Status, strings.ToLower(c.Label))
}

// carryOut makes the change.
func (c change) carryOut(p *page) error {
	ctx, cancel := context.WithTimeout(p.ctx, actionTimeout)
	defer cancel()
	e, err := p.service.GetEnvironment(ctx, p.r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := c.check(e); err != nil {
		return err
	}
	if err := c.do(ctx, p, e); err != nil {
		return err
	}
	return p.done(link.Environment(e.ID))
}
