package lease

import (
	"context"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// holder is a service with a lease of an owner.
type holder struct {
	service.Leases
	owner string
}

func (h holder) GetLease(_ context.Context, id string) (sandbox.Lease, error) {
	return sandbox.Lease{ID: id, Owner: h.owner}, nil
}

// Only a lease of a Terraform object can be the one that this resource is about to replace.
func TestCreateBeforeDestroyIsNamedWhereItCanBe(t *testing.T) {
	t.Parallel()
	for owner, named := range map[string]bool{"terraform:4f1c": true, "orchestrator": false} {
		err := sandbox.Errorf(sandbox.Conflict, "lease did:plc:a::g is held by another owner").
			WithReason(sandbox.ReasonOtherOwner)
		said := acquireFailed(t.Context(), holder{owner: owner}, "Acquiring Lease Failed",
			sandbox.Acquire{AgentDID: "did:plc:a", EnvironmentID: "g"}, err)[0].Detail()
		if strings.Contains(said, "create_before_destroy") != named || !strings.Contains(said, "terraform import") {
			t.Errorf("for a lease of %s, the error says %s", owner, said)
		}
	}
}
