package sandbox_test

import (
	"fmt"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestTheNumberOfExpiryConditionsIsBounded: status and lists have them.
func TestTheNumberOfExpiryConditionsIsBounded(t *testing.T) {
	t.Parallel()
	var conditions []string
	for i := range sandbox.MaxExpiryConditions + 1 {
		conditions = append(conditions, fmt.Sprintf("game.round_%d", i))
	}
	environment := sandbox.EnvironmentSpec{Backend: sandbox.Docker, Image: "busybox"}.WithDefaults()
	lease := sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: "catan-7"}
	validate := func(conditions []string) [2]error {
		environment.ExpiryConditions, lease.Settings.ExpiryConditions = conditions, conditions
		return [2]error{environment.Validate(), lease.Validate()}
	}
	for _, err := range validate(conditions[1:]) {
		if err != nil {
			t.Errorf("%d conditions: %v", len(conditions)-1, err)
		}
	}
	for _, err := range validate(conditions) {
		if sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%d conditions: %v", len(conditions), err)
		}
	}
}
