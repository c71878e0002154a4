package cloudflare_test

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

//go:embed testdata/bare.js
var bareScript string

// BenchmarkAgainstBare measures the overhead of our Worker: starts and commands alternate between our Worker and a bare
// one. The figures are medians.
func BenchmarkAgainstBare(b *testing.B) {
	image := cloudflaretest.Busybox(b)
	ours := cloudflaretest.Start(b, cloudflaretest.Config{Image: image})
	bare := cloudflaretest.Start(b, cloudflaretest.Config{Image: image, Script: bareScript})
	worker, call := ours.Worker(), bareCaller(b, bare.URL)
	echo, err := sandbox.ExecRequest{Command: []string{"/bin/echo", "hello"}}.Normalize()
	if err != nil {
		b.Fatal(err)
	}
	var start, exec pairs
	for b.Loop() {
		spec := benchSpec(ours)
		start.measure(b, func(ctx context.Context) error { return worker.Spawn(ctx, spec, cloudflare.Limits{}) },
			func(ctx context.Context) error { return call(ctx, "start", spec.SandboxID) })
		for range 10 {
			exec.measure(b, func(ctx context.Context) error { _, err := worker.Exec(ctx, spec.Handle, echo); return err },
				func(ctx context.Context) error { return call(ctx, "exec", spec.SandboxID) })
		}
		if err := worker.Kill(b.Context(), spec.Handle); err != nil {
			b.Fatal(err)
		}
		if err := call(b.Context(), "destroy", spec.SandboxID); err != nil {
			b.Fatal(err)
		}
	}
	start.report(b, "start")
	exec.report(b, "exec")
}

func benchSpec(s *cloudflaretest.Server) driver.SandboxSpec {
	return driver.SandboxSpec{
		Handle: driver.Handle{
			LedgerID:      "ledgerofbench222",
			EnvironmentID: "bench-1",
			Instance:      s.Instance,
			SandboxID:     sandbox.RandomIDs(sandbox.SandboxIDLength),
		},
		AgentDID: "did:plc:bench", Network: sandbox.NetworkNone, Deadline: time.Now().Add(time.Hour),
	}
}

// bareCaller returns a function that calls the bare Worker.
func bareCaller(b *testing.B, url string) func(ctx context.Context, verb, id string) error {
	client := &http.Client{Transport: &http.Transport{}}
	b.Cleanup(client.CloseIdleConnections)
	return func(ctx context.Context, verb, id string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/"+verb+"?id="+id, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", verb, answer.Status)
		}
		return nil
	}
}

// pairs are the durations of the same operations with both Workers.
type pairs struct{ ours, bare []time.Duration }

func (p *pairs) measure(b *testing.B, ours, bare func(context.Context) error) {
	b.Helper()
	timed := func(f func(context.Context) error) time.Duration {
		began := time.Now()
		if err := f(b.Context()); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	p.ours, p.bare = append(p.ours, timed(ours)), append(p.bare, timed(bare))
}

func (p *pairs) report(b *testing.B, what string) {
	median := func(d []time.Duration) float64 {
		return float64(slices.Sorted(slices.Values(d))[len(d)/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(p.ours), what+"-ms")
	b.ReportMetric(median(p.bare), "bare-"+what+"-ms")
	b.ReportMetric(median(p.ours)/median(p.bare), what+"-ratio")
}
