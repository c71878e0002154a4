package client_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// echoing is a service whose commands write what they read.
type echoing struct{ service.Service }

func (echoing) Exec(_ context.Context, _ sandbox.LeaseRef, r sandbox.ExecRequest) (res sandbox.ExecResult, err error) {
	_, err = io.Copy(r.Stdout, r.Stdin)
	return res, err
}

// BenchmarkEcho measures client and API: commands that take no time, without input and with 64 KiB in and out.
func BenchmarkEcho(b *testing.B) {
	handler, text := handlerOf(b, servicetest.Env{Service: echoing{}, Now: time.Now})
	server := httptest.NewServer(handler)
	defer server.Close()
	c, err := client.New(client.Config{URL: server.URL, Token: text})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	binary := make([]byte, 64<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(binary) // never fails
	for name, content := range map[string][]byte{
		"nothing": {}, "binary": binary, "text": bytes.Repeat([]byte("a line\n"), 64<<10/7),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				res, err := c.Exec(b.Context(), ref, sandbox.ExecRequest{
					Command: []string{"cat"}, Stdin: bytes.NewReader(content)})
				if err != nil || !bytes.Equal(res.Stdout, content) {
					b.Fatalf("%d bytes came back of %d: %v", len(res.Stdout), len(content), err)
				}
			}
		})
	}
}
