package leasing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Audit implements service.Maintenance.
func (v *Service) Audit(ctx context.Context, r sandbox.AuditRequest) (sandbox.AuditReport, error) {
	report := sandbox.AuditReport{LedgerID: v.store.ID(), Instances: []sandbox.InstanceAudit{}}
	backends := v.Backends()
	slices.Sort(backends)
	var away error
	reached := 0
	for _, b := range backends {
		audit, err := v.auditInstance(ctx, b, r)
		if err != nil {
			away = errors.Join(away, err)
			audit.Error = err.Error()
		} else {
			reached++
		}
		report.Instances = append(report.Instances, audit)
	}
	if reached == 0 {
		return sandbox.AuditReport{}, lifecycle.AsError(fmt.Errorf("audit: %w", away))
	}
	return report, nil
}

// auditInstance audits the sandboxes of an instance under this ledger's label and the labels of adopted sandboxes.
func (v *Service) auditInstance(ctx context.Context, b sandbox.Backend,
	r sandbox.AuditRequest) (sandbox.InstanceAudit, error) {
	audit := sandbox.InstanceAudit{Backend: b, Checks: []sandbox.AuditCheck{}}
	x, err := v.BackendFor(b)
	if err != nil {
		return audit, err
	}
	if audit.Instance, err = x.Reach(ctx); err != nil {
		return audit, err
	}
	labels, err := v.labelsOn(ctx, audit.Instance)
	if err != nil {
		return audit, err
	}
	ctx, cancel := context.WithTimeout(ctx, lifecycle.KillTimeout)
	defer cancel()
	for _, label := range labels {
		checks, err := x.Audit(ctx, label)
		if err != nil {
			return audit, err
		}
		for _, c := range checks {
			if r.EnvironmentID == "" || r.EnvironmentID == c.EnvironmentID {
				audit.Checks = append(audit.Checks, c)
			}
		}
	}
	return audit, nil
}

// labelsPage limits the rows in memory while labels are read.
const labelsPage = 500

// labelsOn returns the ledger ids under which an instance may have this ledger's sandboxes.
func (v *Service) labelsOn(ctx context.Context, instance string) ([]string, error) {
	labels := []string{v.store.ID()}
	err := v.store.Read(ctx, func(tx *ledger.Tx) error {
		for after := ""; ; {
			rows, err := tx.InstanceSandboxes(instance, after, labelsPage)
			if err != nil {
				return err
			}
			for i := range rows {
				if id := rows[i].Origin.LedgerID; id != "" && !slices.Contains(labels, id) {
					labels = append(labels, id)
				}
			}
			if len(rows) < labelsPage {
				return nil
			}
			after = rows[len(rows)-1].ID
		}
	})
	return labels, err
}
