package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// Targets of Terraform: the ratio of an apply to docker run, and the time of a plan, also relative to Terraform's own
// plan of as many resources that call no API.
const (
	applyTarget = 1.25 // ratio
	planTarget  = 0.9  // seconds
	planRatio   = 3    // to Terraform's own plan

	// Ratios to the Docker provider, for as many containers of the same image without a network.
	peerApplyTarget, peerPlanTarget, peerDestroyTarget = 1.0, 0.4, 0.7
)

// planRounds is how often each way runs. The ways alternate, and the best times are compared.
const planRounds = 3

// runs is how many docker run commands run at the same time.
const runs = 4

// plans measures how long Terraform takes to apply and to plan many leases. It compares the apply with docker run of as
// many containers with the same settings. It compares the plan with plans of as many resources: without our provider,
// and with a provider that does nothing.
func plans(ctx context.Context, s *stage, o options) ([]result, error) {
	leases, err := workspace(ctx, s, "leases", leaseConfiguration(o.leases))
	if err != nil {
		return nil, err
	}
	peer, err := peerWorkspace(ctx, s, o)
	if err != nil {
		return nil, err
	}
	idle, err := idleWorkspace(ctx, s, o)
	if err != nil {
		return nil, err
	}
	bare, err := workspace(ctx, s,
		"bare", fmt.Sprintf("resource \"terraform_data\" \"bench\" {\n  count = %d\n}\n", o.leases))
	if err != nil {
		return nil, err
	}
	var plain time.Duration
	var ours, idles, own, peers cycle
	for range planRounds {
		took, err := plainRuns(ctx, o.leases, runs)
		if err != nil {
			return nil, err
		}
		plain = shorter(plain, took)
		for _, way := range []struct {
			measured *measured
			best     *cycle
		}{{leases, &ours}, {idle, &idles}, {peer, &peers}, {bare, &own}} {
			if way.measured == nil {
				continue
			}
			c, err := way.measured.cycle(ctx)
			if err != nil {
				return nil, err
			}
			way.best.shorten(c)
		}
	}
	results := []result{
		atMost(fmt.Sprintf("terraform apply of %d leases / docker run -d, %d at once", o.leases, runs),
			ours.apply.Seconds()/plain.Seconds(), "ratio", applyTarget,
			fmt.Sprintf("%.1f s against %.1f s", ours.apply.Seconds(), plain.Seconds())),
		atMost(fmt.Sprintf("terraform plan of %d leases, above that of as many terraform_data", o.leases),
			(ours.plan - own.plan).Seconds(), "s", planTarget,
			fmt.Sprintf("%.2f s against %.2f s", ours.plan.Seconds(), own.plan.Seconds())),
		atMost(fmt.Sprintf("terraform plan of %d leases / of as many terraform_data", o.leases),
			ours.plan.Seconds()/own.plan.Seconds(), "ratio", planRatio,
			fmt.Sprintf("%.2f s against %.2f s", ours.plan.Seconds(), own.plan.Seconds())),
		compared(fmt.Sprintf("terraform plan of %d leases / of as many of a provider that does nothing", o.leases),
			ours.plan, idles.plan),
		compared(fmt.Sprintf("terraform plan of %d of a provider that does nothing / of as many terraform_data", o.leases),
			idles.plan, own.plan),
	}
	if peer == nil {
		return results, nil
	}
	for _, step := range []struct {
		name         string
		ours, theirs time.Duration
		target       float64
	}{
		{"apply", ours.apply, peers.apply, peerApplyTarget},
		{"plan", ours.plan, peers.plan, peerPlanTarget},
		{"destroy", ours.destroy, peers.destroy, peerDestroyTarget},
	} {
		results = append(results, atMost(
			fmt.Sprintf("terraform %s of %d leases / of as many docker_container", step.name, o.leases),
			step.ours.Seconds()/step.theirs.Seconds(), "ratio", step.target,
			fmt.Sprintf("%.2f s against %.2f s", step.ours.Seconds(), step.theirs.Seconds())))
	}
	return results, nil
}

// compared returns a result without a target.
func compared(name string, a, b time.Duration) result {
	return result{name, a.Seconds() / b.Seconds(), "ratio", 0, true,
		fmt.Sprintf("%.2f s against %.2f s", a.Seconds(), b.Seconds())}
}

// plainRuns starts containers by docker run, atOnce at a time, and removes them. Only the start is timed.
func plainRuns(ctx context.Context, n, atOnce int) (time.Duration, error) {
	remove, volumes := []string{"rm", "--force"}, []string{"volume", "rm"}
	took, err := timed(func() error {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(atOnce)
		for i := range n {
			p := plain{fmt.Sprintf("sandbox-bench-run-%d", i)}
			remove, volumes = append(remove, p.name), append(volumes, p.volumes()...)
			g.Go(func() error { return p.run(ctx) })
		}
		return g.Wait()
	})
	if err != nil {
		return 0, err
	}
	if _, err := harness.Docker(ctx, remove...); err != nil {
		return 0, err
	}
	_, err = harness.Docker(ctx, volumes...)
	return took, err
}

// measured is a configuration of Terraform that is applied, planned and destroyed.
type measured struct {
	t harness.Terraform
	r *harness.Reconciler
}

func workspace(ctx context.Context, s *stage, name, configuration string) (*measured, error) {
	m := &measured{harness.Terraform{Dir: filepath.Join(s.state, name), State: s.state}, s.reconciler}
	if err := os.MkdirAll(m.t.Dir, 0o700); err != nil {
		return m, err
	}
	if err := os.WriteFile(filepath.Join(m.t.Dir, "main.tf"), []byte(configuration), 0o600); err != nil {
		return m, err
	}
	if err := m.t.Install(filepath.Join(s.root, harness.Binary)); err != nil {
		return m, err
	}
	_, err := m.t.Run(ctx, m.r, "init", "-input=false")
	return m, err
}

// peerSource is the address of the Docker provider.
const peerSource = "kreuzwerker/docker"

// peerWorkspace returns the workspace of the Docker provider, nil if the options name none.
func peerWorkspace(ctx context.Context, s *stage, o options) (*measured, error) {
	if o.peer == "" {
		return nil, nil
	}
	if err := (harness.Terraform{State: s.state}).InstallAs(peerSource, o.peer); err != nil {
		return nil, err
	}
	r := sandbox.DefaultResources
	cpus := fmt.Sprintf("%.1f", float64(r.CPUMillis)/1000) // in the form that the provider reads back
	return workspace(ctx, s, "peer", fmt.Sprintf(`terraform {
  required_providers {
    docker = { source = %q }
  }
}

resource "docker_container" "bench" {
  count        = %d
  name         = "sandbox-bench-peer-${count.index}"
  image        = %q
  command      = ["/player"]
  network_mode = "none"
  stdin_open   = true
  memory       = %d
  memory_swap  = %d
  cpus         = %q
}
`, peerSource, o.leases, image, r.MemoryMB, r.MemoryMB, cpus))
}

// idleSource is the address of the provider that does nothing.
const idleSource = "sandbox-lease/bare"

// idleWorkspace returns the workspace of a provider whose resource has the schema of a lease and does nothing. Its plan
// takes the minimum time of a plan of leases.
func idleWorkspace(ctx context.Context, s *stage, o options) (*measured, error) {
	program := filepath.Join(s.state, "terraform-provider-bare")
	build := harness.Command(ctx, "go", "build", "-trimpath", "-o", program, "./scripts/bench/bareprovider")
	build.Dir, build.Env = s.root, append(os.Environ(), "CGO_ENABLED=0")
	if _, err := harness.Collect(build); err != nil {
		return nil, err
	}
	if err := (harness.Terraform{State: s.state}).InstallAs(idleSource, program); err != nil {
		return nil, err
	}
	return workspace(ctx, s, "idle", fmt.Sprintf(`terraform {
  required_providers {
    bare = { source = %q }
  }
}

resource "bare_lease" "bench" {
  count          = %d
  environment_id = "bench-terraform"
  agent_did      = "did:plc:agent${count.index}"
}
`, idleSource, o.leases))
}

// cycle is the time of the first apply, of a plan without changes, and of the destroy.
type cycle struct{ apply, plan, destroy time.Duration }

// shorten replaces each time by a shorter one of another cycle.
func (c *cycle) shorten(by cycle) {
	c.apply, c.plan, c.destroy = shorter(c.apply, by.apply), shorter(c.plan, by.plan), shorter(c.destroy, by.destroy)
}

func (m *measured) cycle(ctx context.Context) (c cycle, err error) {
	run := func(args ...string) (time.Duration, error) {
		return timed(func() error { _, err := m.t.Run(ctx, m.r, args...); return err })
	}
	if c.apply, err = run("apply", "-input=false", "-auto-approve"); err != nil {
		return c, err
	}
	if c.plan, err = run("plan", "-input=false", "-detailed-exitcode"); err != nil { // fails if there are changes
		return c, err
	}
	c.destroy, err = run("destroy", "-input=false", "-auto-approve")
	return c, err
}

// leaseConfiguration returns the configuration of an environment with leases.
func leaseConfiguration(leases int) string {
	return fmt.Sprintf(`terraform {
  required_providers {
    sandbox = { source = "sandbox-lease/sandbox" }
  }
}

provider "sandbox" {}

resource "sandbox_environment" "bench" {
  name  = "bench-terraform"
  image = %q
  network = {
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
