package reconciler_test

import (
	"context"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
)

// started serves until it is ready, and returns its own description.
func started(t *testing.T, c reconciler.Config) (s reconciler.Started) {
	t.Helper()
	i := newInstall(t)
	c.SecretFile, c.Version, c.Logger = i.Dir+"/secrets", "1.2.3", slog.New(slog.DiscardHandler)
	if c.LedgerURL == "" {
		c.LedgerURL = "sqlite://" + i.Dir + "/ledger.db"
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	err := reconciler.Serve(ctx, c, func(started reconciler.Started) {
		s = started
		stop()
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAStartedReconcilerSaysHowToReachIt(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	i.certify(1, "*.example", "sandbox.example")
	socket := "unix://" + filepath.Join(t.TempDir(), "api.sock")
	for name, want := range map[string]struct {
		config         reconciler.Config
		api, dashboard string
	}{
		"this machine":  {reconciler.Config{Listen: "127.0.0.1:0", Dashboard: true}, "http://127.0.0.1:", "/ui/"},
		"no dashboard":  {reconciler.Config{Listen: "127.0.0.1:0"}, "http://127.0.0.1:", ""},
		"all addresses": {reconciler.Config{Listen: "0.0.0.0:0", Insecure: true, Dashboard: true}, "http://127.0.0.1:", "/ui/"},
		"TLS": {reconciler.Config{Listen: "0.0.0.0:0", TLSCert: i.Dir + "/cert.pem", TLSKey: i.Dir + "/key.pem",
			Dashboard: true},
			"https://sandbox.example:", "/ui/"},
		"a socket": {reconciler.Config{Listen: socket, Dashboard: true}, socket, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := started(t, want.config)
			if !strings.HasPrefix(s.API, want.api) || s.Webhook != s.API+"/v1/conditions" ||
				want.dashboard == "" && s.Dashboard != "" || want.dashboard != "" && s.Dashboard != s.API+want.dashboard {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestAStartedReconcilerShowsNoPassword(t *testing.T) {
	t.Parallel()
	at := postgrestest.New(t)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	password, has := u.User.Password()
	s := started(t, reconciler.Config{Listen: "127.0.0.1:0", LedgerURL: at})
	if said := s.String(); !has || strings.Contains(said, password) || !strings.Contains(said, u.Host) {
		t.Errorf("%s", said)
	}
	x, err := storage.Examine(t.Context(), at)
	if err != nil || !strings.Contains(s.String(), x.ID) {
		t.Errorf("it does not name ledger %s, %v:\n%s", x.ID, err, s)
	}
	if !strings.HasPrefix(s.Try, "sandbox token create ops --scope admin --ledger 'postgres://") {
		t.Errorf("without a token file, the first command is %s", s.Try)
	}
}
