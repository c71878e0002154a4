// Package audit checks the containers of sandboxes, companions, gateways and relays against the rules of the CIS Docker
// Benchmark and our own.
package audit

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/containers"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Auditor implements driver.Auditor.
type Auditor struct{ engine *engine.Engine }

var _ driver.Auditor = Auditor{}

// New returns the auditor of an engine.
func New(e *engine.Engine) Auditor { return Auditor{e} }

// Audit implements driver.Auditor with containerRules. Gateways and relays have their own rules. processRules
// apply to all.
func (au Auditor) Audit(ctx context.Context, ledgerID string) ([]sandbox.AuditCheck, error) {
	info, err := au.engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	var checks []sandbox.AuditCheck
	for _, kind := range []struct {
		role  objects.Role
		rules []rule
	}{
		{objects.RoleSandbox, containerRules}, {objects.RoleCompanion, containerRules},
		{objects.RoleGateway, gatewayRules}, {objects.RoleRelay, relayRules},
	} {
		found, err := au.engine.ContainersOf(ctx, ledgerID, kind.role)
		if err != nil {
			return nil, err
		}
		of := make([][]sandbox.AuditCheck, len(found))
		looks, looking := errgroup.WithContext(ctx)
		looks.SetLimit(containers.Lookers)
		for i := range found {
			looks.Go(func() (err error) {
				of[i], err = au.auditOne(looking, found[i], info, slices.Concat(kind.rules, processRules))
				return err
			})
		}
		if err := looks.Wait(); err != nil {
			return nil, err
		}
		checks = append(checks, slices.Concat(of...)...)
	}
	return checks, nil
}

// auditOne checks one container against rules. It returns no checks if the container is gone.
func (au Auditor) auditOne(ctx context.Context, l driver.Dependent, info dockerapi.Info,
	rules []rule) ([]sandbox.AuditCheck, error) {
	c, err := au.engine.ContainerWithin(ctx, l.Name, engine.ListedLimit)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return nil, nil
	case engine.Hangs(ctx, err):
		return []sandbox.AuditCheck{{
			Object: l.Name, SandboxID: l.SandboxID, EnvironmentID: l.EnvironmentID, Verdict: sandbox.VerdictFinding,
			Rule: "S.11", Title: "the engine answers requests about it",
			Detail: "it does not answer: code in the sandbox may have stopped a process that the engine started; " +
				"release the lease, or end that process on the engine's machine",
		}}, nil
	case err != nil:
		return nil, err
	}
	return judge(au.watchProcesses(ctx, audited{container: c, engine: info}), rules), nil
}

// judge checks one container against rules. It is a pure function.
func judge(a audited, rules []rule) []sandbox.AuditCheck {
	labels := a.container.Config.Labels
	checks := make([]sandbox.AuditCheck, len(rules))
	for i, r := range rules {
		checks[i] = sandbox.AuditCheck{
			Object: strings.TrimPrefix(a.container.Name, "/"), SandboxID: labels[objects.LabelSandbox],
			LeaseID: labels[objects.LabelLease], EnvironmentID: labels[objects.LabelEnvironment],
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

// audited is a container in its current state, and its engine.
type audited struct {
	container dockerapi.ContainerInspect
	engine    dockerapi.Info
	processes []process
	unseen    string // why its processes are unknown
}

func (a audited) host() *dockerapi.HostConfig { return a.container.HostConfig }

// rule is one rule. finding returns how the container breaks it, or "".
type rule struct {
	number, title string
	finding       func(audited) string
	// needs returns why the rule does not apply on this engine, or "". nil means that it always applies.
	needs func(audited) string
}

func (r rule) inapplicable(a audited) string {
	if r.needs == nil {
		return ""
	}
	return r.needs(a)
}
