package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// The rounds of each network benchmark. Starts vary more than transfers, and are faster.
const (
	startRounds    = 25
	transferRounds = 8
)

// network runs benchmarks of the Docker executor, which have their own outside network: what a restricted network adds
// to a cold start, and the throughput of its gateway.
func network(ctx context.Context, _ *stage, _ options) ([]result, error) {
	const pkg = "./internal/executor/docker"
	metrics, err := benchmarks(ctx, pkg, "^BenchmarkRestrictedSpawn$", startRounds)
	if err != nil {
		return nil, err
	}
	transfers, err := benchmarks(ctx, pkg, "^BenchmarkRestricted(Throughput|Latency)$", transferRounds)
	if err != nil {
		return nil, err
	}
	maps.Copy(metrics, transfers)
	figure := func(benchmark, unit string) (v float64) {
		v, ok := metrics[benchmark+" "+unit]
		if !ok && err == nil {
			err = fmt.Errorf("benchmark %s reports no %s", benchmark, unit)
		}
		return v
	}
	const spawn, tls, plain, latency = "BenchmarkRestrictedSpawn", "BenchmarkRestrictedThroughput/https",
		"BenchmarkRestrictedThroughput/http", "BenchmarkRestrictedLatency"
	results := []result{
		atMost("cold start, restricted / none, p50", figure(spawn, "restricted-ratio"), "ratio", 1.15,
			fmt.Sprintf("none: %.0f ms", figure(spawn, "none-ms"))),
		atLeast("throughput through the gateway / direct, TLS", figure(tls, "gateway-ratio"), "ratio", 0.3,
			fmt.Sprintf("direct: %.0f MiB/s", figure(tls, "direct-MiB/s"))),
		atLeast("throughput through the gateway / direct, plain HTTP", figure(plain, "gateway-ratio"), "ratio", 0.3,
			fmt.Sprintf("direct: %.0f MiB/s", figure(plain, "direct-MiB/s"))),
		atMost("request through the gateway, added, p50", figure(latency, "added-ms"), "ms", 1,
			fmt.Sprintf("direct: %.2f ms", figure(latency, "direct-ms"))),
		atMost("memory of process 1 after 4 GiB", figure(plain, "process-1-MiB"), "MiB", 5,
			"of its own, without the program's pages"),
	}
	return results, err
}

// benchmarks runs Go benchmarks, and returns their figures by "benchmark unit".
func benchmarks(ctx context.Context, pkg, which string, rounds int) (map[string]float64, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", which,
		"-benchtime", strconv.Itoa(rounds)+"x", pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run the benchmarks %s of %s: %w: %s", which, pkg, err, out)
	}
	metrics := make(map[string]float64)
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := f[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 { // the number of CPUs
			name = name[:i]
		}
		for i := 2; i+1 < len(f); i += 2 {
			value, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("read what the benchmarks of %s say: %q: %w", pkg, lines.Text(), err)
			}
			metrics[name+" "+f[i+1]] = value
		}
	}
	return metrics, nil
}
