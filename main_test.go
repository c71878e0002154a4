package main

import (
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sandbox": main, "sbl": main, "terraform-provider-sandbox": main})
}

// TestCommandLine runs the scripts. Each calls the program as users do, beside a reconciler with its own ledger and
// backend. The reconciler has the environment catan-7 with ann's lease.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: func(e *testscript.Env) error { return serve(t, e) },
		Cmds:  map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "envfrom": envFrom},
	})
}

// serve starts the reconciler of a script.
func serve(t *testing.T, e *testscript.Env) error {
	env, store := inprocess.NewStored(t)
	text, signing := access.NewToken(), webhook.NewSecret()
	token, err := access.MakeToken("ops", text)
	if err != nil {
		return err
	}
	secret, err := webhook.ParseSecret(signing)
	if err != nil {
		return err
	}
	_, err = env.Service.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:    "catan-7",
		Owner: "suite",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeCatan, Image: "player:1", Network: sandbox.NetworkNone},
	})
	if err == nil {
		_, err = env.Service.Acquire(t.Context(),
			sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: "catan-7", Owner: "suite"})
	}
	if err != nil {
		return err
	}
	env.Advance(time.Minute)
	// Senders sign with the machine's clock, so the API uses it too. The service has its own clock.
	handler, err := api.New(api.Config{
		Service: env.Service,
		Access:  access.New(access.Config{Store: store}),
		Tokens:  []access.Token{token},
		Secrets: webhook.Secrets{secret},
	})
	if err != nil {
		return err
	}
	server := httptest.NewServer(handler)
	e.Defer(server.Close)
	e.Setenv("TZ", "UTC")
	e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "config"))
	e.Setenv("SANDBOX_RECONCILER_URL", server.URL)
	e.Setenv("SANDBOX_RECONCILER_TOKEN", text)
	return os.WriteFile(filepath.Join(e.WorkDir, "webhook-secrets"), []byte(signing+"\n"), 0o600)
}

// exits runs a program, and checks its exit code: exits 2 sandbox ...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGUMENT...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s ends with %d, not %d", args[1], got, want)
	}
}

// envFrom sets a variable to the content of a file: envfrom NAME FILE
func envFrom(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: envfrom NAME FILE")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
}

func TestTerraformStartsTheProviderAndUsersTheCommandLine(t *testing.T) {
	t.Parallel()
	const long = "terraform-provider-sandbox"
	for _, c := range []struct {
		name, args, cookie string
		provider, debug    bool
	}{
		{long, "", "d602bf8f", true, false},
		{long + "_v0.1.0", "", "d602bf8f", true, false},
		{long, "-debug", "", true, true},
		{long, "--debug", "", true, true},
		{long, "", "", false, false},
		{long, "--help", "", false, false},
		{long, "--version", "d602bf8f", false, false},
		{long, "lease list", "d602bf8f", false, false},
		{"sandbox", "", "", false, false},
		{"sandbox", "", "d602bf8f", false, false},
		{"sandbox", "-debug", "", false, false},
		{"sbl", "serve", "", false, false},
	} {
		provider, debug := providerOf(c.name, strings.Fields(c.args), c.cookie)
		if provider != c.provider || debug != c.debug {
			t.Errorf("%s %s with the cookie %q: provider %v, debug %v", c.name, c.args, c.cookie, provider, debug)
		}
	}
}
