package provider_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An apply that reverts drift ends as planned, even if the backend cannot confirm it. The next refresh does.
func TestDriftIsRevertedThoughTheBackendDoesNotAnswer(t *testing.T) {
	t.Parallel()
	backend := fake.New("engine", nil)
	server, schemas, engine, _ := newOnBackend(t, backend)
	info, err := engine.Ledger(t.Context())
	must(t, err)
	c := newCore(server, schemas, "sandbox_environment")
	v := values{"name": "game", "image": "player"}
	config := valueOf(c.block.ValueType(), v)
	must(t, c.change(t.Context(), config, config))
	backend.Alter(driver.EnvironmentRef{LedgerID: info.ID, EnvironmentID: "game", Instance: "engine"},
		driver.Difference{Setting: "image", Wanted: "ours", Found: "theirs"})
	must(t, c.refresh(t.Context()))
	if drift := list(object(c.state)["drift"]); len(drift) != 1 {
		t.Fatalf("the state has the drift %v", drift)
	}
	backend.Fail(fake.OpDiffer, sandbox.Errorf(sandbox.Unavailable, "it does not answer"))
	v["ttl"] = "2h"
	config = valueOf(c.block.ValueType(), v)
	must(t, c.change(t.Context(), config, config))
	backend.Fail(fake.OpDiffer, nil)
	must(t, c.settled(t.Context(), config))
	must(t, c.destroy(t.Context()))
}
