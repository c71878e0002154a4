package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var noon = time.Date(2026, 8, 15, 12, 0, 0, 0, time.UTC)

// known returns a lease without problems, as the state and the ledger have it.
func known() (Model, sandbox.Lease) {
	m := Model{
		ID: types.StringValue("did:plc:a::catan-7"), Owner: types.StringValue("me"), Generation: types.Int64Value(2),
		Status: types.StringValue("active"), SandboxID: types.StringValue("sbx"), OnExpiry: types.StringValue(onExpiryKeep),
	}
	return m, sandbox.Lease{
		ID: "did:plc:a::catan-7", AgentDID: "did:plc:a", EnvironmentID: "catan-7", Owner: "me", Generation: 2,
		Status: sandbox.LeaseActive, SandboxID: "sbx", LeasedAt: noon, LastActivity: noon, Cost: 1_500_000,
	}
}

func ended(l sandbox.Lease, by sandbox.EndedBy) sandbox.Lease {
	l.Status, l.EndedBy, l.EndReason, l.EndedAt = sandbox.LeaseDestroyed, by, "of a reason", noon.Add(time.Hour)
	return l
}

func TestOnlyDriftRemovesALease(t *testing.T) {
	t.Parallel()
	stolen := func(l sandbox.Lease) sandbox.Lease {
		l.Owner, l.Generation = "thief", 3
		return l
	}
	_, alive := known()
	tests := map[string]struct {
		lease   sandbox.Lease
		err     error
		summary string // of the warning; "" keeps the lease
	}{
		"alive":          {lease: alive},
		"no row":         {err: sandbox.Errorf(sandbox.NotFound, "there is no lease"), summary: "Vanished"},
		"unreachable":    {err: sandbox.Errorf(sandbox.Unavailable, "away")},
		"forbidden":      {err: sandbox.Errorf(sandbox.Forbidden, "no")},
		"vanished":       {lease: ended(alive, sandbox.EndedByVanished), summary: "Vanished"},
		"crashed":        {lease: ended(alive, sandbox.EndedByCrashed), summary: "Crashed"},
		"failed":         {lease: ended(alive, sandbox.EndedByFailed), summary: "Failed"},
		"another's":      {lease: stolen(alive), summary: "Taken Over"},
		"ttl":            {lease: ended(alive, sandbox.EndedByTTL)},
		"condition":      {lease: ended(alive, sandbox.EndedByCondition)},
		"max_lifetime":   {lease: ended(alive, sandbox.EndedByMaxLifetime)},
		"budget":         {lease: ended(alive, sandbox.EndedByBudget)},
		"released":       {lease: ended(alive, sandbox.EndedByRelease)},
		"by environment": {lease: ended(alive, sandbox.EndedByEnvironment)},
		"by an admin":    {lease: ended(alive, sandbox.EndedByAdmin)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := known()
			d, gone := vanished(tt.lease, tt.err, &m)
			if gone != (tt.summary != "") {
				t.Fatalf("gone: %v", gone)
			}
			if gone && d.Summary() != "Lease did:plc:a::catan-7 "+tt.summary {
				t.Errorf("summary %q", d.Summary())
			}
		})
	}
}

func TestEndIsReportedOnce(t *testing.T) {
	t.Parallel()
	m, l := known()
	if diags := notices(l, &m); len(diags) != 0 {
		t.Errorf("a lease that is as it was needs no words: %v", diags)
	}
	l = ended(l, sandbox.EndedByTTL)
	diags := notices(l, &m)
	if len(diags) != 1 || diags[0].Summary() != "Lease did:plc:a::catan-7 Ended" {
		t.Fatalf("got %v", diags)
	}
	for _, says := range []string{"2026-08-15T13:00:00Z", "by ttl: of a reason", "$0.0015", "on_expiry is keep"} {
		if !strings.Contains(diags[0].Detail(), says) {
			t.Errorf("the detail does not say %q: %s", says, diags[0].Detail())
		}
	}
	if diags := flatten(t.Context(), l, "ledger", &m); diags.HasError() {
		t.Fatal(diags)
	}
	if diags := notices(l, &m); len(diags) != 0 {
		t.Errorf("the next plan warns again: %v", diags)
	}
}

// purged returns what a ledger still has of a lease that ended long ago.
func purged(l sandbox.Lease, by sandbox.EndedBy) sandbox.Lease {
	return sandbox.Lease{
		ID:            l.ID,
		AgentDID:      l.AgentDID,
		EnvironmentID: l.EnvironmentID,
		Owner:         l.Owner,
		Generation:    l.Generation,
		Status:        sandbox.LeaseDestroyed,
		SandboxID:     l.SandboxID,
		LeasedAt:      l.LeasedAt,
		EndedAt:       noon.Add(time.Hour),
		EndedBy:       by,
		Cost:          l.Cost,
		PurgedAt:      noon.Add(800 * time.Hour),
	}
}

// The state was not refreshed for so long that the ledger has purged the destroyed lease.
func TestPurgedLeaseIsNoDrift(t *testing.T) {
	t.Parallel()
	m, l := known()
	l.Image, l.Resources = "player", sandbox.Resources{MemoryMB: 128, CPUMillis: 500, PIDs: 64}
	if diags := flatten(t.Context(), l, "ledger", &m); diags.HasError() {
		t.Fatal(diags)
	}
	before := m
	l = purged(l, sandbox.EndedByTTL)
	if d, gone := vanished(l, nil, &m); gone {
		t.Fatalf("it is dropped: %v", d)
	}
	diags := notices(l, &m)
	if len(diags) != 1 || diags[0].Summary() != "Lease did:plc:a::catan-7 Ended" || !strings.Contains(diags[0].Detail(),
		"by ttl: the ledger purged the details at 2026-09-17T20:00:00Z. It cost $0.0015.") {
		t.Errorf("got %v", diags)
	}
	if diags := flatten(t.Context(), l, "ledger", &m); diags.HasError() {
		t.Fatal(diags)
	}
	if m.Image != before.Image || m.MemoryMB != before.MemoryMB || m.CPUs != before.CPUs || m.PIDs != before.PIDs {
		t.Errorf("the state has lost what the ledger purged: %+v", m)
	}
	if !m.ended() || m.EndedBy.ValueString() != "ttl" || m.EndedAt.IsNull() {
		t.Errorf("its end is not in the state: %+v", m)
	}
	if diags := notices(l, &m); len(diags) != 0 {
		t.Errorf("the next plan warns again: %v", diags)
	}
	m.Status = before.Status
	if d, gone := vanished(purged(l, sandbox.EndedByCrashed), nil, &m); !gone ||
		!strings.Contains(d.Detail(), "last seen at 2026-08-15T13:00:00Z") {
		t.Errorf("a crash is drift, however long ago: %v", d)
	}
}

func TestWhatIsSeenOnTheBackendIsInTheState(t *testing.T) {
	t.Parallel()
	m, l := known()
	l.Image, l.Resources = "player", sandbox.Resources{MemoryMB: 128, CPUMillis: 500, PIDs: 64}
	l.Drift = []sandbox.DriftFinding{
		{Field: "memory_mb", Expected: "128", Observed: "96"}, {Field: "cpu_millis", Expected: "500", Observed: "250"},
		{Field: "pids_limit", Expected: "64", Observed: "32"}, {Field: "image", Expected: "player", Observed: "other"},
		{Field: "state", Expected: "running", Observed: "paused"},
	}
	if diags := flatten(t.Context(), l, "ledger", &m); diags.HasError() {
		t.Fatal(diags)
	}
	if m.MemoryMB.ValueInt64() != 96 || m.CPUs.ValueFloat64() != 0.25 || m.PIDs.ValueInt64() != 32 ||
		m.Image.ValueString() != "other" {
		t.Errorf("got %+v", m)
	}
	diags := notices(l, &m)
	if len(diags) != 1 || !strings.Contains(diags[0].Detail(), "state: expected running, observed paused") {
		t.Errorf("got %v", diags)
	}
}

// Findings from before a lease's end are no news once it has ended.
func TestAnEndedLeaseHasNoOpenFindings(t *testing.T) {
	t.Parallel()
	m, l := known()
	l = ended(l, sandbox.EndedByTTL)
	l.Drift = []sandbox.DriftFinding{{Kind: sandbox.DriftStopped, Field: "state", Expected: "running", Observed: "exited"}}
	if diags := notices(l, &m); len(diags) != 1 || diags[0].Summary() != "Lease did:plc:a::catan-7 Ended" {
		t.Errorf("got %v", diags)
	}
	if diags := flatten(t.Context(), l, "ledger", &m); diags.HasError() {
		t.Fatal(diags)
	}
	if diags := notices(l, &m); len(diags) != 0 {
		t.Errorf("the next plan warns again: %v", diags)
	}
}

// Only the plan knows whether a lease is replaced with its environment.
func TestAnEndWithTheEnvironmentDoesNotSayThatNothingIsPlanned(t *testing.T) {
	t.Parallel()
	m, l := known()
	diags := notices(ended(l, sandbox.EndedByEnvironment), &m)
	if len(diags) != 1 || !strings.Contains(diags[0].Detail(), "it replaces each lease that refers to its id") ||
		strings.Contains(diags[0].Detail(), "this is not drift") {
		t.Errorf("got %v", diags)
	}
}

func TestAWarningSaysWhatBecomesOfWhatWasFound(t *testing.T) {
	t.Parallel()
	finding := func(kind sandbox.DriftKind, field, expected, observed string) sandbox.DriftFinding {
		return sandbox.DriftFinding{Kind: kind, Field: field, Expected: expected, Observed: observed}
	}
	stopped := finding(sandbox.DriftStopped, "state", "running", "stopped")
	restarted := finding(sandbox.DriftStopped, "incarnation", "1", "2")
	atRest := finding(sandbox.DriftStopped, "state", "paused", "stopped")
	paused := finding(sandbox.DriftChanged, "state", "running", "paused")
	smaller := finding(sandbox.DriftChanged, "memory_mb", "128", "96")
	asleep, awake := sandbox.PhaseAsleep, sandbox.PhaseAwake
	type drift = []sandbox.DriftFinding
	for name, is := range map[string]struct {
		phase sandbox.Phase
		drift drift
		says  []string
	}{
		"stopped":           {asleep, drift{stopped}, []string{"A reconciler starts it again", "sandbox serve"}},
		"runs again":        {awake, drift{stopped}, []string{"It was started again in place and runs"}},
		"restarted":         {awake, drift{restarted}, []string{"It was started again in place and runs"}},
		"stopped at rest":   {asleep, drift{atRest}, []string{"at its next use"}},
		"paused":            {asleep, drift{paused}, []string{"goes on at its next use"}},
		"smaller, and more": {awake, drift{restarted, smaller}, []string{"terraform apply -replace", "It was started again"}},
	} {
		m, l := known()
		l.Phase, l.Drift = is.phase, is.drift
		diags := notices(l, &m)
		if len(diags) != 1 {
			t.Fatalf("%s: %v", name, diags)
		}
		for _, says := range is.says {
			if !strings.Contains(diags[0].Detail(), says) {
				t.Errorf("%s: the warning is %q, want it to say %q", name, diags[0].Detail(), says)
			}
		}
		if name != "smaller, and more" && strings.Contains(diags[0].Detail(), "-replace") && name != "stopped" {
			t.Errorf("%s: the warning proposes a replacement: %q", name, diags[0].Detail())
		}
	}
}

// The settings of an ended lease are history. The configuration's settings are for the next generation.
func TestAnEndedLeaseKeepsTheConfiguredSettings(t *testing.T) {
	t.Parallel()
	hour := sandbox.Duration(time.Hour)
	m, l := known()
	l.Settings.TTL = &hour
	if diags := flatten(t.Context(), l, "ledger", &m); diags.HasError() || m.TTL.ValueString() != "1h" {
		t.Errorf("a living lease has the ttl %s (%v)", m.TTL, diags)
	}
	l.Settings.TTL = nil
	if diags := flatten(t.Context(), ended(l, sandbox.EndedByTTL), "ledger", &m); diags.HasError() ||
		m.TTL.ValueString() != "1h" {
		t.Errorf("an ended lease has the ttl %s (%v)", m.TTL, diags)
	}
}
