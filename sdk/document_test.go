package sdk_test

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/sdk/internal/generate"
)

var update = flag.Bool("update", false, "write the generated files")

// document returns the OpenAPI document that a reconciler serves.
func document(t *testing.T) generate.Document {
	t.Helper()
	token, err := access.MakeToken("test", access.NewToken())
	if err != nil {
		t.Fatal(err)
	}
	env, store := inprocess.NewStored(t)
	handler, err := api.New(api.Config{
		Service: env.Service,
		Access:  access.New(access.Config{Store: store}),
		Tokens:  []access.Token{token},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.json", nil))
	d, err := generate.Parse(answer.Body.Bytes())
	if err != nil || len(d.Paths) == 0 {
		t.Fatalf("the document has %d paths (%v)", len(d.Paths), err)
	}
	return d
}

// TestTheLibrariesAreWhatTheDocumentSays: types and operations of both libraries match the OpenAPI document. -update
// writes them.
func TestTheLibrariesAreWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	d := document(t)
	python, err := generate.PythonOperations(d)
	if err != nil {
		t.Fatal(err)
	}
	typescript, err := generate.TypeScriptOperations(d)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"python/sandbox_lease/types.py":       generate.PythonTypes(d),
		"python/sandbox_lease/_operations.py": python,
		"typescript/src/types.ts":             generate.TypeScriptTypes(d),
		"typescript/src/operations.ts":        typescript,
	} {
		if *update {
			if err := os.WriteFile(name, []byte(content), 0o644); err != nil { //nolint:gosec // source, readable by all
				t.Fatal(err)
			}
		}
		if is, err := os.ReadFile(name); err != nil || string(is) != content {
			t.Errorf("%s is not what the document says (%v): go test ./sdk -run DocumentSays -update", name, err)
		}
	}
}
