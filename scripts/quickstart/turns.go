package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// turn is one entry of the example's turns.json.
type turn struct {
	Agent       string          `json:"agent_did"`
	Environment string          `json:"environment_id"`
	Input       json.RawMessage `json:"turn"`
}

// play is step 4: each agent takes one turn in its sandbox.
func (q *quickstart) play(ctx context.Context) (outcome, error) {
	turns, err := q.turns()
	if err != nil {
		return outcome{}, err
	}
	o := outcome{line: fmt.Sprintf("%d agents took a turn, each in its own sandbox", len(turns))}
	for _, t := range turns {
		told, err := q.take(ctx, t)
		if err != nil {
			return outcome{}, err
		}
		o.details = append(o.details, told)
	}
	return o, nil
}

func (q *quickstart) turns() ([]turn, error) {
	text, err := os.ReadFile(filepath.Join(q.example, "turns.json"))
	if err != nil {
		return nil, err
	}
	var turns []turn
	if err := json.Unmarshal(text, &turns); err != nil {
		return nil, fmt.Errorf("read turns.json: %w", err)
	}
	return turns, nil
}

// take makes an agent take a turn and describes the result.
func (q *quickstart) take(ctx context.Context, t turn) (string, error) {
	lease := sandbox.LeaseRef{ID: sandbox.LeaseID(t.Agent, t.Environment)}
	result, err := q.reconciler.Service.Exec(ctx, lease, sandbox.ExecRequest{
		Command: []string{"/player"},
		Stdin:   bytes.NewReader(t.Input),
	})
	if err != nil {
		return "", err
	}
	if result.ExitCode != 0 {
		return "", fmt.Errorf("the turn of %s ended with exit code %d: %s", lease.ID, result.ExitCode, result.Stderr)
	}
	var action struct{ Agent, Do, On, Give, Why string }
	if err := json.Unmarshal(result.Stdout, &action); err != nil {
		return "", fmt.Errorf("the turn of %s gave %q: %w", lease.ID, result.Stdout, err)
	}
	if action.Agent != t.Agent || action.Do == "" {
		return "", fmt.Errorf("the turn of %s gave %q", lease.ID, result.Stdout)
	}
	done := strings.Join(strings.Fields(action.Do+" "+action.Give+" "+action.On), " ")
	return fmt.Sprintf("%-14s %-8s %-30s %s", t.Agent, t.Environment, done, action.Why), nil
}
