package containerimage_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// An image that was built and only in part pushed is in the state, as what the next apply replaces: nothing
// of it is left on the engine or in the registry that nobody knows.
func TestAccContainerImageThatIsPushedInPart(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	s := newShelf(t, w, registrytest.Options{})
	front, refuse := refusing(t, s.Host, "/manifests/v2")
	s.name = front + "/" + w.Name
	refuse.Store(true)
	conf := s.named(built(w, player(t, w.Name), "", "push = true\non_destroy = \"delete\"\ntags = [\"v1\", \"v2\"]\n"))
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		CheckDestroy: func(*terraform.State) error {
			for _, tag := range []string{"v1", "v2"} {
				if s.digest(tag) != "" || onEngine(w, s.name+":"+tag) != "" {
					return fmt.Errorf("%s of the image is left", tag)
				}
			}
			return nil
		},
		Steps: []resource.TestStep{
			{Config: conf, ExpectError: regexp.MustCompile(`(?s)Pushing Image Failed.*:v2`)},
			{
				PreConfig: func() {
					if onEngine(w, s.name+":v1") == "" || s.digest("v1") == "" || s.digest("v2") != "" {
						t.Errorf("the image must be on the engine, and its first tag alone in the registry")
					}
					refuse.Store(false)
				},
				Config: conf, ConfigPlanChecks: action(plancheck.ResourceActionReplace),
				ConfigStateChecks: []statecheck.StateCheck{copies("engine", "registry"), value("tags", tags("v1", "v2"))},
			},
		},
	})
}

// refusing serves a registry under another address. While it is told so, it refuses to take what ends so.
func refusing(t *testing.T, host, suffix string) (address string, refuse *atomic.Bool) {
	t.Helper()
	refuse = new(atomic.Bool)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: host})
		r.Out.Host = r.In.Host // which the registry's answers lead back to
	}}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if refuse.Load() && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, suffix) {
			http.Error(rw, `{"errors":[{"code":"DENIED","message":"not this one"}]}`, http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), refuse
}
