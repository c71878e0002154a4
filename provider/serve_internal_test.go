package provider

import "testing"

// A process for debugging runs in its own working directory, which many configurations may share. An owner in its
// journal could belong to any of them.
func TestADebuggedProviderKeepsNoJournal(t *testing.T) {
	for debug, want := range map[bool]bool{false: true, true: false} {
		if got := journalOf(debug, func(string) string { return "" }) != nil; got != want {
			t.Errorf("with debug %v it keeps a journal: %v", debug, got)
		}
	}
}
