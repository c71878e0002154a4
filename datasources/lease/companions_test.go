package lease_test

import (
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/datasources/lease"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestALeaseHasItsCompanions(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 8, 15, 12, 0, 0, 0, time.UTC)
	m, diags := lease.Flatten(t.Context(), sandbox.Lease{Companions: []sandbox.CompanionStatus{
		{Name: "cache", Image: "redis:7", State: sandbox.CompanionReady, Since: since},
		{Name: "db", Image: "postgres:17", State: sandbox.CompanionUnhealthy, Since: since, Restarts: 5, Message: "why"},
	}})
	if diags.HasError() {
		t.Fatal(diags)
	}
	at := types.StringValue("2026-08-15T12:00:00Z")
	want := []lease.Companion{
		{Name: types.StringValue("cache"), Image: types.StringValue("redis:7"), State: types.StringValue("ready"),
			Reason: types.StringNull(), Since: at, Restarts: types.Int64Value(0)},
		{Name: types.StringValue("db"), Image: types.StringValue("postgres:17"), State: types.StringValue("unhealthy"),
			Reason: types.StringValue("why"), Since: at, Restarts: types.Int64Value(5)},
	}
	if len(m.Companions) != len(want) || m.Companions[0] != want[0] || m.Companions[1] != want[1] {
		t.Errorf("companions %v, want %v", m.Companions, want)
	}
	if m, _ = lease.Flatten(t.Context(), sandbox.Lease{}); m.Companions == nil || len(m.Companions) != 0 {
		t.Errorf("companions of a lease without any: %v, want an empty list", m.Companions)
	}
}
