package client_test

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const root = "../.."

// TestExamplesOfTheWebhook: the guide's example in each language ends a game, exactly as printed.
func TestExamplesOfTheWebhook(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Abs(filepath.Join(root, "examples/webhook"))
	if err != nil {
		t.Fatal(err)
	}
	for language, command := range map[string]func(t *testing.T) []string{
		"curl":   func(*testing.T) []string { return []string{filepath.Join(examples, "webhook.sh")} },
		"Python": func(*testing.T) []string { return []string{"python3", filepath.Join(examples, "webhook.py")} },
		"Go": func(t *testing.T) []string {
			t.Helper()
			return []string{buildOutside(t, filepath.Join(examples, "go/main.go"))}
		},
		"TypeScript": func(t *testing.T) []string {
			t.Helper()
			return []string{"node", stripTypes(t, filepath.Join(examples, "webhook.ts"))}
		},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			endsAGame(t, command(t))
		})
	}
}

// endsAGame runs a game server's program against a reconciler whose environment has one lease.
func endsAGame(t *testing.T, command []string) {
	t.Helper()
	env := inprocess.New(t)
	env.Pass(time.Since(env.Now()) - time.Minute) // leases must begin before the game ends
	if _, err := env.Service.PutEnvironment(t.Context(),
		sandbox.PutEnvironment{ID: "catan-7", EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player:1"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Service.Acquire(t.Context(),
		sandbox.Acquire{EnvironmentID: "catan-7", AgentDID: "did:plc:ann"}); err != nil {
		t.Fatal(err)
	}
	bearer, signing := access.NewToken(), webhook.NewSecret()
	token, err := access.MakeToken("game", bearer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := webhook.ParseSecret(signing)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Config{
		Service: env.Service, Tokens: []access.Token{token}, Secrets: webhook.Secrets{secret}, Now: time.Now,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	header := filepath.Join(t.TempDir(), "header")
	if err := os.WriteFile(header, []byte("Authorization: Bearer "+bearer+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	c := exec.CommandContext(t.Context(), command[0], append(command[1:], "catan-7")...)
	c.Env = append(os.Environ(), "SANDBOX_RECONCILER_URL="+server.URL, "SANDBOX_WEBHOOK_SECRET="+signing,
		"SANDBOX_RECONCILER_TOKEN_HEADER="+header)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "applied") {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	e, err := env.Service.GetEnvironment(t.Context(), "catan-7")
	if err != nil || e.Status != sandbox.EnvironmentClosed {
		t.Errorf("the environment is %q (%v)", e.Status, err)
	}
	l, err := env.Service.GetLease(t.Context(), "did:plc:ann::catan-7")
	if err != nil || l.EndedAt.IsZero() {
		t.Errorf("the lease is %q (%v)", l.Status, err)
	}
}

// buildOutside builds a program as part of another module, which cannot import internal packages.
func buildOutside(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	home, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	const ours = "github.com/sandbox-lease/terraform-provider-sandbox"
	for name, from := range map[string]string{
		"main.go": source,
		"go.mod":  filepath.Join(home, "go.mod"),
		"go.sum":  filepath.Join(home, "go.sum"),
	} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if name == "go.mod" { // the same versions, under another name
			content = append([]byte(strings.Replace(string(content), "module "+ours, "module example.com/game", 1)),
				"\nrequire "+ours+" v0.0.0\nreplace "+ours+" => "+home+"\n"...)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-mod=mod", "-o", "game", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("another module cannot build it: %v\n%s", err, out)
	}
	return filepath.Join(dir, "game")
}

// stripTypes turns TypeScript into JavaScript. Node.js runs TypeScript itself only since 22.18.
func stripTypes(t *testing.T, source string) string {
	t.Helper()
	esbuild := filepath.Join(root, "internal/executor/cloudflare/worker/node_modules/.bin/esbuild")
	if _, err := os.Stat(esbuild); err != nil {
		t.Skip("esbuild is not installed: run make worker")
	}
	script := filepath.Join(t.TempDir(), "webhook.mjs")
	if out, err := exec.CommandContext(t.Context(), esbuild, source, "--outfile="+script,
		"--format=esm").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return script
}
