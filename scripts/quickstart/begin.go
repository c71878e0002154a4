package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// The example's environments, its image, and the two agents that the steps follow.
const (
	catan    = "catan-7"
	rpg      = "rpg-3"
	image    = "sandbox-quickstart/player"
	fallen   = "did:plc:thorn" // dies in step 5
	survivor = "did:plc:kira"  // plays on, and loses her container in step 6
)

// build is step 1: an engine answers, and the programs are built from source.
func (q *quickstart) build(ctx context.Context) (outcome, error) {
	if err := harness.Script(ctx, "require-terraform"); err != nil {
		return outcome{}, err
	}
	if err := os.MkdirAll(q.state, 0o700); err != nil {
		return outcome{}, err
	}
	if err := os.WriteFile(q.backendFile(), []byte(q.backend), 0o600); err != nil {
		return outcome{}, err
	}
	if err := harness.StartEngine(ctx, q.state); err != nil {
		return outcome{}, err
	}
	engine, err := harness.Docker(ctx, "version", "--format", "{{.Server.Version}} {{.Server.Arch}}")
	if err != nil {
		return outcome{}, err
	}
	if len(engine) != 2 {
		return outcome{}, fmt.Errorf("docker version should name version and architecture, it printed %q", engine)
	}
	onCloudflare := q.backend == sandbox.Cloudflare
	if onCloudflare { // the binary embeds the Worker
		if err := q.account.Build(ctx); err != nil {
			return outcome{}, err
		}
	}
	if _, err := harness.Output(ctx, "make", "--no-print-directory", "build"); err != nil {
		return outcome{}, err
	}
	arch := engine[1]
	if onCloudflare { // Cloudflare supports only this one
		arch = "amd64"
	}
	if err := harness.BuildPlayer(ctx, q.example, arch); err != nil {
		return outcome{}, err
	}
	return outcome{line: fmt.Sprintf("Docker Engine %s answers, %s is built", engine[0], harness.Binary)}, nil
}

// serve is step 2: the reconciler answers on a new ledger.
func (q *quickstart) serve(ctx context.Context) (outcome, error) {
	if err := q.startReconciler(ctx); err != nil {
		return outcome{}, err
	}
	for _, file := range []string{q.reconciler.TokenFile, q.reconciler.SecretFile} {
		info, err := os.Stat(file)
		if err != nil {
			return outcome{}, err
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			return outcome{}, fmt.Errorf("%s holds a credential and has mode %04o, not 0600", file, mode)
		}
	}
	o := outcome{
		line: fmt.Sprintf("sandbox serve answers on %s, ledger %s, token and webhook secret in files of mode 0600",
			q.reconciler.URL, q.reconciler.Ledger),
	}
	if q.backend == sandbox.Cloudflare {
		o.details = []string{
			"its Cloudflare account runs on this machine: the real Workers runtime, with containers on the engine",
		}
	}
	return o, nil
}

// startReconciler starts the reconciler and, on Cloudflare, its account if that does not run yet.
func (q *quickstart) startReconciler(ctx context.Context) error {
	if q.backend == sandbox.Cloudflare {
		if !q.account.Runs(ctx) {
			if err := q.account.Start(ctx); err != nil {
				return err
			}
		}
		var err error
		if q.reconciler.Env, err = q.account.Env(); err != nil {
			return err
		}
	}
	return q.reconciler.Start(ctx, filepath.Join(q.example, "prices.json"))
}

// apply is step 3: Terraform builds the image and leases the sandboxes, and the engine runs their containers.
func (q *quickstart) apply(ctx context.Context) (outcome, error) {
	if err := q.terraform.Install(q.binary); err != nil {
		return outcome{}, err
	}
	for _, args := range [][]string{
		{"init", "-input=false", "-no-color"},
		{"apply", "-input=false", "-no-color", "-auto-approve"},
	} {
		if _, err := q.terraform.Run(ctx, q.reconciler, args...); err != nil {
			return outcome{}, err
		}
	}
	leases, err := q.reconciler.Service.ListLeases(ctx, sandbox.LeaseFilter{Status: sandbox.LeaseActive})
	if err != nil {
		return outcome{}, err
	}
	active := make(map[string]int)
	for _, l := range leases {
		active[l.EnvironmentID]++
	}
	if active[catan] != 4 || active[rpg] != 2 {
		return outcome{}, fmt.Errorf("%s has %d active leases and %s has %d, not 4 and 2",
			catan, active[catan], rpg, active[rpg])
	}
	running, err := harness.Sandboxes(ctx, q.reconciler.Ledger)
	if err != nil {
		return outcome{}, err
	}
	if len(running) != len(leases) {
		return outcome{}, fmt.Errorf("%d leases are active, and these containers run: %+v", len(leases), running)
	}
	return outcome{
		line: fmt.Sprintf("terraform apply built %s and leased 4 sandboxes in %s and 2 in %s; %d containers run",
			image, catan, rpg, len(running)),
	}, nil
}
