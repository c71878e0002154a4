package docker_test

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// BenchmarkRestrictedSpawn compares Spawn of sandboxes with a way out with those without, alternating
// in one run. It reports the ratio of the medians.
func BenchmarkRestrictedSpawn(b *testing.B) {
	r := newRestricted(b)
	var out, none []time.Duration
	for b.Loop() {
		for _, row := range []struct {
			spec  sandbox.SandboxSpec
			times *[]time.Duration
		}{{r.spec(), &out}, {r.world.spec(), &none}} {
			*row.times = append(*row.times, timed(b, func() error { return r.x.Spawn(b.Context(), row.spec) }))
			must(b, r.x.Kill(context.WithoutCancel(b.Context()), row.spec.Handle))
		}
	}
	b.ReportMetric(float64(median(none))/float64(time.Millisecond), "none-ms")
	b.ReportMetric(float64(median(out))/float64(median(none)), "restricted-ratio")
}

// BenchmarkRestrictedThroughput compares 256 MiB through the gateway with the same on a network of the
// engine, alternating in one run. It reports the ratio of the medians.
func BenchmarkRestrictedThroughput(b *testing.B) {
	r := newRestricted(b)
	spec := r.spec()
	spec.Resources.CPUMillis = 2000
	must(b, r.x.Spawn(b.Context(), spec))
	direct := func(url string) string {
		out, err := exec.CommandContext(b.Context(), "docker", "run", "--rm", "--network", r.network, "--cpus", "2",
			"--add-host", "good.test:"+r.outside, "--entrypoint", "/probe", r.image, "pull", url).Output()
		must(b, err)
		return string(out)
	}
	for _, scheme := range []string{"https", "http"} {
		b.Run(scheme, func(b *testing.B) {
			var through, past []time.Duration
			url := scheme + "://good.test/zeros"
			for b.Loop() {
				through = append(through, took(b, r.probe(b, spec.Handle, "pull", url)))
				past = append(past, took(b, direct(url)))
			}
			b.ReportMetric(256/median(past).Seconds(), "direct-MiB/s")
			b.ReportMetric(float64(median(past))/float64(median(through)), "gateway-ratio")
		})
	}
}

// took reads what probe pull says.
func took(b *testing.B, said string) time.Duration {
	b.Helper()
	var d time.Duration
	var n int64
	if _, err := fmt.Sscan(said, &d, &n); err != nil || n != 256<<20 {
		b.Fatalf("it says %q, %v", said, err)
	}
	return d
}
