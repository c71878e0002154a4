package cloudflare

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestAProgramWithoutTheWorkerRefusesTheBackend: the error is permanent, because a retry cannot succeed.
func TestAProgramWithoutTheWorkerRefusesTheBackend(t *testing.T) {
	t.Parallel()
	_, err := scriptIn(fstest.MapFS{})
	if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Code != sandbox.Invalid || len(e.Fields) != 1 ||
		e.Fields[0].Name != "backend" {
		t.Errorf("the error is %v", err)
	}
	if b, err := scriptIn(fstest.MapFS{"embedded/worker.js": {Data: []byte("export {}")}}); err != nil ||
		string(b) != "export {}" {
		t.Errorf("the Worker is %q: %v", b, err)
	}
}
