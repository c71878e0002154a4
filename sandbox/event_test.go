package sandbox_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestEachTypeOfEventsIsListed(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("event.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []sandbox.EventType
	for _, m := range regexp.MustCompile(`\bEventType = "([^"]+)"`).FindAllSubmatch(source, -1) {
		declared = append(declared, sandbox.EventType(m[1]))
	}
	slices.Sort(declared)
	if !slices.Equal(sandbox.EventTypes, declared) {
		t.Errorf("listed are %q, declared %q", sandbox.EventTypes, declared)
	}
}
