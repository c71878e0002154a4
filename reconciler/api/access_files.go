package api

import (
	"context"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s scoped) WriteFiles(ctx context.Context, r sandbox.LeaseRef, dir string, tar io.Reader) error {
	if err := s.lease(ctx, r.ID); err != nil {
		return err
	}
	return s.service.WriteFiles(ctx, r, dir, tar)
}

func (s scoped) ReadFiles(ctx context.Context, r sandbox.LeaseRef, path string) (io.ReadCloser, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return nil, err
	}
	return s.service.ReadFiles(ctx, r, path)
}

func (s scoped) ReadFile(ctx context.Context, r sandbox.LeaseRef, f sandbox.FileRead) (sandbox.FileContent, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.FileContent{}, err
	}
	return s.service.ReadFile(ctx, r, f)
}

func (s scoped) WriteFile(ctx context.Context, r sandbox.LeaseRef, w sandbox.FileWrite, content io.Reader) error {
	if err := s.lease(ctx, r.ID); err != nil {
		return err
	}
	return s.service.WriteFile(ctx, r, w, content)
}

func (s scoped) StatFile(ctx context.Context, r sandbox.LeaseRef, path string) (sandbox.FileInfo, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.FileInfo{}, err
	}
	return s.service.StatFile(ctx, r, path)
}

func (s scoped) ListFiles(ctx context.Context, r sandbox.LeaseRef, q sandbox.FileQuery) ([]sandbox.FileInfo, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return nil, err
	}
	return s.service.ListFiles(ctx, r, q)
}

func (s scoped) RemoveFile(ctx context.Context, r sandbox.LeaseRef, f sandbox.FileRemoval) error {
	if err := s.lease(ctx, r.ID); err != nil {
		return err
	}
	return s.service.RemoveFile(ctx, r, f)
}
