package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

const (
	environment = "bench"
	image       = "sandbox-bench/player:latest"
)

// stage is what all measures share: an engine, an image and a reconciler on a ledger on disk.
type stage struct {
	root, state string
	reconciler  *harness.Reconciler
}

func newStage(ctx context.Context) (_ *stage, err error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	s := &stage{root: root, state: filepath.Join(root, ".tmp", "bench")} // /tmp may be in memory
	s.reconciler = harness.NewReconciler(root, s.state)
	if err := os.MkdirAll(s.state, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := harness.StartEngine(ctx, s.state); err != nil {
		return nil, err
	}
	example := filepath.Join(root, "examples", "quickstart")
	if err := harness.ImportPlayer(ctx, example, image); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, s.environment(ctx,
		sandbox.PutEnvironment{ID: environment, EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeRPG}})
}

// start starts the reconciler.
func (s *stage) start(ctx context.Context) error { return s.reconciler.Start(ctx, s.priceBook()) }

func (s *stage) priceBook() string {
	return filepath.Join(s.root, "examples", "quickstart", "prices.json")
}

// environment creates an environment of the stage's image whose sandboxes never fall asleep by themselves.
func (s *stage) environment(ctx context.Context, p sandbox.PutEnvironment) error {
	never := sandbox.Duration(0)
	p.Image, p.Network, p.SleepAfter = image, sandbox.NetworkNone, &never
	_, err := s.reconciler.Service.PutEnvironment(ctx, p)
	return err
}

// close removes everything, even after an interrupted run.
func (s *stage) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var all []error
	if s.reconciler.Service != nil {
		environments, err := s.reconciler.Service.ListEnvironments(ctx)
		all = append(all, err)
		for _, e := range environments {
			all = append(all, s.reconciler.Service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: e.ID, Force: true}))
		}
	}
	all = append(all, s.reconciler.Stop(ctx))
	if images, err := harness.Docker(ctx, "image", "ls", "--quiet", image); err != nil || len(images) == 0 {
		all = append(all, err)
	} else {
		_, err := harness.Docker(ctx, "image", "rm", image)
		all = append(all, err)
	}
	all = append(all, harness.StopEngine(ctx, s.state))
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("clean up (what is left is in %s): %w", s.state, err)
	}
	return os.RemoveAll(s.state)
}
