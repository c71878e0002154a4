package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localaccount"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// clean removes the objects of a run, even of an interrupted one, and checks that the engine has none left.
func (q *quickstart) clean(ctx context.Context) (outcome, error) {
	if _, err := os.Stat(q.reconciler.Database); err == nil {
		if err := q.destroy(ctx); err != nil {
			return outcome{}, err
		}
	}
	if err := q.reconciler.Stop(ctx); err != nil {
		return outcome{}, err
	}
	if err := q.account.Stop(ctx); err != nil {
		return outcome{}, err
	}
	if err := harness.StopEngine(ctx, q.state); err != nil {
		return outcome{}, err
	}
	if err := q.terraform.Forget(); err != nil {
		return outcome{}, err
	}
	if err := os.RemoveAll(filepath.Join(q.example, "player", "bin")); err != nil {
		return outcome{}, err
	}
	o := outcome{line: "the earlier run is removed: no container, volume, network, image or process is left"}
	if q.backend == sandbox.Cloudflare {
		o.details = []string{"image " + localaccount.SidecarImage + " stays, for every account on this machine"}
	}
	return o, os.RemoveAll(q.state)
}

// destroy ends every lease and environment of the ledger, and the image.
func (q *quickstart) destroy(ctx context.Context) error {
	if err := harness.StartEngine(ctx, q.state); err != nil {
		return err
	}
	if q.backend == sandbox.Cloudflare && !q.account.Runs(ctx) { // it cannot find the next account
		if err := q.reconciler.Stop(ctx); err != nil {
			return err
		}
	}
	if err := q.reconciler.Connect(ctx); sandbox.CodeOf(err) == sandbox.Unavailable || errors.Is(err, fs.ErrNotExist) {
		// The machine was restarted, or an earlier run was interrupted.
		if err := q.startReconciler(ctx); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if q.terraform.Applied() {
		if _, err := q.terraform.Run(ctx, q.reconciler, "destroy", "-input=false", "-no-color", "-auto-approve"); err != nil {
			return err
		}
	}
	// An interrupted apply may have created environments without recording them.
	environments, err := q.reconciler.Service.ListEnvironments(ctx)
	if err != nil {
		return err
	}
	for _, e := range environments {
		if err := q.reconciler.Service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: e.ID, Force: true}); err != nil {
			return err
		}
	}
	// Terraform keeps an image that a container of such an environment used.
	if tags, err := harness.Docker(ctx, "image", "ls", "--quiet", image); err != nil {
		return err
	} else if len(tags) > 0 {
		if _, err := harness.Docker(ctx, "image", "rm", image); err != nil {
			return err
		}
	}
	left, err := harness.Objects(ctx, q.reconciler.Ledger, image)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("the engine still has %s", strings.Join(left, ", "))
	}
	return err
}
