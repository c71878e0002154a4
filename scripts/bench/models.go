package main

import (
	"context"
	"fmt"
	"maps"
)

// modelRounds is how often a call is compared with a direct one.
const modelRounds = 60

// models runs benchmarks of the gateway: what a route adds to a call, and the costs of many streams.
func models(ctx context.Context, _ *stage, _ options) ([]result, error) {
	metrics, err := benchmarks(ctx, "./internal/gateway/llm", "^BenchmarkLatency$", modelRounds)
	if err != nil {
		return nil, err
	}
	streams, err := benchmarks(ctx, "./internal/gateway/cmd/gateway", "^BenchmarkStreams$", 1)
	if err != nil {
		return nil, err
	}
	maps.Copy(metrics, streams)
	var results []result
	for _, row := range []struct {
		name, metric, unit, of string
		most                   float64
	}{
		{"call of a model through the gateway, added, p50", "BenchmarkLatency whole-added-ms", "ms",
			"BenchmarkLatency whole-direct-ms", 2},
		{"first line of a stream through the gateway, later, p50", "BenchmarkLatency first-line-added-ms", "ms",
			"BenchmarkLatency first-line-direct-ms", 2},
		{"memory of a gateway for 200 open streams", "BenchmarkStreams added-MiB", "MiB", "", 64},
	} {
		value, ok := metrics[row.metric]
		if !ok {
			return nil, fmt.Errorf("no benchmark reports %s", row.metric)
		}
		detail := "of 256 MiB"
		if row.of != "" {
			detail = fmt.Sprintf("direct: %.1f ms, of which the upstream thinks 20", metrics[row.of])
		}
		results = append(results, atMost(row.name, value, row.unit, row.most, detail))
	}
	return results, nil
}
