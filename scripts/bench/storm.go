package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// storm measures how many signed conditions a second the reconciler makes durable that match nothing.
func storm(ctx context.Context, s *stage, o options) ([]result, error) {
	begin := time.Now()
	return receipts(ctx, s.reconciler, o, "receipts that match nothing", func(int64) sandbox.Condition { return death("did:plc:nobody", begin) }, 0)
}

// Targets of receipts at 64 clients, with all that they change on disk.
const (
	receiptsTarget = 8000 // 1/s
	receiptTarget  = 20   // ms at p99
)

// receipts sends conditions for a while from many clients, each of which awaits its reply, and checks that
// each matched as many leases as it should. The senders run on the same machine and take their part of its
// processors.
func receipts(ctx context.Context, r *harness.Reconciler, o options, what string, nth func(n int64) sandbox.Condition, matched int) ([]result, error) {
	send, err := newSender(r, o.clients)
	if err != nil {
		return nil, err
	}
	before, err := r.CPU()
	if err != nil {
		return nil, err
	}
	var sent atomic.Int64
	took := make([][]time.Duration, o.clients)
	begin := time.Now()
	g, sending := errgroup.WithContext(ctx)
	for c := range o.clients {
		g.Go(func() error {
			for time.Since(begin) < o.storm {
				n := sent.Add(1)
				began := time.Now()
				receipt, err := send.post(sending, fmt.Sprintf("storm-%d", n), nth(n))
				if err != nil {
					return err
				}
				if receipt.Matched != matched {
					return fmt.Errorf("condition storm-%d matched %d leases, not %d", n, receipt.Matched, matched)
				}
				took[c] = append(took[c], time.Since(began))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	whole, all := time.Since(begin), slices.Concat(took...)
	after, err := r.CPU()
	if err != nil {
		return nil, err
	}
	for n := range int64(o.clients) { // what was acknowledged is known
		again, err := send.post(ctx, fmt.Sprintf("storm-%d", n+1), nth(n+1))
		if err != nil {
			return nil, err
		}
		if !again.Duplicate {
			return nil, fmt.Errorf("condition storm-%d was acknowledged and is not known: %+v", n+1, again)
		}
	}
	slices.Sort(all)
	return []result{
		atLeast(what, float64(len(all))/whole.Seconds(), "1/s", receiptsTarget, fmt.Sprintf("%d in %.1f s from %d clients, %d µs of the reconciler's CPU each",
			len(all), whole.Seconds(), o.clients, (after-before).Microseconds()/int64(len(all)))),
		atMost(what, milliseconds(all[len(all)*99/100]), "ms at p99", receiptTarget, fmt.Sprintf("p50 %.1f ms", milliseconds(all[len(all)/2]))),
	}, nil
}

// sender posts conditions as a game server does.
type sender struct {
	url    string
	secret webhook.Secret
	http   *http.Client
}

func newSender(r *harness.Reconciler, connections int) (*sender, error) {
	secrets, err := webhook.LoadSecrets(r.SecretFile)
	if err != nil {
		return nil, err
	}
	return &sender{
		url:    r.URL + "/v1/conditions",
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
