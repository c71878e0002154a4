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
