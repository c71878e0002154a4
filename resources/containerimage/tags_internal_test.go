package containerimage

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"
)

func TestOneTagAndSeveralAreDistinguished(t *testing.T) {
	t.Parallel()
	m := &Model{Name: types.StringValue("player"), ImageID: types.StringValue("sha256:1")}
	for says, lost := range map[string][]string{
		"player:a no longer points to":          {"a"},
		"player:a, player:b no longer point to": {"a", "b"},
	} {
		if got := tagsMoved(m, "", lost); len(got) != 1 || !strings.Contains(got[0].Detail(), says) {
			t.Errorf("of %v it says %v", lost, got)
		}
	}
}

// A set without elements is not null: a null set of copies means the engine, as earlier providers wrote it.
func TestNoCopiesAreAnEmptySet(t *testing.T) {
	t.Parallel()
	mirrored := Model{}
	mirrored.Copies, _ = setOf(t.Context(), []string{inRegistry})
	engine, diags := mirrored.onlyOnEngine(t.Context())
	if diags.HasError() || engine.Copies.IsNull() || engine.has(t.Context(), onEngine) {
		t.Errorf("an image that only a registry has is on the engine: %s (%v)", engine.Copies, diags)
	}
}
