package reconciler_test

import (
	"net/http"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
)

// probe returns the status of a probe, 0 if nothing answers.
func (s *served) probe(path string) int {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+s.Address+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Close = true
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestReadinessFollowsTheLedgerAndNotBackends takes away the engine, then writes to the database, then the database.
func TestReadinessFollowsTheLedgerAndNotBackends(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	key := i.Dir + "/key"
	if err := seal.Generate(key); err != nil {
		t.Fatal(err)
	}
	server := postgrestest.Start(t)
	proxy := postgrestest.NewProxy(t, server)
	url := server.URL(t)
	s := i.serve(func(c *reconciler.Config) {
		c.LedgerURL, c.SecretKeyFile, c.Docker.Host = proxy.Through(t, url), key, "tcp://127.0.0.1:1"
	})
	w := &world{T: t}
	becomes := func(what string, ready int) {
		t.Helper()
		w.eventually(what, func() bool { return s.probe("/readyz") == ready })
		if code := s.probe("/livez"); code != http.StatusOK {
			t.Errorf("%s, /livez is answered with %d", what, code)
		}
	}
	becomes("it is ready without an engine", http.StatusOK)
	proxy.SetDown(true)
	becomes("it is not ready without the database", http.StatusServiceUnavailable)
	proxy.SetDown(false)
	becomes("it is ready again", http.StatusOK)
	// The server is read-only, like a standby.
	for _, statement := range []string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"} {
		postgrestest.Exec(t, url, statement)
	}
	becomes("it is not ready when the ledger can only be read", http.StatusServiceUnavailable)
}
