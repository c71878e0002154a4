package docker

import (
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// checkLabels checks that an object with one of our names has our labels. Those of a lease may have changed
// since. Errors: Conflict if something else created it, Unavailable with ReasonOtherInstance if it was created
// on another engine.
func (e *Executor) checkLabels(kind, name string, have, want map[string]string) error {
	for k, v := range want {
		if k != objects.LabelInstance && !strings.HasPrefix(k, objects.LabelOfLease) && have[k] != v {
			return sandbox.Errorf(sandbox.Conflict,
				"docker: %s %s exists without our labels, so another program created it; remove or rename it", kind, name)
		}
	}
	if have[objects.LabelInstance] != want[objects.LabelInstance] {
		return e.otherInstance(have[objects.LabelInstance], want[objects.LabelInstance])
	}
	return nil
}
