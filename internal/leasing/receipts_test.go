package leasing_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// together delivers all at the same time and returns the answers.
func (w *world) together(deliveries []sandbox.Delivery) ([]sandbox.Receipt, []error) {
	receipts, errs := make([]sandbox.Receipt, len(deliveries)), make([]error, len(deliveries))
	var wg sync.WaitGroup
	for i, d := range deliveries {
		wg.Go(func() { receipts[i], errs[i] = w.engine.Deliver(w.Context(), d) })
	}
	wg.Wait()
	return receipts, errs
}

func death(id, agent, body string) sandbox.Delivery {
	return sandbox.Delivery{ID: id, Body: []byte(body), Source: "test", Condition: sandbox.Condition{
		Type: "agent.death", Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: game, AgentDID: agent}}}
}

func TestDeliveriesThatArriveTogetherAreEachAnsweredForThemselves(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
		const agents = 40
		agent := func(i int) string { return fmt.Sprintf("did:plc:agent-%d", i) }
		for i := range agents {
			w.acquire(agent(i))
		}
		later(time.Second)
		var sent []sandbox.Delivery
		for i := range agents {
			id := fmt.Sprintf("m-%d", i)
			sent = append(sent, death(id, agent(i), "body"), death(id, agent(i), "body"))
		}
		sent = append(sent, death("m-0", agent(0), "another body"), death("nobody", "did:plc:nobody", "body"))
		receipts, errs := w.together(sent)

		first, again, refused := 0, 0, 0
		for i, r := range receipts[:2*agents] {
			switch {
			case sandbox.ReasonOf(errs[i]) == sandbox.ReasonOtherBody && sent[i].ID == "m-0":
				refused++
			case errs[i] != nil:
				t.Errorf("%s: %v", sent[i].ID, errs[i])
			case r.Duplicate:
				again++
			case r.Status == sandbox.DeliveryApplied && r.Matched == 1:
				first++
			}
		}
		if sandbox.ReasonOf(errs[2*agents]) == sandbox.ReasonOtherBody {
			refused++
		} else if errs[2*agents] == nil {
			first++ // it arrived before the two with that id
		}
		if first != agents || again+refused != agents+1 || refused == 0 {
			t.Errorf("%d were applied, %d known and %d refused; want %d applied and %d of the others",
				first, again, refused, agents, agents+1)
		}
		if last := receipts[2*agents+1]; errs[2*agents+1] != nil || last.Status != sandbox.DeliveryUnmatched {
			t.Errorf("the death of an unknown agent returned %+v, %v", last, errs[2*agents+1])
		}
		for i := range agents {
			l := w.lease(sandbox.LeaseID(agent(i), game))
			w.want(l, sandbox.LeaseExpired, sandbox.EndedByCondition)
			events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: l.SandboxID})
			if err != nil || int64(len(events)) != l.LastSequence {
				t.Errorf("%d events of %d, %v", len(events), l.LastSequence, err)
			}
		}
	})
}

func TestDeliveriesAreUnavailableTogetherWhenTheLedgerIs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		if err := w.store.Close(); err != nil {
			t.Fatal(err)
		}
		var sent []sandbox.Delivery
		for i := range 20 {
			sent = append(sent, death(fmt.Sprintf("m-%d", i), ann, "body"))
		}
		_, errs := w.together(sent)
		for i, err := range errs {
			if sandbox.CodeOf(err) != sandbox.Unavailable {
				t.Errorf("delivery %d: %v", i, err)
			}
		}
	})
}

// One sender's delivery must not block those of others: if one delivery makes a batch fail, each is stored alone.
func TestOneDeliveryThatCannotBeStoredKeepsNoOther(t *testing.T) {
	t.Parallel()
	inWorldOn(t, postgrestest.New(t), func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
		w.acquire(ann)
		later(time.Second)
		free := w.holdWriter()
		var sent []sandbox.Delivery
		for i := range 20 {
			sent = append(sent, death(fmt.Sprintf("m-%d", i), fmt.Sprintf("did:plc:a%d", i), "body"))
		}
		sent[7].Source = "what PostgreSQL does not store: \x00"
		sent[11] = death("m-11", ann, "body")
		go func() { synctest.Wait(); free() }() // once all of them wait
		receipts, errs := w.together(sent)
		for i, err := range errs {
			switch {
			case i == 7 && sandbox.CodeOf(err) != sandbox.Invalid:
				t.Errorf("the delivery that cannot be stored returned %v", err)
			case i != 7 && err != nil:
				t.Errorf("delivery %d: %v", i, err)
			case i == 11 && receipts[i].Status != sandbox.DeliveryApplied:
				t.Errorf("ann's death was %s", receipts[i].Status)
			}
		}
		w.want(w.lease(annLease), sandbox.LeaseExpired, sandbox.EndedByCondition)
		again, errs := w.together(sent)
		for i, r := range again {
			if known := errs[i] == nil && r.Duplicate; known != (i != 7) {
				t.Errorf("the repeated delivery %d returned %+v, %v", i, r, errs[i])
			}
		}
	})
}

// holdWriter keeps the ledger's writer busy until the returned function is called.
func (w *world) holdWriter() (free func()) {
	held, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if err := w.store.Write(context.Background(), func(*ledger.Tx) error { <-held; return nil }); err != nil {
			w.Error(err)
		}
	}()
	synctest.Wait()
	return func() { close(held); <-done }
}
