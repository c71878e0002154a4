package lease

import (
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Only a lease of Terraform can be one that this resource is about to replace.
func TestCreateBeforeDestroyIsNamedWhereItCanBe(t *testing.T) {
	t.Parallel()
	for owner, named := range map[string]bool{"terraform:4f1c": true, "orchestrator": false} {
		err := sandbox.Errorf(sandbox.Conflict, "lease did:plc:a::g is held by %s", owner).
			WithReason(sandbox.ReasonOtherOwner)
		said := acquireFailed("Acquiring Lease Failed", sandbox.Acquire{AgentDID: "did:plc:a", EnvironmentID: "g"}, err)[0].Detail()
		if strings.Contains(said, "create_before_destroy") != named || !strings.Contains(said, "terraform import") {
			t.Errorf("of a lease of %s it says %s", owner, said)
		}
	}
}
