package providertest

import (
	"os"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
)

// OverBothServices runs a test in process and against a reconciler. The test receives the provider configuration of
// each.
func OverBothServices(t *testing.T, test func(t *testing.T, w *World, provider string)) {
	t.Helper()
	OverServices(t, host.Config{}, test)
}

// OverAService runs a test against a reconciler, and with SANDBOX_TEST_LONG also in process. One is usually enough:
// servicetest shows that the two services behave alike, and a test may take half a minute on each.
func OverAService(t *testing.T, test func(t *testing.T, w *World, provider string)) {
	t.Helper()
	overAService(t, func(t *testing.T, configure func(w *World) string) {
		w := New(t)
		test(t, w, configure(w))
	}, host.Config{})
}

// OverAnEngineThatFails is OverAService with a proxy between the service and the engine. The proxy can misbehave. The
// world's Docker client bypasses it.
func OverAnEngineThatFails(t *testing.T, test func(t *testing.T, w *World, provider string, engine *dockertest.Proxy)) {
	t.Helper()
	overAService(t, func(t *testing.T, configure func(w *World) string) {
		w, engine := NewThroughProxy(t)
		test(t, w, configure(w), engine)
	}, host.Config{})
}

// NewThroughProxy creates a world whose services reach the engine through a proxy.
func NewThroughProxy(t *testing.T) (*World, *dockertest.Proxy) {
	t.Helper()
	w, engine := New(t), dockertest.NewProxy(t)
	w.engine = engine.Host()
	return w, engine
}

// OverServices runs a test in process, and against a reconciler that allows sandboxes this host access.
func OverServices(t *testing.T, allow host.Config, test func(t *testing.T, w *World, provider string)) {
	t.Helper()
	over(t, func(t *testing.T, configure func(w *World) string) {
		w := New(t)
		test(t, w, configure(w))
	}, allow)
}

// over runs a test for each service. The test calls configure for the provider configuration of its world.
func over(t *testing.T, test func(t *testing.T, configure func(w *World) string), allow host.Config) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, (*World).Embedded)
	})
	overAReconciler(t, test, allow)
}

func overAService(t *testing.T, test func(t *testing.T, configure func(w *World) string), allow host.Config) {
	t.Helper()
	if os.Getenv("SANDBOX_TEST_LONG") != "" {
		over(t, test, allow)
		return
	}
	overAReconciler(t, test, allow)
}

func overAReconciler(t *testing.T, test func(t *testing.T, configure func(w *World) string), allow host.Config) {
	t.Helper()
	t.Run("reconciler", func(t *testing.T) {
		t.Parallel()
		test(t, func(w *World) string { return w.ReconcilerWith(allow).Configuration })
	})
}
