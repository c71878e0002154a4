package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// allowance is a host that the environment in the page's path should allow.
type allowance struct {
	environment sandbox.Environment
	rule        sandbox.EgressRule // with one port
}

// allowanceOf reads an allowance. Errors: Invalid, Conflict if the network is not restricted.
func allowanceOf(p *page, host, port string) (allowance, error) {
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return allowance{}, sandbox.InvalidFields("the form",
			[]sandbox.Field{{Name: "port", Problem: "must be between 1 and 65535"}})
	}
	name, err := sandbox.CanonicalHost(host)
	if err != nil {
		return allowance{}, sandbox.InvalidFields("the form", []sandbox.Field{{Name: "host", Problem: err.Error()}})
	}
	e, err := p.service.GetEnvironment(p.ctx, p.r.PathValue("id"))
	if err != nil {
		return allowance{}, err
	}
	if e.Network != sandbox.NetworkRestricted {
		return allowance{}, sandbox.Errorf(sandbox.Conflict,
			"environment %s has the network %s: only a restricted network has a list of allowed hosts", e.ID, e.Network)
	}
	return allowance{e, sandbox.EgressRule{Host: name, Ports: []int{n}}}, nil
}

// askAllow asks to allow a host.
func askAllow(p *page) error {
	a, err := allowanceOf(p, p.query("host"), p.query("port"))
	if err != nil {
		return err
	}
	return p.confirm("egress", confirmation{
		Label: "Allow", Title: "Allow " + a.rule.Host + " in " + a.environment.ID,
		Subject:     fmt.Sprintf("The rule allows port %d.", a.rule.Ports[0]),
		Consequence: "All sandboxes of the environment may connect to this host, also those that run now.",
		Note: "If Terraform manages the environment, add the host to its configuration too: otherwise the next apply " +
			"removes it again.",
		Post: link.Environment(a.environment.ID, "allow"), Back: link.To(link.Root+"egress", "environment", a.environment.ID),
		Fields: []format.Pair{
			{Name: "host", Value: a.rule.Host}, {Name: "port", Value: strconv.Itoa(a.rule.Ports[0])},
		},
	})
}

// allow adds a host to the rules of an environment and changes nothing else. A conflict means that another change
// succeeded meanwhile, so it tries again until the time is over.
func allow(p *page) error {
	ctx, cancel := context.WithTimeout(p.ctx, actionTimeout)
	defer cancel()
	for {
		a, err := allowanceOf(p, p.r.PostForm.Get("host"), p.r.PostForm.Get("port"))
		if err != nil {
			return err
		}
		e := a.environment
		put := sandbox.PutEnvironment{
			ID: e.ID, Owner: e.Owner, Epoch: e.Epoch, EnvironmentSpec: e.EnvironmentSpec, Was: &e.EnvironmentSpec,
			Tenant: p.caller.Tenant(),
		}
		rules := e.EgressRules()
		rules.Allow = withRule(rules.Allow, a.rule)
		put.Egress = &rules
		_, err = p.service.PutEnvironment(ctx, put)
		switch {
		case err == nil:
			return p.done(link.Environment(e.ID))
		case sandbox.ReasonOf(err) != sandbox.ReasonOtherSettings || ctx.Err() != nil:
			return err
		}
	}
}

// withRule returns rules that also allow a rule with one port.
func withRule(rules []sandbox.EgressRule, rule sandbox.EgressRule) []sandbox.EgressRule {
	rules = slices.Clone(rules)
	for i, r := range rules {
		if r.Host == rule.Host {
			if !allows(r, rule.Ports[0]) {
				rules[i].Ports = append(slices.Clone(portsOf(r)), rule.Ports...)
			}
			return rules
		}
	}
	if slices.Contains(sandbox.DefaultEgressPorts, rule.Ports[0]) {
		rule.Ports = nil // both default ports
	}
	return append(rules, rule)
}

// portsOf returns the ports of a rule.
func portsOf(r sandbox.EgressRule) []int {
	if len(r.Ports) == 0 {
		return sandbox.DefaultEgressPorts
	}
	return r.Ports
}

func allows(r sandbox.EgressRule, port int) bool { return slices.Contains(portsOf(r), port) }
