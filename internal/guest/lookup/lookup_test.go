package lookup_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/lookup"
)

func TestWhatIsMissingIsNamed(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"git": 0o755, "notes": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	there, absent := filepath.Join(dir, "notes"), filepath.Join(dir, "absent")
	either, neither := absent+lookup.Separator+there, absent+lookup.Separator+absent
	var out bytes.Buffer
	if err := lookup.Main([]string{"git", "notes", "node", either, neither}, &out); err != nil {
		t.Fatal(err)
	}
	if want := "notes\nnode\n" + neither + "\n"; out.String() != want { // notes cannot be executed
		t.Errorf("missing are %q, want %q", out.String(), want)
	}
}
