package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// historyTarget bounds the CPU time of an operation on a ledger with a long history, relative to one without.
const historyTarget = 1.2

// historyOps are the benchmarks of internal/leasing that compare ledgers with and without a long history.
var historyOps = []struct{ name, what string }{
	{"acquire", "CPU of acquire with a budget, at 100,000 lease-days / at none"},
	{"get", "CPU of reading a lease, at 5,000 usage periods / at one"},
	{"renew", "CPU of renewing a lease, at 5,000 usage periods / at one"},
	{"list", "CPU of listing 20 leases, at 5,000 usage periods each / at one"},
	{"environments", "CPU of listing environments, at 100,000 lease-days / at none"},
	{"budgets", "CPU of checking budgets, at 100,000 lease-days / at none"},
}

// history measures how much more operations cost on a ledger with a long history. A reconciler would need months for
// such a history, so a Go benchmark writes it to the ledger.
func history(ctx context.Context, s *stage, _ options) ([]result, error) {
	command := exec.CommandContext(ctx, "go", "test", "./internal/leasing", "-run", "^$", "-bench", "^BenchmarkHistory$",
		"-benchtime", "50x")
	command.Dir = s.root
	output, err := command.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", command, err, output)
	}
	var results []result
	for _, op := range historyOps {
		line := regexp.MustCompile(`(?m)^BenchmarkHistory/` + op.name + `\S*\s.*?(\S+) cpu-µs/op\s+(\S+) ratio`).
			FindSubmatch(output)
		if line == nil {
			return nil, fmt.Errorf("%s: no result for %s\n%s", command, op.name, output)
		}
		ratio, err := strconv.ParseFloat(string(line[2]), 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		results = append(results, atMost(op.what, ratio, "ratio", historyTarget, fmt.Sprintf("%s µs of CPU each", line[1])))
	}
	return results, nil
}
