package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// Targets of the Cloudflare Worker: ratios to a bare Durable Object, and kilobytes.
const (
	workerStartTarget = 1.15
	workerExecTarget  = 1.2
	bundleTarget      = 300
)

// workerRounds is how many sandboxes start in each way. Each runs ten commands.
const workerRounds = 30

// worker measures what our Worker adds to starts and commands. It compares it with a Worker that only has a Durable
// Object with a container, in the real runtime on this machine. The benchmark itself is beside the Worker's tests.
func worker(ctx context.Context, s *stage, _ options) ([]result, error) {
	const pkg = "./internal/executor/cloudflare"
	bundle, err := os.Stat(filepath.Join(s.root, pkg, "embedded", "worker.js"))
	if os.IsNotExist(err) {
		fmt.Fprintln(os.Stderr, "bench: the Cloudflare Worker is not measured, for it is not built: run make worker")
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	cmd := harness.Command(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkAgainstBare$",
		"-benchtime", fmt.Sprintf("%dx", workerRounds), pkg)
	cmd.Env = append(os.Environ(), "SANDBOX_TEST_ALL=1")
	out, err := harness.Collect(cmd)
	if err != nil {
		return nil, err
	}
	metrics := map[string]float64{}
	for _, m := range regexp.MustCompile(`([0-9.]+) ([a-z-]+)`).FindAllStringSubmatch(out, -1) {
		if v, err := strconv.ParseFloat(m[1], 64); err == nil {
			metrics[m[2]] = v
		}
	}
	against := func(what string, target float64) result {
		return atMost(fmt.Sprintf("Cloudflare: %s by the Worker / by a bare Durable Object", what), metrics[what+"-ratio"],
			"ratio of p50", target, fmt.Sprintf("%.0f ms against %.0f ms", metrics[what+"-ms"], metrics["bare-"+what+"-ms"]))
	}
	for _, what := range []string{"start-ratio", "exec-ratio"} {
		if metrics[what] == 0 {
			return nil, fmt.Errorf("the benchmark of the Worker gave no %s:\n%s", what, out)
		}
	}
	return []result{
		against("start", workerStartTarget), against("exec", workerExecTarget),
		atMost("Cloudflare: size of the Worker's bundle", float64(bundle.Size())/1000, "kB", bundleTarget, ""),
	}, nil
}
