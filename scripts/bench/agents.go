package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Targets of requests to agents.
const (
	agentTarget = 5   // ms
	agentRate   = 200 // 1/s
)

// agents measures requests, through the reconciler, to a program that serves HTTP in a sandbox.
func agents(ctx context.Context, s *stage, o options) (_ []result, err error) {
	w, err := s.workplace(ctx, environment, "did:plc:agents")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(context.WithoutCancel(ctx))) }()
	if err := w.install(ctx, "agent"); err != nil {
		return nil, err
	}
	_, err = s.reconciler.Service.StartProcess(ctx, w.lease, sandbox.ProcessSpec{
		Name: "agent", Command: []string{"/workspace/agent"}, Endpoint: &sandbox.Endpoint{Port: 8080},
	})
	if err != nil {
		return nil, err
	}
	content := randomBytes(echoed)
	var small, large []time.Duration
	for round := range o.rounds + 1 {
		for _, row := range []struct {
			content []byte
			took    *[]time.Duration
		}{{nil, &small}, {content, &large}} {
			d, err := timed(func() error { return w.request(ctx, row.content) })
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first round waits for the program
				*row.took = append(*row.took, d)
			}
		}
	}
	n, took, err := fromClients(ctx, func(ctx context.Context) error { return w.request(ctx, nil) })
	if err != nil {
		return nil, err
	}
	return []result{
		atMost("request to an agent", milliseconds(median(small)), "ms, p50", agentTarget, ""),
		part("request to an agent, 64 KiB there and back", large, ""),
		atLeast(fmt.Sprintf("requests to an agent, %d clients", commandClients),
			float64(n)/took.Seconds(), "1/s", agentRate, ""),
	}, nil
}

// request sends content to the program, which sends it back.
func (w *workplace) request(ctx context.Context, content []byte) error {
	url := w.s.reconciler.URL + "/v1/leases/" + w.lease.ID + "/agents/agent/"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(content))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+w.s.reconciler.Token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	back, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !bytes.Equal(back, content) {
		return fmt.Errorf("an agent answers %d bytes with %s and %d bytes", len(content), resp.Status, len(back))
	}
	return nil
}
