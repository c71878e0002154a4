package cloudflare_test

import (
	"slices"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestEnvironmentsThatShareAWorkerAreApart: each has its own image, rules and log, and can be removed alone.
func TestEnvironmentsThatShareAWorkerAreApart(t *testing.T) {
	t.Parallel()
	c := newChoosing(t)
	first := c.ref
	c.provision("first", "lite")
	ann := c.spawn("did:plc:ann")

	second := first
	second.EnvironmentID = "choosing-2"
	c.ref, c.network = second, sandbox.NetworkRestricted
	c.egress = &sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "good.test"}}}
	c.provision("second", "standard-1")
	bob := c.spawn("did:plc:bob")
	for h, want := range map[driver.Handle]string{ann: "first", bob: "second"} {
		if said := c.sh(h, "cat /etc/says"); said != want {
			t.Errorf("a sandbox of %s has the image %q, want %q", h.EnvironmentID, said, want)
		}
	}
	if logs, err := c.x.EgressLogs(t.Context(), first.LedgerID); err != nil || !slices.Equal(logs, []driver.EnvironmentRef{second}) {
		t.Errorf("%v have restricted networks: %v", logs, err)
	}
	found, err := c.x.Differences(t.Context(), second, c.spec)
	if err != nil || len(found) > 0 {
		t.Errorf("the second environment differs in %v: %v", found, err)
	}

	if err := c.x.Deprovision(t.Context(), second); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("an environment with a sandbox is removed: %v", err)
	}
	c.must(c.x.Kill(t.Context(), bob))
	c.must(c.x.Deprovision(t.Context(), second))
	if logs, err := c.x.EgressLogs(t.Context(), first.LedgerID); err != nil || len(logs) > 0 {
		t.Errorf("after its removal %v have restricted networks: %v", logs, err)
	}
	list, err := c.x.List(t.Context(), first.LedgerID)
	if err != nil || len(list) != 1 || list[0].Handle != ann || list[0].Boot != 1 || list[0].State != sandbox.StateRunning {
		t.Errorf("after its removal the list is %+v: %v", list, err)
	}
	if said := c.sh(ann, "cat /etc/says"); said != "first" {
		t.Errorf("the sandbox of the other environment says %q", said)
	}
	c.must(c.x.Kill(t.Context(), ann))
	c.must(c.x.Deprovision(t.Context(), first))
	if left := c.account.API.Holding(); len(left) > 0 {
		t.Errorf("the account still has %v", left)
	}
	if _, err := c.x.Inspect(t.Context(), ann); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("a sandbox of a deleted Worker is %v", err)
	}
	c.must(c.x.Deprovision(t.Context(), first))
}
