package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/helper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A sandbox of a warm pool gets its lease over its channel. Its process 1 stores the lease in a separate
// volume, the lease volume, so that a start after a stop finds it.

// pooled reports whether a sandbox is created for a warm pool, without a lease.
func pooled(spec driver.SandboxSpec) bool { return spec.AgentDID == "" }

func leaseMount(h driver.Handle) dockerapi.Mount {
	m := engine.VolumeMount(objects.LeaseVolume(h), guest.LeaseDir, objects.HandleLabels(h, objects.RoleLease))
	m.VolumeOptions.NoCopy = true
	return m
}

// assignTries limits the attempts to send an assignment. Process 1 accepts the same assignment again.
const assignTries = 3

// Assign implements driver.Lifecycle. It does not call the engine while the sandbox answers.
func (e *Executor) Assign(ctx context.Context, spec driver.SandboxSpec) error {
	if err := checkSpec(spec); err != nil {
		return err
	}
	end := endOf(spec)
	if spec.UsesGateway() {
		if err := e.gateways.Admit(ctx, spec); err != nil {
			return err
		}
	}
	ends, err := e.engine.EndsAt(ctx, spec.Instance, end)
	if err != nil {
		return err
	}
	if err := e.assignOne(ctx, spec, ends); err != nil {
		return err
	}
	return e.assignCompanions(ctx, spec, ends)
}

// endOf returns the deadline of a specification on this machine's clock. Call it as soon as the specification
// arrives.
func endOf(spec driver.SandboxSpec) time.Time {
	if spec.AsOf.IsZero() {
		return spec.Deadline
	}
	return time.Now().Add(spec.Deadline.Sub(spec.AsOf))
}

// assignOne gives the container of a sandbox, or of a companion, to a lease.
func (e *Executor) assignOne(ctx context.Context, spec driver.SandboxSpec, ends wire.Ends) error {
	id := "assign " + objects.OwnID(spec.Handle)
	call := helper.Call{Request: channel.Request{Op: channel.OpAssign, ID: id, Lease: &wire.Lease{
		ID: fmt.Sprintf("%s#%d", spec.LeaseID, spec.Generation), Env: spec.SystemVariables(), Config: string(spec.Config),
		Deadline: ends.At, Ends: ends, Sync: spec.SleepMode == sandbox.SleepStop,
	}}}
	for try := 1; ; try++ {
		res, err := e.channels.Call(ctx, spec.Handle, call)
		switch {
		case sandbox.CodeOf(err) == sandbox.UnknownOutcome && try < assignTries:
			continue
		case err != nil:
			return err
		case res.Problem == "":
			return nil
		}
		fail := sandbox.Errorf(sandbox.Failed, "docker: sandbox %s: it was not assigned: %s", spec.SandboxID, res.Message)
		if res.Problem == wire.ProblemConflict {
			fail.Code = sandbox.Conflict
			return fail.WithReason(sandbox.ReasonInvalidState)
		}
		return fail.WithReason(sandbox.ReasonCreationFailed)
	}
}
