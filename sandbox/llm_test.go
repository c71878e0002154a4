package sandbox_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestARouteOnCloudflareNeedsAnUpstreamOnTheInternet. On Docker, private_cidrs may allow other upstreams.
func TestARouteOnCloudflareNeedsAnUpstreamOnTheInternet(t *testing.T) {
	t.Parallel()
	for upstream, public := range map[string]bool{
		"":                               true, // the API's own service
		"https://litellm.example.com":    true,
		"http://litellm.example.com:443": true,
		"http://litellm":                 false,
		"http://litellm:4000":            false,
		"http://localhost:4000":          false,
		"http://api.localhost":           false,
		"http://Nas.Local.":              false,
		"https://llm.corp.internal":      false,
		"https://box.home.arpa":          false,
		"https://internal.example.com":   true,
		"https://notinternal.example":    true,
	} {
		for _, backend := range []sandbox.Backend{sandbox.Docker, sandbox.Cloudflare} {
			spec := sandbox.EnvironmentSpec{
				Type: sandbox.TypeCustom, Backend: backend, Image: "player", Network: sandbox.NetworkNone, Secrets: []string{"KEY"},
				LLM: map[string]sandbox.LLMRoute{"main": {
					API: sandbox.LLMOpenAI, Upstream: upstream, Credential: "KEY",
					Models: map[string]sandbox.LLMModel{"m": {Input: sandbox.USD, Output: sandbox.USD}},
				}},
			}.WithDefaults()
			field := ""
			if all := spec.Unsupported(); len(all) > 0 {
				field = all[0].Name
			}
			want := ""
			if backend == sandbox.Cloudflare && !public {
				want = "llm.main.upstream"
			}
			if field != want {
				t.Errorf("%s on %s: the field %q is refused, want %q", upstream, backend, field, want)
			}
			if err := spec.Validate(); (err == nil) != (want == "") {
				t.Errorf("%s on %s: %v", upstream, backend, err)
			}
		}
	}
}
