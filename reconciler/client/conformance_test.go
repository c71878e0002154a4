package client_test

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServiceOverHTTP: a client of the API on the service in process is the same service.
func TestServiceOverHTTP(t *testing.T) {
	t.Parallel()
	servicetest.Run(t, servicetest.Config{New: func(t *testing.T) servicetest.Env {
		t.Helper()
		env := inprocess.New(t)
		text := webhook.NewToken()
		token, err := webhook.MakeToken("suite", text)
		if err != nil {
			t.Fatal(err)
		}
		handler, err := api.New(api.Config{Service: env.Service, Tokens: []api.Token{token}, Now: env.Now, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		c, err := client.New(client.Config{URL: server.URL, Token: text, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		env.Service = c
		return env
	}})
}
