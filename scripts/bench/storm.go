package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
)

// storm measures how many signed conditions a second the reconciler makes durable. The senders run
// on the same machine and take their part of its processors.
func storm(ctx context.Context, s *stage, o options) ([]result, error) {
	send, err := newSender(s, o.clients)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	deadline := begin.Add(o.storm)
	var receipts atomic.Int64
	g, sending := errgroup.WithContext(ctx)
	for c := range o.clients {
		g.Go(func() error {
			for n := 0; time.Now().Before(deadline); n++ {
				if _, err := send.post(sending, fmt.Sprintf("storm-%d-%d", c, n), death("did:plc:nobody", begin)); err != nil {
					return err
				}
				receipts.Add(1)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	for c := range o.clients { // what was acknowledged is known
		again, err := send.post(ctx, fmt.Sprintf("storm-%d-0", c), death("did:plc:nobody", begin))
		if err != nil {
			return nil, err
		}
		if !again.Duplicate {
			return nil, fmt.Errorf("condition storm-%d-0 was acknowledged and is not known: %+v", c, again)
		}
	}
	return []result{atLeast("durable webhook receipts", float64(receipts.Load())/took.Seconds(), "1/s", 5000,
		fmt.Sprintf("%d in %.1f s from %d clients", receipts.Load(), took.Seconds(), o.clients))}, nil
}

// sender posts conditions as a game server does.
type sender struct {
	url    string
	secret webhook.Secret
	http   *http.Client
}

func newSender(s *stage, connections int) (*sender, error) {
	secrets, err := webhook.LoadSecrets(s.reconciler.SecretFile)
	if err != nil {
		return nil, err
	}
	return &sender{
		url:    s.reconciler.URL + "/v1/conditions",
		secret: secrets[0],
		http:   &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: connections}},
	}, nil
}

// death is the condition that an agent of the bench's environment died at a time.
func death(agent string, at time.Time) sandbox.Condition {
	return sandbox.Condition{Type: "agent.death", Timestamp: at.UTC(),
		Data: sandbox.ConditionData{EnvironmentID: environment, AgentDID: agent}}
}

// post sends a condition and returns the receipt.
func (s *sender) post(ctx context.Context, id string, c sandbox.Condition) (r sandbox.Receipt, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return r, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	request.Header.Set("Content-Type", "application/json")
	if err := s.secret.Sign(request.Header, id, time.Now(), body); err != nil {
		return r, err
	}
	response, err := s.http.Do(request)
	if err != nil {
		return r, err
	}
	defer func() { _ = response.Body.Close() }() // read to its end
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return r, err
	}
	if response.StatusCode != http.StatusAccepted {
		return r, fmt.Errorf("POST %s: %s: %s", s.url, response.Status, answer)
	}
	err = json.Unmarshal(answer, &r)
	return r, err
}
