package private_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Repeating the command would not help, so none of these errors is Unavailable.
func TestCreateRefusesAFileThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]sandbox.Code{
		filepath.Join(dir, "nowhere", "x"): sandbox.Invalid,
		filepath.Join(file, "x"):           sandbox.Invalid,
		file:                               sandbox.Conflict,
	} {
		err := private.Create(name, func(string) error {
			t.Errorf("%s was written", name)
			return nil
		})
		if got := sandbox.CodeOf(err); got != want {
			t.Errorf("creating %s gave %v with code %s, want %s", name, err, got, want)
		}
	}
}
