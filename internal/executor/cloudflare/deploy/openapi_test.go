package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
)

// openAPI is the environment variable with the path of Cloudflare's OpenAPI document. A part of the document is enough.
// It does not cover containers.
const openAPI = "SANDBOX_CLOUDFLARE_OPENAPI"

func TestWhatWeAskIsAsCloudflareDocumentsIt(t *testing.T) {
	t.Parallel()
	file := os.Getenv(openAPI)
	if file == "" {
		t.Skipf("set %s to a file with Cloudflare's OpenAPI document", openAPI)
	}
	document, err := openapi3.NewLoader().LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	document.Servers = openapi3.Servers{{URL: "/client/v4"}}
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		t.Fatal(err)
	}
	v := &validator{t: t, router: router, to: localapi.New(localapi.Config{}), covered: map[string]bool{}}
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	d, err := deploy.New(deploy.Config{AccountID: account, Token: token, BaseURL: server.URL + "/client/v4"})
	if err != nil {
		t.Fatal(err)
	}
	live(t, d, wanted(), otherwise())
	t.Logf("the document covers %d kinds of our requests", len(v.covered))
	if len(v.covered) == 0 {
		t.Error("the document covers none of our requests")
	}
}

// validator validates requests that its document knows, and passes them on.
type validator struct {
	t      *testing.T
	router routers.Router
	to     http.Handler

	mu      sync.Mutex // guards covered
	covered map[string]bool
}

func (v *validator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		v.t.Errorf("read a request: %v", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	v.validate(r)
	r.Body = io.NopCloser(bytes.NewReader(body))
	v.to.ServeHTTP(w, r)
}

func (v *validator) validate(r *http.Request) {
	route, parameters, err := v.router.FindRoute(r)
	if errors.Is(err, routers.ErrPathNotFound) || errors.Is(err, routers.ErrMethodNotAllowed) {
		return // the document is a part, or older
	}
	if err != nil {
		v.t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		return
	}
	v.mu.Lock()
	v.covered[r.Method+" "+route.Path] = true
	v.mu.Unlock()
	input := &openapi3filter.RequestValidationInput{
		Request:    r,
		PathParams: parameters,
		Route:      route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: func(context.Context, *openapi3filter.AuthenticationInput) error { return nil },
			// The document knows only old forms of an upload's metadata. It requires a body for deletions, which no client
			// sends.
			ExcludeRequestBody: strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") || r.Method == http.MethodDelete,
		},
	}
	if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil {
		v.t.Errorf("%s %s does not match the document: %v", r.Method, r.URL.Path, err)
	}
}
