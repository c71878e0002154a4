package providertest

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
)

// OverBothServices runs a test in process and against a reconciler, with the configuration of the provider for each.
func OverBothServices(t *testing.T, test func(t *testing.T, w *World, provider string)) {
	t.Helper()
	OverServices(t, host.Config{}, test)
}

// OverServices runs a test in process, and against a reconciler that allows sandboxes this of its host.
func OverServices(t *testing.T, allow host.Config, test func(t *testing.T, w *World, provider string)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		w := New(t)
		test(t, w, w.Embedded())
	})
	t.Run("reconciler", func(t *testing.T) {
		t.Parallel()
		w := New(t)
		test(t, w, w.ReconcilerWith(allow).Configuration)
	})
}
