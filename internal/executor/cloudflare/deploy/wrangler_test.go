package deploy_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi/recording"
)

// What we ask of Cloudflare is what wrangler asks (scripts/record-wrangler), field by field, but for what stands in
// aligned.
func TestWeAskWhatWranglerAsks(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("testdata/wrangler.json")
	if err != nil {
		t.Fatal(err)
	}
	var wrangler struct {
		Steps map[string][]recording.Request
	}
	if err := json.Unmarshal(content, &wrangler); err != nil {
		t.Fatal(err)
	}
	recorder := &recording.Recorder{To: localapi.New(localapi.Config{}), Names: recording.Names()}
	server := httptest.NewServer(recorder)
	t.Cleanup(server.Close)
	d, err := deploy.New(deploy.Config{AccountID: recording.Account, Token: token, BaseURL: server.URL + "/client/v4"})
	if err != nil {
		t.Fatal(err)
	}
	ours := func(want cloudflare.Deployment) []recording.Request {
		if _, err := d.Deploy(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		return recorder.Take()
	}
	secret := wrangler.Steps["put the secret"]
	if len(secret) != 1 {
		t.Fatalf("the recording has no secret: %v", secret)
	}
	first := slices.Concat(wrangler.Steps["make the database"], wrangler.Steps["make the bucket"],
		wrangler.Steps["deploy"])
	if diff := cmp.Diff(aligned(first, secret[0].Body), ours(recording.Subject()), sameBindings); diff != "" {
		t.Errorf("a new deployment: wrangler's requests and ours differ:\n%s", diff)
	}
	second := slices.DeleteFunc(wrangler.Steps["deploy the change"], func(r recording.Request) bool {
		return strings.HasSuffix(r.Path, "/subdomain") // wrangler asks for the route that is there
	})
	if diff := cmp.Diff(aligned(second, secret[0].Body), ours(recording.Changed()), sameBindings); diff != "" {
		t.Errorf("a change: wrangler's requests and ours differ:\n%s", diff)
	}
	if err := d.Delete(t.Context(), recording.Subject().Name); err != nil {
		t.Fatal(err)
	}
	var removals []recording.Request
	for _, step := range []string{
		"delete the application", "delete the worker", "delete the database", "delete the bucket", "get credentials",
	} {
		if len(wrangler.Steps[step]) == 0 {
			t.Errorf("the recording has nothing of %q", step)
		}
		removals = append(removals, wrangler.Steps[step]...)
	}
	if diff := cmp.Diff(withoutService(removals), recorder.Take()); diff != "" {
		t.Errorf("a removal: wrangler's requests and ours differ:\n%s", diff)
	}
}

// withoutService has wrangler delete a Worker by the path that Cloudflare documents, and not by the one
// of its dashboard.
func withoutService(requests []recording.Request) []recording.Request {
	for i := range requests {
		requests[i].Path = strings.Replace(requests[i].Path, "/workers/services/", "/workers/scripts/", 1)
	}
	return requests
}

// sameBindings disregards the order of bindings.
var sameBindings = cmp.FilterPath(func(p cmp.Path) bool {
	return strings.HasSuffix(p.GoString(), `["bindings"]`) || strings.HasSuffix(p.GoString(), `["bindings"].([]any)`)
}, cmp.Transformer("byName", func(v any) map[string]any {
	all := map[string]any{}
	list, _ := v.([]any)
	for _, binding := range list {
		b, _ := binding.(map[string]any)
		name, _ := b["name"].(string)
		all[name] = b
	}
	return all
}))

// aligned changes wrangler's requests in what is ours on purpose: the secret comes with the Worker, which is never
// without it, so there is none to keep; and there is no source map.
func aligned(requests []recording.Request, secret any) []recording.Request {
	for i, r := range requests {
		body, _ := r.Body.(map[string]any)
		bindings, uploads := body["bindings"].([]any)
		if !uploads {
			continue
		}
		body["bindings"] = append(bindings, secret)
		delete(body, "keep_bindings")
		requests[i].Parts = slices.DeleteFunc(r.Parts,
			func(p string) bool { return strings.HasSuffix(p, "; application/source-map") })
	}
	return requests
}
