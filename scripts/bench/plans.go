package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// Targets of Terraform, per lease: twice what kreuzwerker/docker 4.5.0 took for 50 bare containers
// on a machine of this kind (0.147 s to apply, 0.024 s to plan), which have no volumes, no ledger
// and no guest.
const (
	applyTarget = 0.30
	planTarget  = 0.05
)

// plans measures how long Terraform takes to apply and to plan many leases.
func plans(ctx context.Context, s *stage, o options) ([]result, error) {
	t := harness.Terraform{Dir: filepath.Join(s.state, "configuration"), State: s.state}
	if err := os.MkdirAll(t.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(t.Dir, "main.tf"), []byte(configuration(o.leases)), 0o600); err != nil {
		return nil, err
	}
	if err := t.Install(filepath.Join(s.root, harness.Binary)); err != nil {
		return nil, err
	}
	var took []time.Duration
	for _, args := range [][]string{
		{"init", "-input=false"},
		{"apply", "-input=false", "-auto-approve"},
		{"plan", "-input=false", "-detailed-exitcode"}, // fails when there are changes
		{"destroy", "-input=false", "-auto-approve"},
	} {
		d, err := timed(func() error { _, err := t.Run(ctx, s.reconciler, args...); return err })
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	per := func(d time.Duration) float64 { return d.Seconds() / float64(o.leases) }
	detail := func(d time.Duration) string { return fmt.Sprintf("%.1f s for %d leases", d.Seconds(), o.leases) }
	return []result{
		atMost("terraform apply, per lease", per(took[1]), "s", applyTarget, detail(took[1])),
		atMost("terraform plan, per lease", per(took[2]), "s", planTarget, detail(took[2])),
	}, nil
}

func configuration(leases int) string {
	return fmt.Sprintf(`terraform {
  required_providers {
    sandbox = { source = "sandbox-lease/sandbox" }
  }
}

provider "sandbox" {}

resource "sandbox_environment" "bench" {
  name  = "bench-terraform"
  image = %q
  network {
    mode = "none"
  }
}

resource "sandbox_lease" "bench" {
  count          = %d
  environment_id = sandbox_environment.bench.id
  agent_did      = "did:plc:agent${count.index}"
}
`, image, leases)
}
