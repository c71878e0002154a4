package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	imagebuild "github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// The size of the build context, and the targets: seconds of a plan without changes, megabytes hashed per second, and a
// rebuild in Terraform relative to docker build.
const (
	contextFiles    = 5000
	contextFileSize = 20_000 // bytes
	noopPlanTarget  = 0.4
	hashTarget      = 400
	rebuildTarget   = 1.2
)

// images measures a plan without changes, and a rebuild after a small change in Terraform and by docker build.
func images(ctx context.Context, s *stage, _ options) (_ []result, err error) {
	dir := filepath.Join(s.state, "context")
	if err := writeContext(dir); err != nil {
		return nil, err
	}
	hash, err := best(5, func() error { _, err := imagebuild.Spec{Context: dir}.Hash(); return err })
	if err != nil {
		return nil, err
	}
	t, err := imageConfiguration(s, dir)
	if err != nil {
		return nil, err
	}
	if _, err := t.Run(ctx, s.reconciler, "init", "-input=false"); err != nil {
		return nil, err
	}
	apply := func() error { _, err := t.Run(ctx, s.reconciler, "apply", "-input=false", "-auto-approve"); return err }
	if err := apply(); err != nil {
		return nil, err
	}
	defer func() {
		if _, destroyErr := t.Run(ctx, s.reconciler, "destroy", "-input=false", "-auto-approve"); err == nil {
			err = destroyErr
		}
	}()
	plan, err := best(5, func() error {
		_, err := t.Run(ctx, s.reconciler, "plan", "-input=false", "-detailed-exitcode") // fails when there are changes
		return err
	})
	if err != nil {
		return nil, err
	}
	ours, plain, err := rebuilds(ctx, dir, apply)
	if err != nil {
		return nil, err
	}
	const megabytes = contextFiles * contextFileSize / 1e6
	return []result{
		atMost("terraform plan of an image, nothing to do", plan.Seconds(), "s", noopPlanTarget,
			fmt.Sprintf("%d files, %.0f MB", contextFiles, megabytes)),
		atLeast("build context hashed", megabytes/hash.Seconds(), "MB/s", hashTarget, hash.Round(time.Millisecond).String()),
		atMost("rebuild of an image by terraform apply / docker build", ours.Seconds()/plain.Seconds(), "x", rebuildTarget,
			fmt.Sprintf("%.2f s / %.2f s", ours.Seconds(), plain.Seconds())),
	}, nil
}

// rebuilds changes a file before each build. Both ways alternate.
func rebuilds(ctx context.Context, dir string, apply func() error) (ours, plain time.Duration, err error) {
	var built []string // each has its own name, so that no image loses its name
	round := 0
	changed := func(build func() error) (time.Duration, error) {
		round++
		if err := os.WriteFile(filepath.Join(dir, "round.txt"), fmt.Append(nil, round), 0o600); err != nil {
			return 0, err
		}
		return timed(build)
	}
	docker := func() error {
		name := fmt.Sprintf("sandbox-bench-plain:%d", round)
		built = append(built, name)
		_, err := harness.Docker(ctx, "build", "--quiet", "--tag", name, dir)
		return err
	}
	defer func() {
		if len(built) == 0 {
			return
		}
		if _, removeErr := harness.Docker(ctx, append([]string{"image", "rm"}, built...)...); err == nil {
			err = removeErr
		}
	}()
	for range 3 {
		a, err := changed(apply)
		if err != nil {
			return 0, 0, err
		}
		b, err := changed(docker)
		if err != nil {
			return 0, 0, err
		}
		ours, plain = shorter(ours, a), shorter(plain, b)
	}
	return ours, plain, nil
}

// best returns the shortest of several tries.
func best(tries int, do func() error) (shortest time.Duration, err error) {
	for range tries {
		d, err := timed(do)
		if err != nil {
			return 0, err
		}
		shortest = shorter(shortest, d)
	}
	return shortest, nil
}

// shorter returns the shorter of two times. The first may be 0, for unknown.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

func writeContext(dir string) error {
	for i := range contextFiles {
		path := filepath.Join(dir, fmt.Sprintf("d%d", i%50), fmt.Sprintf("f%d", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		content := make([]byte, contextFileSize)
		copy(content, path)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY . /\n"), 0o600)
}

func imageConfiguration(s *stage, dir string) (harness.Terraform, error) {
	t := harness.Terraform{Dir: filepath.Join(s.state, "image"), State: s.state}
	if err := os.MkdirAll(t.Dir, 0o700); err != nil {
		return t, err
	}
	config := fmt.Sprintf(`terraform {
  required_providers {
    sandbox = { source = "sandbox-lease/sandbox" }
  }
}

provider "sandbox" {}

resource "sandbox_container_image" "bench" {
  name = "sandbox-bench-image"
  build = {
    context = %q
  }
}
`, dir)
	if err := os.WriteFile(filepath.Join(t.Dir, "main.tf"), []byte(config), 0o600); err != nil {
		return t, err
	}
	return t, t.Install(filepath.Join(s.root, harness.Binary))
}
