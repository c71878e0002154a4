package api

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s scoped) StartProcess(ctx context.Context, r sandbox.LeaseRef, p sandbox.ProcessSpec) (sandbox.Process, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.Process{}, err
	}
	return s.service.StartProcess(ctx, r, p)
}

func (s scoped) GetProcess(ctx context.Context, r sandbox.ProcessRef) (sandbox.Process, error) {
	if err := s.lease(ctx, r.LeaseRef.ID); err != nil {
		return sandbox.Process{}, err
	}
	return s.service.GetProcess(ctx, r)
}

func (s scoped) ListProcesses(ctx context.Context, leaseID string) ([]sandbox.Process, error) {
	if err := s.lease(ctx, leaseID); err != nil {
		return nil, err
	}
	return s.service.ListProcesses(ctx, leaseID)
}

func (s scoped) WaitProcess(ctx context.Context, w sandbox.ProcessWait) (sandbox.ProcessWaited, error) {
	if err := s.lease(ctx, w.LeaseRef.ID); err != nil {
		return sandbox.ProcessWaited{}, err
	}
	return s.service.WaitProcess(ctx, w)
}

func (s scoped) ReadProcess(ctx context.Context, l sandbox.LogRequest) (sandbox.ProcessLog, error) {
	if err := s.lease(ctx, l.LeaseRef.ID); err != nil {
		return sandbox.ProcessLog{}, err
	}
	return s.service.ReadProcess(ctx, l)
}

func (s scoped) KillProcess(ctx context.Context, r sandbox.ProcessRef) (sandbox.Process, error) {
	if err := s.lease(ctx, r.LeaseRef.ID); err != nil {
		return sandbox.Process{}, err
	}
	return s.service.KillProcess(ctx, r)
}
