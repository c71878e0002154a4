package leasing

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// maxAhead is how far a sender's clock may run ahead of ours, as with webhook signatures.
const maxAhead = 5 * time.Minute

// Deliver implements sandbox.Conditions: one transaction stores the delivery, the events, and
// what is wanted from now on; the loop does the rest.
func (e *Engine) Deliver(ctx context.Context, d sandbox.Delivery) (receipt sandbox.Receipt, err error) {
	if err := d.Condition.Validate(); err != nil {
		return receipt, err
	}
	if d.Condition.Timestamp.After(e.now().Add(maxAhead)) {
		return receipt, sandbox.InvalidFields("condition", []sandbox.Field{{Name: "timestamp", Problem: "lies more than 5 minutes in the future"}})
	}
	err = e.store.Write(ctx, func(tx *ledger.Tx) error {
		receipt, err = e.deliver(tx, d)
		return err
	})
	if errors.Is(err, errKnown) {
		return e.deliveredBefore(ctx, d)
	}
	return receipt, err
}

// errKnown undoes what a delivery that was stored before would change again.
var errKnown = errors.New("the delivery is known")

func (e *Engine) deliver(tx *ledger.Tx, d sandbox.Delivery) (sandbox.Receipt, error) {
	status, matched, err := e.apply(tx, d)
	if err != nil {
		return sandbox.Receipt{}, err
	}
	c := d.Condition
	isNew, err := tx.CreateDelivery(&ledger.Delivery{
		ID: d.ID, ReceivedAt: tx.Now, Source: d.Source, Body: d.Body, Type: c.Type,
		EnvironmentID: c.Data.EnvironmentID, AgentDID: c.Data.AgentDID, Generation: c.Data.Generation,
		OccurredAt: ledger.At(c.Timestamp), Status: status, Matched: matched,
	})
	if err == nil && !isNew {
		err = errKnown
	}
	return sandbox.Receipt{ID: d.ID, Status: status, Matched: matched}, err
}

// deliveredBefore answers a delivery whose id is known: with the first answer, if it is the same.
func (e *Engine) deliveredBefore(ctx context.Context, d sandbox.Delivery) (receipt sandbox.Receipt, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		old, err := tx.Delivery(d.ID)
		switch {
		case err != nil:
			return err
		case old == nil:
			return sandbox.Errorf(sandbox.Internal, "message %q was stored before and is not there", d.ID)
		case !bytes.Equal(old.Body, d.Body):
			return sandbox.Errorf(sandbox.Conflict, "message id %q was used before for another body: give every message an id of its own", d.ID).WithReason(sandbox.ReasonOtherBody)
		}
		receipt = sandbox.Receipt{ID: old.ID, Status: old.Status, Duplicate: true, Matched: old.Matched}
		return nil
	})
	return receipt, err
}

// apply ends what a condition ends.
func (e *Engine) apply(tx *ledger.Tx, d sandbox.Delivery) (sandbox.DeliveryStatus, int, error) {
	m := match{engine: e, tx: tx, delivery: d}
	var err error
	if d.Condition.Data.AgentDID != "" {
		err = m.agent()
	} else {
		err = m.all()
	}
	if err != nil {
		return "", 0, err
	}
	switch {
	case m.ended > 0 || m.closed:
		return sandbox.DeliveryApplied, m.ended, nil
	case m.stale:
		return sandbox.DeliveryStale, 0, nil
	}
	return sandbox.DeliveryUnmatched, 0, tx.AppendEnvironmentEvent(d.Condition.Data.EnvironmentID, sandbox.EventConditionUnmatched, m.data())
}

// match is the application of one delivery.
type match struct {
	engine   *Engine
	tx       *ledger.Tx
	delivery sandbox.Delivery

	ended  int
	closed bool
	stale  bool
}

// agent applies a condition to one agent's lease.
func (m *match) agent() error {
	data := m.delivery.Condition.Data
	s, err := m.tx.Current(sandbox.LeaseID(data.AgentDID, data.EnvironmentID))
	if err != nil || s == nil {
		return err
	}
	return m.sandbox(s)
}

// all applies a condition to every lease of an environment, and closes the environment for
// further leases that end with it.
func (m *match) all() error {
	env, err := m.tx.Environment(m.delivery.Condition.Data.EnvironmentID)
	if err != nil || env == nil {
		return err
	}
	rows, err := m.tx.LeasedSandboxes(env.ID)
	if err != nil {
		return err
	}
	for i := range rows {
		if err := m.sandbox(&rows[i]); err != nil {
			return err
		}
	}
	c := m.delivery.Condition
	concerns := m.ended > 0 || slices.Contains(env.Spec.ExpiryConditions, c.Type)
	open := env.Status == sandbox.EnvironmentOpen || env.Status == sandbox.EnvironmentClosed
	late := m.stale && m.ended == 0 // it tells of a game before the one that is played now
	if !concerns || !open || late || slices.Contains(env.EndedConditions, c.Type) {
		return nil
	}
	if ledger.At(c.Timestamp) <= env.OpenedAt {
		m.stale = true
		return nil
	}
	m.closed = true
	env.Status, env.EndedBy, env.EndedAt = sandbox.EnvironmentClosed, c.Type, m.tx.Now
	env.EndedConditions = append(env.EndedConditions, c.Type)
	if err := m.tx.AppendEnvironmentEvent(env.ID, sandbox.EventEnvironmentEnded, m.data()); err != nil {
		return err
	}
	return m.tx.SaveEnvironment(env)
}

// sandbox ends one generation if the condition applies to it.
func (m *match) sandbox(s *ledger.Sandbox) error {
	c := m.delivery.Condition
	held, err := m.tx.HeldUntil(s.ID)
	if err != nil {
		return err
	}
	if !slices.Contains(s.ExpiryConditions, c.Type) || !live(s, held, m.tx.Now) {
		return nil
	}
	if c.Data.Generation != 0 && c.Data.Generation != s.Generation || c.Data.Generation == 0 && s.LeasedAt >= ledger.At(c.Timestamp) {
		m.stale = true
		if err := m.tx.AppendSandboxEvent(s, sandbox.EventConditionStale, m.data()); err != nil {
			return err
		}
		return m.tx.SaveSandbox(s)
	}
	if err := m.tx.AppendSandboxEvent(s, sandbox.EventConditionApplied, m.data()); err != nil {
		return err
	}
	reason := c.Type
	if c.Data.Reason != "" {
		reason += ": " + c.Data.Reason
	}
	m.ended++
	if err := m.engine.endLease(m.tx, s, ending{by: sandbox.EndedByCondition, reason: reason, at: m.tx.Now}); err != nil {
		return err
	}
	return m.tx.SaveSandbox(s)
}

func (m *match) data() map[string]any {
	c := m.delivery.Condition
	data := map[string]any{"delivery": m.delivery.ID, "source": m.delivery.Source, "type": c.Type, "timestamp": c.Timestamp}
	if c.Data.AgentDID != "" {
		data["agent_did"] = c.Data.AgentDID
	}
	if c.Data.Reason != "" {
		data["reason"] = c.Data.Reason
	}
	return data
}
