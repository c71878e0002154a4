package docker_test

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
)

// BenchmarkRestrictedSpawn compares Spawn of sandboxes with and without a gateway, alternating in one run. It reports
// the ratio of the medians.
func BenchmarkRestrictedSpawn(b *testing.B) {
	r := newRestricted(b)
	var out, none []time.Duration
	for b.Loop() {
		for _, row := range []struct {
			spec  driver.SandboxSpec
			times *[]time.Duration
		}{{r.spec(), &out}, {r.world.spec(), &none}} {
			*row.times = append(*row.times, timed(b, func() error { return r.x.Spawn(b.Context(), row.spec) }))
			must(b, r.x.Kill(context.WithoutCancel(b.Context()), row.spec.Handle))
		}
	}
	b.ReportMetric(float64(median(none))/float64(time.Millisecond), "none-ms")
	b.ReportMetric(float64(median(out))/float64(median(none)), "restricted-ratio")
}

// beside returns a sandbox with a gateway, and a function that runs the same probe in a container on the outside's own
// network.
func (r *restricted) beside(b *testing.B) (h driver.Handle, direct func(args ...string) string) {
	b.Helper()
	spec := r.spec()
	spec.Resources.CPUMillis = 2000
	must(b, r.x.Spawn(b.Context(), spec))
	return spec.Handle, func(args ...string) string {
		out, err := exec.CommandContext(b.Context(), "docker", append([]string{
			"run", "--rm", "--network", r.network, "--cpus", "2",
			"--add-host", "good.test:" + r.outside, "--entrypoint", "/probe", r.image,
		}, args...)...).Output()
		must(b, err)
		return string(out)
	}
}

// BenchmarkRestrictedThroughput compares 256 MiB through the gateway with the same over a network of the engine,
// alternating in one run. It reports the ratio of the medians, and the memory of process 1 afterwards.
func BenchmarkRestrictedThroughput(b *testing.B) {
	r := newRestricted(b)
	h, direct := r.beside(b)
	for _, scheme := range []string{"https", "http"} {
		b.Run(scheme, func(b *testing.B) {
			var through, past []time.Duration
			url := scheme + "://good.test/zeros"
			for b.Loop() {
				through = append(through, took(b, r.probe(b, h, "pull", url), 256<<20))
				past = append(past, took(b, direct("pull", url), 256<<20))
			}
			b.ReportMetric(256/median(past).Seconds(), "direct-MiB/s")
			b.ReportMetric(float64(median(past))/float64(median(through)), "gateway-ratio")
			kib, err := strconv.ParseFloat(r.probe(b, h, "memory"), 64)
			must(b, err)
			b.ReportMetric(kib/1024, "process-1-MiB")
		})
	}
}

// BenchmarkRestrictedLatency compares requests with TLS through the gateway with the same over a network of the engine,
// alternating in one run. It reports the difference of the medians.
func BenchmarkRestrictedLatency(b *testing.B) {
	r := newRestricted(b)
	h, direct := r.beside(b)
	var through, past []time.Duration
	for b.Loop() {
		through = append(through, took(b, r.probe(b, h, "round", "https://good.test/"), 200))
		past = append(past, took(b, direct("round", "https://good.test/"), 200))
	}
	b.ReportMetric(float64(median(past))/float64(time.Millisecond), "direct-ms")
	b.ReportMetric(float64(median(through)-median(past))/float64(time.Millisecond), "added-ms")
}

// took parses the output of probe: a time and a size.
func took(b *testing.B, said string, want int64) time.Duration {
	b.Helper()
	var d time.Duration
	var n int64
	if _, err := fmt.Sscan(said, &d, &n); err != nil || n != want {
		b.Fatalf("it says %q, %v", said, err)
	}
	return d
}
