package docker

import (
	"context"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// Audit implements sandbox.Auditor by the rules of auditRules, and for gateways of gatewayRules.
func (e *Executor) Audit(ctx context.Context, ledgerID string) ([]sandbox.AuditCheck, error) {
	info, err := e.engine(ctx)
	if err != nil {
		return nil, err
	}
	var checks []sandbox.AuditCheck
	for _, kind := range []struct {
		role  role
		rules []auditRule
	}{{roleSandbox, auditRules}, {roleGateway, gatewayRules}} {
		found, err := e.containersOf(ctx, ledgerID, kind.role)
		if err != nil {
			return nil, err
		}
		for _, l := range found {
			c, err := e.lookUp(ctx, l.Name)
			if isCode(err, sandbox.NotFound) {
				continue // it has gone meanwhile
			}
			if err != nil {
				return nil, err
			}
			checks = append(checks, judge(audited{c, info}, kind.rules)...)
		}
	}
	return checks, nil
}

// judge holds one container against some rules. Pure.
func judge(a audited, rules []auditRule) []sandbox.AuditCheck {
	labels := a.container.Config.Labels
	checks := make([]sandbox.AuditCheck, len(rules))
	for i, r := range rules {
		checks[i] = sandbox.AuditCheck{
			Object: strings.TrimPrefix(a.container.Name, "/"), SandboxID: labels[labelSandbox],
			LeaseID: labels[labelLease], EnvironmentID: labels[labelEnvironment],
			Rule: r.number, Title: r.title, Verdict: sandbox.VerdictPass,
		}
		if reason := r.inapplicable(a); reason != "" {
			checks[i].Verdict, checks[i].Detail = sandbox.VerdictInapplicable, reason
		} else if finding := r.finding(a); finding != "" {
			checks[i].Verdict, checks[i].Detail = sandbox.VerdictFinding, finding
		}
	}
	return checks
}

// audited is a container as it is, and the engine that it is on.
type audited struct {
	container dockerapi.ContainerInspect
	engine    dockerapi.Info
}

func (a audited) host() *dockerapi.HostConfig { return a.container.HostConfig }

// auditRule is one rule. finding says how it is broken, "" when it is kept.
type auditRule struct {
	number, title string
	finding       func(audited) string
	// needs says why the rule applies to nothing on this engine, "" when it applies; nil means that it does.
	needs func(audited) string
}

func (r auditRule) inapplicable(a audited) string {
	if r.needs == nil {
		return ""
	}
	return r.needs(a)
}
