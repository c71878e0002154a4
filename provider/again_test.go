package provider_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An ended lease that is leased again changes in place, after every kind of end. While its environment has ended, it
// waits unchanged.
func TestAnEndedLeaseIsLeasedAgainInPlace(t *testing.T) {
	t.Parallel()
	server, schemas, engine, _ := newInMemory(t)
	put := sandbox.PutEnvironment{
		ID: "game", Owner: "test", EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeRPG, Image: "player"},
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := engine.PutEnvironment(t.Context(), put)
	must(err)
	block := schemas.ResourceSchemas["sandbox_lease"].Block
	c := newCore(server, schemas, "sandbox_lease")
	configured := func(maxLifetime any) tftypes.Value {
		return valueOf(block.ValueType(), map[string]any{
			"agent_did": "did:plc:ann", "environment_id": "game", "on_expiry": "recreate", "max_lifetime": maxLifetime,
		})
	}
	config := configured(nil)
	must(c.change(t.Context(), config, config))
	again := func(generation int64, config tftypes.Value) {
		t.Helper()
		must(c.refresh(t.Context()))
		planned, private, replace, err := c.plan(t.Context(), c.state, config)
		must(err)
		if replace {
			t.Error("the lease is to be replaced")
		}
		must(c.apply(t.Context(), planned, config, private))
		want := tftypes.NewValue(tftypes.Number, generation)
		if is := object(c.state); !is["generation"].Equal(want) || !is["end_reason"].IsNull() {
			t.Errorf("the lease is %v, want generation %d", c.state, generation)
		}
		must(c.settled(t.Context(), config))
	}
	inGame(t, engine, "agent.death", "did:plc:ann")
	again(2, configured("48h")) // settings that are fixed at the start of a lease are for the next one
	inGame(t, engine, "game.finished", "")
	must(c.settled(t.Context(), configured("48h")))
	if is := object(c.state); is["end_reason"].IsNull() {
		t.Errorf("a lease that waits has lost its end: %v", c.state)
	}
	put.Epoch = 1
	_, err = engine.PutEnvironment(t.Context(), put)
	must(err)
	again(3, configured("48h"))
	must(c.destroy(t.Context()))
}

// inGame delivers a condition, as a game server does.
func inGame(t *testing.T, engine *leasing.Service, condition, agent string) {
	t.Helper()
	c := sandbox.Condition{
		Type: condition, Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: "game", AgentDID: agent},
	}
	body, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := engine.Deliver(t.Context(),
		sandbox.Delivery{ID: fmt.Sprintf("msg_%s", condition), Body: body, Source: "test", Condition: c})
	if err != nil || receipt.Status != sandbox.DeliveryApplied {
		t.Fatal(receipt, err)
	}
}
