package cli_test

import (
	"encoding/json"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestStatesAreShownAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const key = "did:plc:ann::catan-7"
	w.want(w.run("state", "list"), exit.Done, "KEY")
	w.want(w.run("state", "delete", key), exit.Failed, "there is no snapshot")
	_, err := w.Service.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:    "catan-7",
		Owner: "suite",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone, Snapshot: &sandbox.SnapshotSpec{}},
	})
	if err == nil {
		_, err = w.Service.Acquire(t.Context(),
			sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: "catan-7", Owner: "suite"})
	}
	if err == nil {
		_, err = w.Service.Release(t.Context(), sandbox.LeaseRef{ID: key})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.want(w.run("state", "list", "--environment", "catan-7", "-o", "wide"), exit.Done, key, "GENERATION")
	var page struct{ States []sandbox.Snapshot }
	if r := w.run("state", "list", "-o", "json"); json.Unmarshal([]byte(r.out), &page) != nil || len(page.States) != 1 ||
		page.States[0].Generation != 1 {
		t.Errorf("as JSON the states are %s", r.out)
	}
	w.want(w.run("state", "delete", key), exit.Done)
	if r := w.run("state", "list", "-o", "json"); json.Unmarshal([]byte(r.out), &page) != nil || len(page.States) != 0 {
		t.Errorf("after the deletion the states are %s", r.out)
	}
}
