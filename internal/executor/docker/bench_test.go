package docker_test

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
)

// BenchmarkColdSpawn compares Spawn and Kill with `docker run -d` and `docker rm -f` of a container with the same
// settings, alternating in one run. It reports the ratios of the medians. The plain commands do not include the removal
// of the volumes.
func BenchmarkColdSpawn(b *testing.B) {
	w := newWorld(b, dockertest.Busybox(b))
	var spawn, kill, run, remove []time.Duration
	for b.Loop() {
		spec := w.spec()
		spawn = append(spawn, timed(b, func() error { return w.x.Spawn(b.Context(), spec) }))
		kill = append(kill, timed(b, func() error { return w.x.Kill(b.Context(), spec.Handle) }))
		name := "sandbox-bench-" + spec.SandboxID
		run = append(run, timed(b, func() error { return dockerRun(b, name, spec) }))
		remove = append(remove, timed(b, func() error { return command(b, "docker", "rm", "-f", name) }))
		must(b, command(b, "docker", "volume", "rm", name+"-guest", name+"-workspace", name+"-data"))
	}
	report := func(what string, ours, plain []time.Duration) {
		b.ReportMetric(float64(median(ours))/float64(time.Millisecond), what+"-ms")
		b.ReportMetric(float64(median(ours))/float64(median(plain)), what+"-ratio")
	}
	report("spawn", spawn, run)
	report("kill", kill, remove)
}

// dockerRun creates what Spawn does with a plain command, without the guest and without handing volumes over.
func dockerRun(b *testing.B, name string, spec driver.SandboxSpec) error {
	return command(b, "docker", "run", "-d", "--name", name, "--user", "1000:1000", "--read-only", "--cap-drop", "ALL",
		"--security-opt", "no-new-privileges", "--network", "none", "--ipc", "private", "--no-healthcheck",
		"--log-opt", "max-size=1m", "--log-opt", "max-file=1",
		"--tmpfs", "/tmp:rw,noexec,nosuid,nodev,size=512m,mode=1777",
		"--mount", "type=volume,src="+name+"-guest,dst=/.sandbox,readonly,volume-nocopy",
		"--mount", "type=volume,src="+name+"-workspace,dst=/workspace,volume-nocopy",
		"--mount", "type=volume,src="+name+"-data,dst=/data,volume-nocopy",
		"--memory", fmt.Sprintf("%dm", spec.Resources.MemoryMB), "--memory-swap", fmt.Sprintf("%dm", spec.Resources.MemoryMB),
		"--cpus", fmt.Sprintf("%.3f", float64(spec.Resources.CPUMillis)/1000),
		"--pids-limit", fmt.Sprint(spec.Resources.PIDs), "--env", "IS_SANDBOXED=true", spec.Image, "sleep", "3600")
}

func command(b *testing.B, args ...string) error {
	out, err := exec.CommandContext(b.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}

func timed(b *testing.B, f func() error) time.Duration {
	b.Helper()
	began := time.Now()
	must(b, f())
	return time.Since(began)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
