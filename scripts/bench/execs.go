package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Targets of one command at a time.
const (
	execTarget = 5    // ms
	execRatio  = 0.15 // of docker exec
)

// execs measures the round trip of a command over HTTP, next to `docker exec` with the same client library in the same
// container.
func execs(ctx context.Context, s *stage, o options) (_ []result, err error) {
	id, err := s.roomy(ctx)
	if err != nil {
		return nil, err
	}
	got, err := s.reconciler.Service.Acquire(ctx, sandbox.Acquire{AgentDID: "did:plc:exec", EnvironmentID: id})
	if err != nil {
		return nil, err
	}
	ledger, err := s.reconciler.Service.Ledger(ctx)
	if err != nil {
		return nil, err
	}
	api, err := docker.NewClient(docker.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	parts, err := newParts(ctx, s, sandbox.LeaseRef{ID: got.Lease.ID})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, parts.close()) }()
	run := func() error {
		_, err := s.reconciler.Service.Exec(ctx, sandbox.LeaseRef{ID: got.Lease.ID},
			sandbox.ExecRequest{Command: []string{"/player"}})
		return err
	}
	if err := parts.measure(ctx, o.rounds); err != nil {
		return nil, err
	}
	least, stop, err := startFloor(ctx, s, "exec")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	took, err := inTurns(4*o.rounds,
		func() error { return plainExec(ctx, api, "sandbox-"+ledger.ID+"-"+got.Lease.SandboxID) },
		run,
		func() error {
			_, err := least.Exec(ctx, sandbox.LeaseRef{ID: got.Lease.ID}, sandbox.ExecRequest{Command: []string{parts.player}})
			return err
		})
	if err != nil {
		return nil, err
	}
	plain, ours := took[0], took[1]
	if _, err := s.reconciler.Service.Release(ctx, sandbox.LeaseRef{ID: got.Lease.ID}); err != nil {
		return nil, err
	}
	return append(parts.results(), []result{
		atMost("a command over HTTP, one after the other", milliseconds(ours), "ms, p50", execTarget,
			"of a program that runs 1 ms"),
		{"a command over HTTP, the least", milliseconds(took[2]), "ms, p50", 0, true, leastDetail},
		atMost("a command over HTTP / docker exec", ours.Seconds()/plain.Seconds(), "ratio of p50", execRatio,
			fmt.Sprintf("%.1f ms over HTTP against %.1f ms", milliseconds(ours), milliseconds(plain))),
	}...), nil
}

// plainExec runs the same command as `docker exec` does.
func plainExec(ctx context.Context, api *dockerapi.Client, name string) error {
	made, err := api.ContainerExecCreate(ctx, name,
		dockerapi.ExecOptions{Cmd: []string{"/player"}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	streams, err := api.ContainerExecAttach(ctx, made.ID, dockerapi.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer streams.Close()
	if _, err := io.Copy(io.Discard, streams.Reader); err != nil {
		return err
	}
	_, err = api.ContainerExecInspect(ctx, made.ID)
	return err
}
