// Command bench compares the reconciler with the plain way of doing the same, in one run on one machine. It prints a
// table and writes bench/results.json. A missed target is reported, and is not a failure. Run it from the root of the
// repository after `make build`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 40, "how often a container is started and ended in each way")
	flag.DurationVar(&o.storm, "storm", 5*time.Second, "how long webhooks are sent")
	flag.IntVar(&o.clients, "clients", 64, "how many clients send webhooks at once")
	flag.IntVar(&o.leases, "leases", 50, "how many leases one batch acquires, and Terraform plans and applies")
	flag.IntVar(&o.players, "players", 100, "how many leases one condition ends")
	flag.IntVar(&o.living, "living", 200, "how many sandboxes live while the reconciler is restarted")
	flag.StringVar(&o.peer, "peer", "", "file of the provider kreuzwerker/docker, to compare Terraform's runs with")
	only := flag.String("only", "", "measure only these, separated by commas: "+strings.Join(names(), ", "))
	bare := flag.String("bare", "", "answer messages signed with the secrets of this file, and do nothing else")
	ground := flag.String("floor", "", "answer commands with this token by running them here, and do nothing else")
	stored := flag.String("rows", "", "with -bare or -floor, store rows in this new SQLite file")
	flag.Parse()
	if *bare != "" {
		fmt.Fprintln(os.Stderr, "bench:", serveBare(*bare, *stored))
		os.Exit(1)
	}
	if *ground != "" {
		fmt.Fprintln(os.Stderr, "bench:", serveFloor(*ground, *stored))
		os.Exit(1)
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	rounds, clients, leases, players, living int

	only  []string // nil: all
	peer  string   // "": none
	storm time.Duration
}

// measures run one after the other, on one stage.
var measures = []struct {
	name string
	take func(context.Context, *stage, options) ([]result, error)
}{
	{"lives", lives},
	{"pools", pools},
	{"games", games},
	{"tables", tables},
	{"restarts", restarts},
	{"crowds", crowds},
	{"network", network},
	{"models", models},
	{"exec", execs},
	{"commands", commands},
	{"agents", agents},
	{"memory", memory},
	{"history", history},
	{"storm", storm},
	{"plans", plans},
	{"images", images},
	{"worker", worker},
}

func names() []string {
	list := make([]string, len(measures))
	for i, m := range measures {
		list[i] = m.name
	}
	return list
}

// result is one line of bench/results.json.
type result struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Target float64 `json:"target,omitzero"` // 0: none
	Met    bool    `json:"met"`
	// detail explains the value in the table.
	detail string
}

// atMost and atLeast return results whose target is an upper or a lower bound.
func atMost(name string, value float64, unit string, target float64, detail string) result {
	return result{name, value, unit, target, value <= target, detail}
}

func atLeast(name string, value float64, unit string, target float64, detail string) result {
	return result{name, value, unit, target, value >= target, detail}
}

// part returns a result without a target, which explains another one.
func part(name string, took []time.Duration, detail string) result {
	return result{name, milliseconds(median(took)), "ms, p50", 0, true, detail}
}

func run(ctx context.Context, o options) (err error) {
	s, err := newStage(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := s.close(); err == nil {
			err = closeErr
		}
	}()
	var results []result
	for _, m := range measures {
		if o.only != nil && !slices.Contains(o.only, m.name) {
			continue
		}
		r, err := m.take(ctx, s, o)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		results = append(results, r...)
		// Results stay when a later measure fails.
		if err := errors.Join(show(r), write(results)); err != nil {
			return err
		}
	}
	return nil
}

func show(results []result) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "measure\tvalue\tunit\ttarget\tmet\t")
	for _, r := range results {
		target, met := strconv.FormatFloat(r.Target, 'g', -1, 64), "yes"
		switch {
		case r.Target == 0:
			target, met = "", ""
		case !r.Met:
			met = "no"
		}
		fmt.Fprintf(table, "%s\t%.4g\t%s\t%s\t%s\t%s\n", r.Name, r.Value, r.Unit, target, met, r.detail)
	}
	return table.Flush()
}

func write(results []result) error {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join("bench", "results.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
