package configured_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
)

// A creation without a record goes on, and the first one of a run says so.
func TestACreationThatCannotBeRecordedIsAWarning(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := configured.Provider{Journal: journal.In(filepath.Join(file, "creating")), NewOwner: func() string { return "mine" }}
	for i, id := range []string{"ann", "bob"} {
		owner, resumed, diags := p.Begin(journal.Object{Kind: "lease", ID: id})
		if owner != "mine" || resumed || diags.HasError() {
			t.Errorf("%s: %q, resumed %t, %v", id, owner, resumed, diags)
		}
		if want := 1 - i; len(diags) != want {
			t.Errorf("%s: %d warnings, want %d", id, len(diags), want)
		} else if want == 1 && (!strings.Contains(diags[0].Detail(), file) ||
			!strings.Contains(diags[0].Detail(), "TF_DATA_DIR")) {
			t.Errorf("it says %s", diags[0].Detail())
		}
	}
}
