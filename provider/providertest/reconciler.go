package providertest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
)

// Reconciler runs on a world's ledger.
type Reconciler struct {
	URL, Token string
	// SecretFile holds the secret of its game servers.
	SecretFile string
	// Configuration configures a provider to use it.
	Configuration string
	// Stop stops it. A second call does nothing.
	Stop func()
}

// Reconciler starts a reconciler on the world's ledger. It stops at the end of the test.
func (w *World) Reconciler() Reconciler {
	w.Helper()
	return w.ReconcilerWith(host.Config{})
}

// ReconcilerWith starts a reconciler that allows sandboxes this host access.
func (w *World) ReconcilerWith(allow host.Config) Reconciler {
	w.Helper()
	return w.ReconcilerOf(func(c *reconciler.Config) { c.Host = allow })
}

// ReconcilerOf starts a reconciler with a changed configuration.
func (w *World) ReconcilerOf(change func(*reconciler.Config)) Reconciler {
	w.Helper()
	token := rand.Text() + rand.Text()
	dir := w.TempDir()
	tokens, secrets := filepath.Join(dir, "tokens"), filepath.Join(dir, "secrets")
	w.Must(os.WriteFile(tokens, []byte("terraform "+token+"\n"), 0o600))
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	w.Must(os.WriteFile(secrets, []byte("whsec_"+base64.StdEncoding.EncodeToString(secret)+"\n"), 0o600))

	config := reconciler.Config{
		Listen: "127.0.0.1:0", LedgerURL: w.LedgerURL, TokenFile: tokens, SecretFile: secrets,
		Docker: docker.Config{Host: w.engine}, Version: "test", Logger: discard,
	}
	change(&config)
	ctx, cancel := context.WithCancel(context.Background())
	address, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- reconciler.Serve(ctx, config, func(s reconciler.Started) { address <- s.Address })
	}()
	stopped := false
	stop := func() {
		if cancel(); !stopped {
			stopped = true
			w.Must(<-ended)
		}
	}
	w.Cleanup(stop)
	select {
	case a := <-address:
		return Reconciler{
			URL: "http://" + a, Token: token, SecretFile: secrets,
			Configuration: fmt.Sprintf("provider \"sandbox\" {\n  reconciler = {\n    url   = %q\n    token = %q\n  }\n}\n",
				"http://"+a, token),
			Stop: stop,
		}
	case err := <-ended:
		stopped = true
		w.Fatalf("the reconciler did not start: %v", err)
	case <-time.After(time.Minute):
		w.Fatal("the reconciler did not start within a minute")
	}
	panic("unreachable")
}
