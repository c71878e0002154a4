package api_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
)

// TestAGeneratedClientWorks: a TypeScript client generated from the API's document compiles in strict mode. Every
// answer matches the document. It needs Node.js and npm.
func TestAGeneratedClientWorks(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOX_TEST_ALL") == "" {
		t.Skip("set SANDBOX_TEST_ALL=1: it installs npm packages")
	}
	env, store := inprocess.NewStored(t)
	text := access.NewToken()
	token, err := access.MakeToken("test", text)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	handler, err := api.New(api.Config{
		Service:   env.Service,
		Connector: env.Service.(service.Connector),
		Access:    access.New(access.Config{Store: store, Logger: log}),
		Tokens:    []access.Token{token},
		Now:       env.Now,
		Logger:    log,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/generated")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), get(t, server.URL+"/openapi.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"},
		{"npx", "--no-install", "openapi-ts"},
		{"npx", "--no-install", "tsc"},
		{"npx", "--no-install", "esbuild", "use.ts", "--bundle", "--platform=node", "--format=esm", "--outfile=use.mjs"},
		{"node", "use.mjs"},
	} {
		c := exec.CommandContext(t.Context(), command[0], command[1:]...)
		c.Dir, c.Env = dir, append(os.Environ(), "URL="+server.URL, "TOKEN="+text,
			"OVER_AT="+env.Now().Add(time.Second).Format(time.RFC3339Nano))
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s (%v)", url, resp.Status, err)
	}
	return content
}
