package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// stormRounds is how often each receiver is flooded. They alternate, because the machine's speed varies by the second.
const stormRounds = 3

// Targets of receipts, including all their changes on disk.
const (
	bareTarget     = 0.6  // of the rate of a bare handler
	rowsTarget     = 0.7  // of the rate of a handler that stores one row
	cpuTarget      = 120  // µs each
	receiptsTarget = 8000 // 1/s, if each ends a lease
	receiptTarget  = 20   // ms at p99
)

// storm measures how many signed conditions per second the reconciler stores that match no lease. It compares that with
// two Go handlers: one only checks the signature, and the other also stores a row for each condition.
func storm(ctx context.Context, s *stage, o options) (_ []result, err error) {
	send, err := newSender(s.reconciler, o.clients)
	if err != nil {
		return nil, err
	}
	others := make([]*sender, 2)
	for i, rowsFile := range []string{"", filepath.Join(s.state, "rows.db")} {
		url, stop, err := startBare(ctx, s.reconciler.SecretFile, rowsFile)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		others[i] = &sender{url: url, secret: send.secret, http: send.http}
	}
	begin := time.Now()
	f := flood{
		clients: o.clients,
		length:  o.storm / stormRounds,
		nth:     func(int64) sandbox.Condition { return death("did:plc:nobody", begin) },
	}
	var ours, bare, stored flooded
	for range stormRounds {
		if err := errors.Join(bare.add(f.run(ctx, others[0])), stored.add(f.run(ctx, others[1]))); err != nil {
			return nil, err
		}
		before, err := s.reconciler.CPU()
		if err != nil {
			return nil, err
		}
		if err := ours.add(f.run(ctx, send)); err != nil {
			return nil, err
		}
		after, err := s.reconciler.CPU()
		if err != nil {
			return nil, err
		}
		ours.cpu += after - before
	}
	if err := f.check(ctx, send); err != nil {
		return nil, err
	}
	return []result{
		atLeast(fmt.Sprintf("receipts, durable on disk / replies of a bare handler, %d clients", o.clients),
			ours.rate()/bare.rate(), "ratio", bareTarget, fmt.Sprintf("%.0f a second against %.0f", ours.rate(), bare.rate())),
		atLeast("receipts, durable on disk / of a handler that stores one row of each", ours.rate()/stored.rate(),
			"ratio", rowsTarget, fmt.Sprintf("that handler reaches %.2f of the bare one", stored.rate()/bare.rate())),
		atMost("CPU of a receipt that matches nothing",
			float64(ours.cpu.Microseconds())/float64(len(ours.took)), "µs", cpuTarget, fmt.Sprintf("of %d", len(ours.took))),
		ours.p99("a receipt that matches nothing"),
	}, nil
}

// receipts floods a reconciler with conditions, each of which must match a number of leases.
func receipts(ctx context.Context, r *harness.Reconciler, o options, what string, nth func(n int64) sandbox.Condition,
	matched int) ([]result, error) {
	send, err := newSender(r, o.clients)
	if err != nil {
		return nil, err
	}
	f := flood{clients: o.clients, length: o.storm, nth: nth, matched: matched}
	before, err := r.CPU()
	if err != nil {
		return nil, err
	}
	var all flooded
	if err := all.add(f.run(ctx, send)); err != nil {
		return nil, err
	}
	after, err := r.CPU()
	if err != nil {
		return nil, err
	}
	if err := f.check(ctx, send); err != nil {
		return nil, err
	}
	return []result{
		atLeast(what, all.rate(), "1/s",
			receiptsTarget, fmt.Sprintf("%d in %.1f s from %d clients, %d µs of the reconciler's CPU each",
				len(all.took), all.whole.Seconds(), o.clients, (after-before).Microseconds()/int64(len(all.took)))),
		all.p99(what),
	}, nil
}

// flood is many clients that send conditions for a while. Each waits for its reply. They share the processors of the
// machine with the receiver.
type flood struct {
	clients int
	length  time.Duration
	nth     func(n int64) sandbox.Condition
	matched int // leases per condition
	sent    atomic.Int64
}

// flooded is the result of a flood.
type flooded struct {
	took       []time.Duration
	whole, cpu time.Duration
}

func (f *flood) run(ctx context.Context, send *sender) (flooded, error) {
	took := make([][]time.Duration, f.clients)
	begin := time.Now()
	g, sending := errgroup.WithContext(ctx)
	for c := range f.clients {
		g.Go(func() error {
			for time.Since(begin) < f.length {
				n := f.sent.Add(1)
				began := time.Now()
				receipt, err := send.post(sending, fmt.Sprintf("storm-%d", n), f.nth(n))
				if err != nil {
					return err
				}
				if receipt.Matched != f.matched {
					return fmt.Errorf("condition storm-%d matched %d leases, not %d", n, receipt.Matched, f.matched)
				}
				took[c] = append(took[c], time.Since(began))
			}
			return nil
		})
	}
	err := g.Wait()
	return flooded{took: slices.Concat(took...), whole: time.Since(begin)}, err
}

// check sends the last conditions again: the receiver must know those that it has acknowledged.
func (f *flood) check(ctx context.Context, send *sender) error {
	last := f.sent.Load()
	for n := max(1, last-int64(f.clients)); n <= last; n++ {
		again, err := send.post(ctx, fmt.Sprintf("storm-%d", n), f.nth(n))
		if err != nil {
			return err
		}
		if !again.Duplicate {
			return fmt.Errorf("condition storm-%d was acknowledged and is not known: %+v", n, again)
		}
	}
	return nil
}

func (f *flooded) add(other flooded, err error) error {
	f.took, f.whole = append(f.took, other.took...), f.whole+other.whole
	return err
}

// rate returns the replies per second.
func (f *flooded) rate() float64 { return float64(len(f.took)) / f.whole.Seconds() }

func (f *flooded) p99(what string) result {
	slices.Sort(f.took)
	p50, p99 := f.took[len(f.took)/2], f.took[len(f.took)*99/100]
	return atMost(what, milliseconds(p99), "ms at p99", receiptTarget, fmt.Sprintf("p50 %.1f ms", milliseconds(p50)))
}

// sender posts conditions as a game server does.
type sender struct {
	url    string
	secret webhook.Secret
	http   *http.Client
}

func newSender(r *harness.Reconciler, connections int) (*sender, error) {
	secrets, err := access.LoadSecrets(r.SecretFile)
	if err != nil {
		return nil, err
	}
	return &sender{
		url:    r.URL + "/v1/conditions",
		secret: secrets[0],
		http:   &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: connections}},
	}, nil
}

// death is the condition that an agent of the bench's environment died.
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
	defer func() { _ = response.Body.Close() }() // the next line reads it to its end
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
