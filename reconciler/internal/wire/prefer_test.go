package wire_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
)

func TestPreferencesAreReadAsRFC7240HasThem(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		headers []string
		want    bool
	}{
		{nil, false},
		{[]string{"respond-async"}, true},
		{[]string{"Respond-Async; foo=bar"}, true},
		{[]string{"wait=10, respond-async"}, true},
		{[]string{"return=minimal", " respond-async "}, true},
		{[]string{"respond-asynchronously"}, false},
		{[]string{"return=respond-async"}, false},
	} {
		if got := wire.Prefers(row.headers, wire.RespondAsync); got != row.want {
			t.Errorf("%q prefers it: %v", row.headers, got)
		}
	}
}
