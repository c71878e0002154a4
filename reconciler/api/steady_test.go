package api_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// contents is a service whose files, workspaces and logs have the content of the test.
type contents struct {
	service.Service
	read io.ReadCloser
}

func (c contents) ReadFiles(context.Context, sandbox.LeaseRef, string) (io.ReadCloser, error) {
	return c.read, nil
}

func (c contents) ReadFile(context.Context, sandbox.LeaseRef, sandbox.FileRead) (sandbox.FileContent, error) {
	return sandbox.FileContent{ReadCloser: c.read, Size: sandbox.MaxFileBytes}, nil
}

func (c contents) CollectWorkspace(context.Context, sandbox.LeaseRef, sandbox.WorkspaceForm) (io.ReadCloser, error) {
	return c.read, nil
}

func (c contents) ReadProcess(context.Context, sandbox.LogRequest) (sandbox.ProcessLog, error) {
	return sandbox.ProcessLog{ReadCloser: c.read}, nil
}

// flood is content without an end.
type flood struct{ closed chan struct{} }

func (f flood) Read(p []byte) (int, error) { return len(p), nil }

func (f flood) Close() error {
	close(f.closed)
	return nil
}

// TestAReaderOfFilesThatDoesNotReadIsCutOff: otherwise it would hold its sandbox forever.
func TestAReaderOfFilesThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	for path, accept := range map[string]string{
		"/files?path=a": wire.Tar, "/files?path=b": wire.OctetStream, "/workspace/bundle": wire.OctetStream,
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			content := flood{make(chan struct{})}
			w := newWorld(t, func(c *api.Config) {
				c.Service, c.StreamTimeout = contents{c.Service, content}, 100*time.Millisecond
			})
			resp := w.open(t.Context(), "GET", annIn+path, nil, "Accept", accept)
			select {
			case <-content.closed:
			case <-time.After(10 * time.Second):
				t.Fatal("its content stays open")
			}
			if n, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Errorf("%d bytes arrived, and then a clean end", n)
			}
		})
	}
}

// pausing has some content, and its end later.
type pausing struct {
	io.Reader
	pause time.Duration
}

func (p pausing) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		time.Sleep(p.pause) //nolint:forbidigo // the pause is what the test is about
	}
	return n, err
}

// TestAResponseThatPausesBeforeItsEndIsWhole: the server sends the end of a response after the handler, perhaps long
// after the last write.
func TestAResponseThatPausesBeforeItsEndIsWhole(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	const n = 8000
	for _, path := range []string{"/files?path=a", "/workspace/diff", "/processes/relay/logs?follow=true"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *api.Config) {
				content := pausing{strings.NewReader(strings.Repeat("x", n)), 3 * timeout}
				c.Service, c.StreamTimeout = contents{c.Service, io.NopCloser(content)}, timeout
			})
			resp := w.open(t.Context(), "GET", annIn+path, nil, "Accept", wire.Tar)
			if got, err := io.Copy(io.Discard, resp.Body); err != nil || got != n {
				t.Errorf("%d bytes of %d arrived: %v", got, n, err)
			}
		})
	}
	t.Run("agent", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, func(c *api.Config) { c.StreamTimeout = timeout })
		w.agents()
		out, in := io.Pipe()
		resp := w.open(t.Context(), "POST", chat+"/echo", out)
		if _, err := io.WriteString(in, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * timeout) //nolint:forbidigo // the pause is what the test is about
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
			t.Errorf("in the end, %d bytes and %v arrive", len(rest), err)
		}
	})
}
