package leasing_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// together delivers all at once and returns what each was answered.
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
			first++ // it came before the two of that id
		}
		if first != agents || again+refused != agents+1 || refused == 0 {
			t.Errorf("%d were applied, %d known and %d refused; want %d applied and %d of the others", first, again, refused, agents, agents+1)
		}
		if last := receipts[2*agents+1]; errs[2*agents+1] != nil || last.Status != sandbox.DeliveryUnmatched {
			t.Errorf("nobody's death was answered %+v, %v", last, errs[2*agents+1])
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
