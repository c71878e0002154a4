// Package servicetest is one test suite for every implementation of [service.Service]. The contract is the same in
// process and over HTTP, with the same codes, reasons and fields.
package servicetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config configures the suite.
type Config struct {
	// New creates a service on an empty ledger, for one test.
	New func(t *testing.T) Env
}

// Env is a service with its environment for tests.
type Env struct {
	Service service.Service
	// Now is the service's clock. Only Advance moves it.
	Now func() time.Time
	// Advance lets time pass. When it returns, everything that became due was attempted and every sandbox was
	// inspected, as a reconciler does.
	Advance func(d time.Duration)
	// Remove removes a sandbox from its backend, behind the service's back.
	Remove func(sandboxID string)
	// Burn makes a sandbox use CPU time.
	Burn func(sandboxID string, d time.Duration)
	// CallModels makes the gateway of an environment report model calls, and the service record them.
	CallModels func(environmentID string, calls ...sandbox.LLMCall)
	// Reach makes the gateway of an environment report attempts to reach hosts, and the service record them.
	Reach func(environmentID string, attempts ...sandbox.EgressRecord)
	// Pass lets time pass without any work.
	Pass func(d time.Duration)
	// Instance is the id of the backend instance. Plant creates a sandbox there behind the service's back.
	Instance string
	Plant    func(spec driver.SandboxSpec)
	// Secrets returns the current secrets of a sandbox on the backend.
	Secrets func(sandboxID string) map[string]sandbox.Secret
	// Weaken makes a sandbox break a rule of its backend's audit, with the given finding.
	Weaken func(sandboxID, finding string)
	// FailKills makes the removal of sandboxes fail, or work again.
	FailKills func(fail bool)
	// HoldSpawns blocks the creation of sandboxes until it is called with false.
	HoldSpawns func(hold bool)
	// Running returns the number of sandboxes on the backend.
	Running func() int
	// Provisioned returns the number of environments on the backend.
	Provisioned func() int
	// Purge removes everything that ended more than ttl ago, as a reconciler does.
	Purge func(ttl time.Duration)
	// BackendAway makes the backend unreachable, or reachable again.
	BackendAway func(away bool)
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	t.Helper()
	for _, group := range [][]test{
		environmentTests, leaseTests, labelTests, batchTests, useTests, execTests, userTests, postStartTests,
		toolTests, processTests, sessionTests, fileTests, statusTests, runTests, healthTests, snapshotTests, conditionTests, reportTests, budgetTests,
		maintenanceTests, adoptTests, retentionTests, secretTests,
	} {
		for _, test := range group {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(&world{T: t, Env: c.New(t)})
			})
		}
	}
}

type test struct {
	name string
	run  func(w *world)
}

// Names that most tests use.
const (
	game  = "catan-7"
	ann   = "did:plc:ann"
	bob   = "did:plc:bob"
	owner = "token:suite"
)

var annsLease = sandbox.LeaseID(ann, game)

// world is one test's service with helper steps.
type world struct {
	*testing.T
	Env
	deliveries int
}

// must fails the test if a step fails.
func must[V any](v V, err error) func(w *world) V {
	return func(w *world) V {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
		return v
	}
}

// environment creates an environment whose sandboxes never sleep, unless change sets otherwise.
func (w *world) environment(change ...func(p *sandbox.PutEnvironment)) sandbox.Environment {
	w.Helper()
	never := sandbox.Duration(0)
	p := sandbox.PutEnvironment{ID: game, Owner: owner, EnvironmentSpec: sandbox.EnvironmentSpec{
		Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone, SleepAfter: &never,
	}}
	for _, c := range change {
		c(&p)
	}
	return must(w.Service.PutEnvironment(w.Context(), p))(w)
}

func rpg(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG }

func (w *world) acquire(agent string) sandbox.Lease {
	w.Helper()
	return must(w.Service.Acquire(w.Context(),
		sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: owner}))(w).Lease
}

func (w *world) lease(agent string) sandbox.Lease {
	w.Helper()
	return must(w.Service.GetLease(w.Context(), sandbox.LeaseID(agent, game)))(w)
}

// deliver delivers a condition that happens now, or as change sets it.
func (w *world) deliver(kind string, change ...func(c *sandbox.Condition)) sandbox.Receipt {
	w.Helper()
	w.deliveries++
	return must(w.Service.Deliver(w.Context(), w.delivery(fmt.Sprintf("msg-%d", w.deliveries), kind, change...)))(w)
}

func (w *world) delivery(id, kind string, change ...func(c *sandbox.Condition)) sandbox.Delivery {
	w.Helper()
	c := sandbox.Condition{Type: kind, Timestamp: w.Now(), Data: sandbox.ConditionData{EnvironmentID: game}}
	for _, f := range change {
		f(&c)
	}
	body, err := json.Marshal(c)
	if err != nil {
		w.Fatal(err)
	}
	return sandbox.Delivery{ID: id, Body: body, Source: owner, Condition: c}
}

func of(agent string) func(c *sandbox.Condition) {
	return func(c *sandbox.Condition) { c.Data.AgentDID = agent }
}

func at(t time.Time) func(c *sandbox.Condition) {
	return func(c *sandbox.Condition) { c.Timestamp = t }
}

// wantReceipt checks the effect of a delivery.
func (w *world) wantReceipt(got sandbox.Receipt, status sandbox.DeliveryStatus, matched int) {
	w.Helper()
	if got.Status != status || got.Matched != matched || got.Duplicate || got.ID == "" {
		w.Errorf("receipt is %+v, want %s with %d matched", got, status, matched)
	}
}

// wantLease checks the state of a lease.
func (w *world) wantLease(l sandbox.Lease, generation int64, status sandbox.LeaseStatus, by sandbox.EndedBy) {
	w.Helper()
	if l.Generation != generation || l.Status != status || l.EndedBy != by {
		w.Errorf("lease %s is generation %d, %s, ended by %q (%s; %s); want %d, %s, %q",
			l.ID, l.Generation, l.Status, l.EndedBy, l.EndReason, l.LastError, generation, status, by)
	}
	if ended := !l.EndedAt.IsZero(); ended != (by != "") {
		w.Errorf("lease %s ended at %v, by %q", l.ID, l.EndedAt, by)
	}
	if gone := !l.DestroyedAt.IsZero(); gone != (status == sandbox.LeaseDestroyed) {
		w.Errorf("lease %s is %s and was destroyed at %v", l.ID, l.Status, l.DestroyedAt)
	}
}

// wantError checks the code, the reason and the field names of an error, which programs rely on.
func (w *world) wantError(err error, code sandbox.Code, reason sandbox.Reason, fields ...string) {
	w.Helper()
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok {
		w.Errorf("error is %v, want %s", err, code)
		return
	}
	var names []string
	for _, f := range e.Fields {
		names = append(names, f.Name)
		if f.Problem == "" {
			w.Errorf("field %s says no problem: %v", f.Name, err)
		}
	}
	slices.Sort(names)
	slices.Sort(fields)
	if e.Code != code || e.Reason != reason || !slices.Equal(names, fields) {
		w.Errorf("error is %s, reason %q, fields %q (%v); want %s, %q, %q",
			e.Code, e.Reason, names, err, code, reason, fields)
	}
	if e.Message == "" {
		w.Errorf("error %s has no message", e.Code)
	}
}
