package events

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestAnEventNamesWhoAskedForIt(t *testing.T) {
	t.Parallel()
	e := flatten(sandbox.Event{Type: sandbox.EventEnded, Actor: "token:ci", Address: "192.0.2.7"})
	if e.Actor.ValueString() != "token:ci" || e.Address.ValueString() != "192.0.2.7" {
		t.Errorf("got actor %s, address %s", e.Actor, e.Address)
	}
	if by := flatten(sandbox.Event{Type: sandbox.EventEnded}); !by.Actor.IsNull() || !by.Address.IsNull() {
		t.Errorf("an event without a request has the actor %s, address %s", by.Actor, by.Address)
	}
}
