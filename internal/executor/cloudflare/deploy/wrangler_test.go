package deploy_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi/recording"
)

// Our requests to Cloudflare equal those of wrangler (scripts/record-wrangler), field by field, except for the changes
// in aligned.
func TestWeAskWhatWranglerAsks(t *testing.T) {
	t.Parallel()
	wrangler := readWrangler(t)
	d, recorder := newRecorded(t)
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
		return strings.HasSuffix(r.Path, "/subdomain") // wrangler requests the existing route again
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
			t.Errorf("the recording has no requests of %q", step)
		}
		removals = append(removals, wrangler.Steps[step]...)
	}
	if diff := cmp.Diff(withoutService(removals), recorder.Take()); diff != "" {
		t.Errorf("a removal: wrangler's requests and ours differ:\n%s", diff)
	}
}

// TestWeAskWhatWranglerAsksForDurableObject does so for the scheduling policy durable_object.
func TestWeAskWhatWranglerAsksForDurableObject(t *testing.T) {
	t.Parallel()
	wrangler := readWrangler(t)
	theirs := slices.Concat(wrangler.Steps["make the parts of durable_object"], wrangler.Steps["deploy durable_object"])
	d, recorder := newRecorded(t)
	if _, err := d.Deploy(t.Context(), recording.Pinned()); err != nil {
		t.Fatal(err)
	}
	ours := recorder.Take()
	for _, r := range ours {
		withoutStarts(r)
	}
	want := aligned(theirs, wrangler.Steps["put the secret"][0].Body)
	if diff := cmp.Diff(want, ours, sameBindings); diff != "" {
		t.Errorf("a deployment of durable_object: wrangler's requests and ours differ:\n%s", diff)
	}
}

// withoutStarts removes the variables that record the images of starts.
func withoutStarts(r recording.Request) {
	body, _ := r.Body.(map[string]any)
	bindings, _ := body["bindings"].([]any)
	if bindings == nil {
		return
	}
	body["bindings"] = slices.DeleteFunc(bindings, func(v any) bool {
		name, _ := v.(map[string]any)["name"].(string)
		return name == cloudflare.BindingPolicy || strings.HasPrefix(name, cloudflare.BindingImages)
	})
}

// TestTheWorkersBindingsAreOfWranglersTypes: wrangler gives our Worker's bindings the types that the Worker's code
// declares.
func TestTheWorkersBindingsAreOfWranglersTypes(t *testing.T) {
	t.Parallel()
	declared, err := os.ReadFile("../worker/src/env.ts")
	if err != nil {
		t.Fatal(err)
	}
	types := readWrangler(t).Types
	for binding, want := range map[string]string{
		cloudflare.BindingSandbox: "DurableObjectNamespace", cloudflare.BindingDatabase: "D1Database",
		cloudflare.BindingState: "R2Bucket", cloudflare.BindingInstance: "string", cloudflare.BindingKeyDigest: "string",
	} {
		line := regexp.MustCompile(`(?m)^  ` + binding + `\??: ` + want + `\b`)
		if got := types[binding]; !strings.HasPrefix(got, want) || !line.Match(declared) {
			t.Errorf("wrangler declares %s as %q, want %s as env.ts does", binding, got, want)
		}
	}
}

// wranglerRecording is the recording of scripts/record-wrangler.
type wranglerRecording struct {
	Steps map[string][]recording.Request
	Types map[string]string
}

func readWrangler(t *testing.T) (r wranglerRecording) {
	t.Helper()
	content, err := os.ReadFile("testdata/wrangler.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// newRecorded returns a deployer whose requests are recorded.
func newRecorded(t *testing.T) (*deploy.Deployer, *recording.Recorder) {
	t.Helper()
	recorder := &recording.Recorder{To: localapi.New(localapi.Config{}), Names: recording.Names()}
	server := httptest.NewServer(recorder)
	t.Cleanup(server.Close)
	d, err := deploy.New(deploy.Config{AccountID: recording.Account, Token: token, BaseURL: server.URL + "/client/v4"})
	if err != nil {
		t.Fatal(err)
	}
	return d, recorder
}

// withoutService replaces the dashboard's path in wrangler's deletion of a Worker by the path that Cloudflare
// documents.
func withoutService(requests []recording.Request) []recording.Request {
	for i := range requests {
		requests[i].Path = strings.Replace(requests[i].Path, "/workers/services/", "/workers/scripts/", 1)
	}
	return requests
}

// sameBindings ignores the order of bindings.
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

// aligned applies our intentional differences to wrangler's requests. The secret comes with every upload of the Worker,
// so no bindings are kept. There is no source map.
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
