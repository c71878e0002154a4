package deploy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestTheLocalAPIBlocksATokenThatAsksTooOften: code that makes too many calls fails tests before a real account blocks
// it.
func TestTheLocalAPIBlocksATokenThatAsksTooOften(t *testing.T) {
	t.Parallel()
	now := time.Now()
	api := localapi.New(localapi.Config{Now: func() time.Time { return now }})
	ask := func(token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/client/v4/accounts/"+account+"/workers/scripts", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w
	}
	for n := range localapi.CallsPerWindow {
		if w := ask("one"); w.Code != http.StatusOK {
			t.Fatalf("the answer to call %d is %d: %s", n+1, w.Code, w.Body)
		}
		now = now.Add(200 * time.Millisecond) // four minutes for all of them
	}
	if w := ask("one"); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), `"code":971`) ||
		w.Header().Get("Retry-After") != "300" || w.Header().Get("Ratelimit") != `"default";r=0;t=300` ||
		w.Header().Get("Ratelimit-Policy") != `"default";q=1200;w=300` {
		t.Errorf("the answer to one more call is %d, %v: %s", w.Code, w.Header(), w.Body)
	}
	if w := ask("another"); w.Code != http.StatusOK {
		t.Errorf("the answer to another token is %d", w.Code)
	}
	now = now.Add(4*time.Minute + 59*time.Second)
	if w := ask("one"); w.Code != http.StatusTooManyRequests {
		t.Errorf("before the block ends, the answer to a call is %d", w.Code)
	}
	now = now.Add(2 * time.Second)
	if w := ask("one"); w.Code != http.StatusOK {
		t.Errorf("after the block, the answer to a call is %d", w.Code)
	}
}

// TestTheLocalAPICountsQueriesApart: GraphQL has a separate limit.
func TestTheLocalAPICountsQueriesApart(t *testing.T) {
	t.Parallel()
	api := localapi.New(localapi.Config{})
	ask := func(method, path string) int {
		r := httptest.NewRequest(method, "/client/v4"+path, strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer one")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w.Code
	}
	for n := range localapi.QueriesPerWindow {
		if code := ask(http.MethodPost, "/graphql"); code != http.StatusOK {
			t.Fatalf("the answer to query %d is %d", n+1, code)
		}
	}
	if code := ask(http.MethodPost, "/graphql"); code != http.StatusTooManyRequests {
		t.Errorf("the answer to one more query is %d", code)
	}
	if code := ask(http.MethodGet, "/accounts/"+account+"/workers/scripts"); code != http.StatusOK {
		t.Errorf("then the answer to a call is %d", code)
	}
	if got, want := api.Queries(), (localapi.Load{Most: localapi.QueriesPerWindow, Refused: 1}); got != want {
		t.Errorf("it counts %+v, want %+v", got, want)
	}
}

// TestTheLocalAPITakesAHundredImages: each is prepared before the upload of the Worker that names it.
func TestTheLocalAPITakesAHundredImages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	images := map[string]string{}
	for n := range cloudflare.MaxImages {
		images[cloudflare.ImageName(numbered(n))] = numbered(n)
	}
	if status := w.upload("sandbox-raw", images); status != http.StatusBadRequest {
		t.Errorf("the answer to unprepared images is %d", status)
	}
	for n := range cloudflare.MaxImages + 1 {
		if status := w.status(http.MethodPost, "/containers/image-preparations",
			fmt.Sprintf(`{"image":%q}`, numbered(n))); status != http.StatusOK {
			t.Fatalf("the answer to the preparation of an image is %d", status)
		}
	}
	if status := w.upload("sandbox-raw", images); status != http.StatusOK {
		t.Errorf("the answer to a hundred images is %d", status)
	}
	images[cloudflare.ImageName(numbered(cloudflare.MaxImages))] = numbered(cloudflare.MaxImages)
	if status := w.upload("sandbox-raw", images); status != http.StatusBadRequest {
		t.Errorf("the answer to one more image is %d", status)
	}
}

// TestAnAccountHasFiveHundredWorkers: the error for the next environment says what to do.
func TestAnAccountHasFiveHundredWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range localapi.MaxWorkers {
		if status := w.upload(fmt.Sprintf("sandbox-raw-%d", n), nil); status != http.StatusOK {
			t.Fatalf("the answer to Worker %d is %d", n+1, status)
		}
	}
	if status := w.upload("sandbox-raw-0", nil); status != http.StatusOK {
		t.Errorf("the answer to another version of a Worker is %d", status)
	}
	_, err := w.deployer.Deploy(t.Context(), wanted())
	w.wantCode(err, sandbox.CapacityExceeded)
}

// upload uploads a Worker behind the deployer's back, and returns the status of the answer.
func (w *world) upload(name string, images map[string]string) int {
	w.Helper()
	metadata, err := json.Marshal(map[string]any{
		"main_module": "worker.js", "containers": []any{map[string]any{"class_name": "Sandbox", "images": images}},
	})
	w.must(err)
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	w.must(form.WriteField("metadata", string(metadata)))
	w.must(form.WriteField("worker.js", "export default {}"))
	w.must(form.Close())
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPut,
		w.url+"/accounts/"+account+"/workers/scripts/"+name, &body)
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", form.FormDataContentType())
	answer, err := http.DefaultClient.Do(r)
	w.must(err)
	w.must(answer.Body.Close())
	return answer.StatusCode
}

// TestABlockedTokenIsAnErrorAtOnce: nothing waits for five minutes.
func TestABlockedTokenIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range localapi.CallsPerWindow {
		r := httptest.NewRequest(http.MethodGet, "/client/v4/accounts/"+account+"/workers/scripts", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w.api.ServeHTTP(httptest.NewRecorder(), r)
	}
	began := time.Now()
	_, err := w.newDeployer(deploy.Config{}).List(t.Context(), "ledgerofdeploy22")
	w.wantCode(err, sandbox.Unavailable)
	if took := time.Since(began); took > time.Minute || !strings.Contains(err.Error(), "971") {
		t.Errorf("after %s: %v", took, err)
	}
}

// TestTheLocalAPIRunsNoSizeThatCloudflareDoesNot: the local API has its own copy of the plan's rules.
func TestTheLocalAPIRunsNoSizeThatCloudflareDoesNot(t *testing.T) {
	t.Parallel()
	for _, size := range []sandbox.Resources{
		{CPUMillis: 1000, MemoryMB: 3072, DiskMB: 20000},
		{CPUMillis: 500, MemoryMB: 3072, DiskMB: 2000}, {CPUMillis: 4000, MemoryMB: 12289, DiskMB: 2000},
		{CPUMillis: 2000, MemoryMB: 6143, DiskMB: 2000}, {CPUMillis: 2000, MemoryMB: 6144, DiskMB: 12000},
	} {
		d := wanted()
		d.Resources = size
		planned := d.Check()
		w := newWorld(t)
		w.deploy(wanted())
		var all []struct{ ID string }
		w.get("/containers/applications", &all)
		status := w.patchSize(all[0].ID, size)
		if (planned == nil) != (status == http.StatusOK) {
			t.Errorf("size %+v: the plan says %v, and the API %d", size, planned, status)
		}
	}
	d := wanted()
	d.MaxInstances = 1_000_000
	_, err := newWorld(t).deployer.Deploy(t.Context(), d)
	newWorld(t).wantCode(err, sandbox.CapacityExceeded)
}

func (w *world) patchSize(id string, size sandbox.Resources) int {
	w.Helper()
	body := strings.NewReader(fmt.Sprintf(`{"configuration":{"image":%q,"vcpu":%v,"memory_mib":%d,"disk":{"size_mb":%d}}}`,
		wanted().Image, float64(size.CPUMillis)/1000, size.MemoryMB, size.DiskMB))
	return w.patch(id, body)
}

// patch changes an application.
func (w *world) patch(id string, body io.Reader) int {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPatch,
		w.url+"/accounts/"+account+"/containers/applications/"+id, body)
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	w.must(err)
	w.must(answer.Body.Close())
	return answer.StatusCode
}
