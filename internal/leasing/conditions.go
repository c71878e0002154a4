package leasing

import (
	"bytes"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/deliveries"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/nearest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxAhead is how far a sender's clock may be ahead of ours, as with webhook signatures.
const maxAhead = 5 * time.Minute

// batch applies deliveries in order to rows that were read together. save stores the changes.
type batch struct {
	service *Service
	tx      *ledger.Tx

	known        map[deliveries.Key]deliveries.Delivery // including those of this batch
	environments map[string]*ledger.Environment
	current      map[string]*ledger.Sandbox   // by lease
	living       map[string][]*ledger.Sandbox // by environment; the same rows as in current
	held         map[string]micro.Time

	deliveries []deliveries.Delivery
	sandboxes  []*ledger.Sandbox // changed, each once
	changed    map[string]bool   // their ids
}

// read loads everything that the deliveries may change. The number of queries does not depend on the number of
// deliveries.
func (b *batch) read(given []sandbox.Delivery) (err error) {
	var keys []deliveries.Key
	var leases, environments []string
	for _, d := range given {
		data := d.Condition.Data
		keys = append(keys, keyOf(d))
		if data.AgentDID != "" {
			leases = append(leases, sandbox.LeaseID(data.AgentDID, data.EnvironmentID))
		} else {
			environments = append(environments, data.EnvironmentID)
		}
	}
	if b.known, err = deliveries.In(b.tx).Known(distinct(keys)); err != nil {
		return err
	}
	if b.current, err = b.tx.CurrentOf(distinct(leases)); err != nil {
		return err
	}
	if b.environments, err = b.tx.EnvironmentsOf(distinct(environments)); err != nil {
		return err
	}
	if err := b.readLiving(); err != nil {
		return err
	}
	b.held, err = b.tx.Holds().UntilOf(b.sandboxIDs())
	return err
}

// readLiving loads the live sandboxes of the environments. It shares the rows that are already in current.
func (b *batch) readLiving() error {
	b.living = make(map[string][]*ledger.Sandbox)
	same := make(map[string]*ledger.Sandbox)
	for _, s := range b.current {
		same[s.ID] = s
	}
	for id := range b.environments {
		rows, err := b.tx.LeasedSandboxes(id)
		if err != nil {
			return err
		}
		for i := range rows {
			s := &rows[i]
			if known := same[s.ID]; known != nil {
				s = known
			}
			b.living[id] = append(b.living[id], s)
		}
	}
	return nil
}

func (b *batch) sandboxIDs() []string {
	var ids []string
	for _, s := range b.current {
		ids = append(ids, s.ID)
	}
	for _, rows := range b.living {
		for _, s := range rows {
			ids = append(ids, s.ID)
		}
	}
	return distinct(ids)
}

func keyOf(d sandbox.Delivery) deliveries.Key {
	return deliveries.Key{EnvironmentID: d.Condition.Data.EnvironmentID, ID: d.ID}
}

// distinct returns each element of a list once.
func distinct[T comparable](list []T) []T {
	seen := make(map[T]bool, len(list))
	return slices.DeleteFunc(list, func(v T) bool {
		again := seen[v]
		seen[v] = true
		return again
	})
}

// deliver applies one delivery. Errors, without any change: Conflict with ReasonOtherBody; Invalid for a timestamp in
// the future. A known delivery is never Invalid, because the clock may have been set back since.
func (b *batch) deliver(d sandbox.Delivery) (sandbox.Receipt, error) {
	if old, ok := b.known[keyOf(d)]; ok {
		if !bytes.Equal(old.Body, d.Body) {
			return sandbox.Receipt{}, sandbox.Errorf(sandbox.Conflict, "message id %q was used before for another body about "+
				"environment %s: give every message an id of its own", d.ID, old.EnvironmentID).
				WithReason(sandbox.ReasonOtherBody)
		}
		return sandbox.Receipt{ID: old.ID, Status: old.Status, Duplicate: true, Matched: old.Matched,
			Reason: old.Reason, DidYouMean: old.DidYouMean}, nil
	}
	if d.Condition.Timestamp.After(b.tx.Now.Time().Add(maxAhead)) {
		return sandbox.Receipt{}, sandbox.InvalidFields("condition",
			[]sandbox.Field{{Name: "timestamp", Problem: "lies more than 5 minutes in the future"}})
	}
	c := d.Condition
	receipt, err := b.apply(d)
	if err != nil {
		return sandbox.Receipt{}, err
	}
	row := deliveries.Delivery{
		ID: d.ID, ReceivedAt: b.tx.Now, Source: d.Source, Body: d.Body, Type: c.Type,
		EnvironmentID: c.Data.EnvironmentID, AgentDID: c.Data.AgentDID, Generation: c.Data.Generation,
		OccurredAt: micro.At(c.Timestamp), Status: receipt.Status, Matched: receipt.Matched,
		Reason: receipt.Reason, DidYouMean: receipt.DidYouMean,
	}
	b.known[row.Key()] = row
	b.deliveries = append(b.deliveries, row)
	return receipt, nil
}

// save stores what the deliveries changed. Errors: errRaced.
func (b *batch) save() error {
	isNew, err := deliveries.In(b.tx).Create(b.deliveries)
	if err == nil && !isNew {
		err = errRaced
	}
	if err != nil {
		return err
	}
	return b.tx.SaveEndings(b.sandboxes)
}

// apply ends the leases that a condition ends.
func (b *batch) apply(d sandbox.Delivery) (sandbox.Receipt, error) {
	m := match{batch: b, delivery: d}
	var err error
	if d.Condition.Data.AgentDID != "" {
		err = m.agent()
	} else {
		err = m.all()
	}
	if err != nil {
		return sandbox.Receipt{}, err
	}
	switch {
	case m.ended > 0 || m.closed:
		return sandbox.Receipt{ID: d.ID, Status: sandbox.DeliveryApplied, Matched: m.ended}, nil
	case m.stale:
		return sandbox.Receipt{ID: d.ID, Status: sandbox.DeliveryStale, Reason: m.why}, nil
	}
	env, err := m.environment()
	if err != nil {
		return sandbox.Receipt{}, err
	}
	data := m.data()
	data.Why, data.DidYouMean = m.unmatched(env), m.meant(env)
	return sandbox.Receipt{ID: d.ID, Status: sandbox.DeliveryUnmatched, Reason: data.Why, DidYouMean: data.DidYouMean},
		b.tx.AppendEnvironmentEvent(d.Condition.Data.EnvironmentID, sandbox.EventConditionUnmatched, data)
}

// environment returns the environment of the condition, nil if it does not exist.
func (m *match) environment() (*ledger.Environment, error) {
	id := m.delivery.Condition.Data.EnvironmentID
	if env, read := m.batch.environments[id]; read {
		return env, nil
	}
	return m.batch.tx.Environment(id) // conditions of one agent need it only for the receipt
}

// unmatched says why the condition matches no live lease.
func (m *match) unmatched(env *ledger.Environment) sandbox.DeliveryReason {
	c := m.delivery.Condition
	if env == nil || env.Status == sandbox.EnvironmentDestroyed {
		return sandbox.DeliveryNoEnvironment
	}
	s := m.batch.current[sandbox.LeaseID(c.Data.AgentDID, c.Data.EnvironmentID)]
	endsOn := env.Spec.ExpiryConditions
	if s != nil {
		endsOn = s.ExpiryConditions
	}
	switch {
	case !slices.Contains(endsOn, c.Type):
		return sandbox.DeliveryNoCondition
	case s != nil && c.Data.Generation > s.Generation:
		return sandbox.DeliveryNotBegun
	case s == nil && c.Data.AgentDID != "":
		return sandbox.DeliveryNoLease
	}
	return sandbox.DeliveryAlreadyEnded
}

// meant returns the condition that the sender of an unmatched one probably meant, or "". It is one that ends leases of
// the environment.
func (m *match) meant(env *ledger.Environment) string {
	b, data := m.batch, m.delivery.Condition.Data
	var known []string
	if env != nil {
		known = append(known, env.Spec.ExpiryConditions...)
	}
	if s := b.current[sandbox.LeaseID(data.AgentDID, data.EnvironmentID)]; s != nil {
		known = append(known, s.ExpiryConditions...)
	}
	for _, s := range b.living[data.EnvironmentID] {
		known = append(known, s.ExpiryConditions...)
	}
	return nearest.To(m.delivery.Condition.Type, known)
}

// match is the application of one delivery.
type match struct {
	batch    *batch
	delivery sandbox.Delivery

	ended  int
	closed bool
	stale  bool
	why    sandbox.DeliveryReason // if stale
}

// other records that the condition concerns another generation, or an earlier game.
func (m *match) other(why sandbox.DeliveryReason) { m.stale, m.why = true, why }

// agent applies a condition to one agent's lease.
func (m *match) agent() error {
	data := m.delivery.Condition.Data
	s := m.batch.current[sandbox.LeaseID(data.AgentDID, data.EnvironmentID)]
	if s == nil {
		return nil
	}
	return m.sandbox(s)
}

// all applies a condition to every lease of an environment, and closes the environment to further leases that the
// condition would end.
func (m *match) all() error {
	env := m.batch.environments[m.delivery.Condition.Data.EnvironmentID]
	if env == nil {
		return nil
	}
	for _, s := range m.batch.living[env.ID] {
		if err := m.sandbox(s); err != nil {
			return err
		}
	}
	c := m.delivery.Condition
	concerns := m.ended > 0 || slices.Contains(env.Spec.ExpiryConditions, c.Type)
	open := env.Status == sandbox.EnvironmentOpen || env.Status == sandbox.EnvironmentClosed
	late := m.stale && m.ended == 0 // it concerns an earlier game
	if !concerns || !open || late || slices.Contains(env.Ended.Conditions, c.Type) {
		return nil
	}
	if micro.At(c.Timestamp) <= env.OpenedAt {
		m.other(sandbox.DeliveryBeganLater)
		return nil
	}
	m.closed = true
	tx := m.batch.tx
	return tx.UpdateEnvironmentRow(env, func(env *ledger.Environment) error {
		env.Status = sandbox.EnvironmentClosed
		env.Ended = ledger.EnvironmentEnd{Conditions: append(env.Ended.Conditions, c.Type), By: c.Type, At: tx.Now}
		return tx.AppendEnvironmentEvent(env.ID, sandbox.EventEnvironmentEnded, m.data())
	})
}

// sandbox ends one generation if the condition applies to it.
func (m *match) sandbox(s *ledger.Sandbox) error {
	c, tx := m.delivery.Condition, m.batch.tx
	if s.Kept() {
		return m.kept(s)
	}
	if !slices.Contains(s.ExpiryConditions, c.Type) || !s.Live(m.batch.held[s.ID], tx.Now) {
		return nil
	}
	m.changes(s)
	switch named := c.Data.Generation; {
	case named > s.Generation:
		m.other(sandbox.DeliveryNotBegun)
	case named != 0 && named < s.Generation:
		m.other(sandbox.DeliveryAlreadyEnded)
	case named == 0 && s.LeasedAt >= micro.At(c.Timestamp):
		m.other(sandbox.DeliveryBeganLater)
	default:
		return m.end(s)
	}
	data := m.data()
	data.Why = m.why
	return tx.AppendSandboxEvent(s, sandbox.EventConditionStale, data)
}

// end ends one generation.
func (m *match) end(s *ledger.Sandbox) error {
	c, tx := m.delivery.Condition, m.batch.tx
	if err := tx.AppendSandboxEvent(s, sandbox.EventConditionApplied, m.data()); err != nil {
		return err
	}
	reason := c.Type
	if c.Data.Reason != "" {
		reason += ": " + c.Data.Reason
	}
	m.ended++
	return m.batch.service.End(tx, s, lifecycle.Ending{By: sandbox.EndedByCondition, Reason: reason, At: tx.Now})
}

// kept ends the post-mortem of a failed generation that the condition would have ended.
func (m *match) kept(s *ledger.Sandbox) error {
	c := m.delivery.Condition
	named := c.Data.Generation
	if !slices.Contains(s.ExpiryConditions, c.Type) || named != 0 && named != s.Generation ||
		named == 0 && s.LeasedAt >= micro.At(c.Timestamp) {
		return nil
	}
	m.changes(s)
	return lifecycle.EndRetention(m.batch.tx, s, string(sandbox.EndedByCondition))
}

// changes records that a sandbox must be stored.
func (m *match) changes(s *ledger.Sandbox) {
	if !m.batch.changed[s.ID] {
		m.batch.changed[s.ID] = true
		m.batch.sandboxes = append(m.batch.sandboxes, s)
	}
}

// conditionData is the data of events that conditions cause.
type conditionData struct {
	AgentDID   string    `json:"agent_did,omitempty"`
	Delivery   string    `json:"delivery"`
	DidYouMean string    `json:"did_you_mean,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Source     string    `json:"source"`
	Timestamp  time.Time `json:"timestamp"`
	Type       string    `json:"type"`
	// Why is the reason of the receipt. Reason is the sender's.
	Why sandbox.DeliveryReason `json:"why,omitempty"`
}

func (m *match) data() conditionData {
	c := m.delivery.Condition
	return conditionData{
		AgentDID: c.Data.AgentDID, Delivery: m.delivery.ID, Reason: c.Data.Reason,
		Source: m.delivery.Source, Timestamp: c.Timestamp, Type: c.Type,
	}
}
