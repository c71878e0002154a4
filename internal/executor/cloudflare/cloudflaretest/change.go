package cloudflaretest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Changes to a deployment from outside, with only the account's token.

// application has the fields of a container application that change here.
type application struct {
	ID, Name      string
	Configuration struct{ Image string }
}

// application returns the account's one container application.
func (a *Account) application(t testing.TB) application {
	t.Helper()
	var all []application
	a.call(t, http.MethodGet, "/containers/applications", "", &all)
	if len(all) != 1 {
		t.Fatalf("the account has the container applications %v, not one", all)
	}
	return all[0]
}

// ImageOf returns the image of the account's one container application.
func (a *Account) ImageOf(t testing.TB) string {
	t.Helper()
	return a.application(t).Configuration.Image
}

// ChangeApplication gives the account's one container application another image, size and number of instances, and
// returns the image.
func (a *Account) ChangeApplication(t testing.TB, instanceType string, maxInstances int) (image string) {
	t.Helper()
	app := a.application(t)
	image = a.pushVariant(t, app)
	change, err := json.Marshal(map[string]any{
		"configuration": map[string]string{"image": image, "instance_type": instanceType}, "max_instances": maxInstances,
	})
	if err != nil {
		t.Fatal(err)
	}
	a.call(t, http.MethodPatch, "/containers/applications/"+app.ID, string(change), nil)
	return image
}

// pushVariant pushes an image that behaves like the application's image but has another digest.
func (a *Account) pushVariant(t testing.TB, app application) (image string) {
	t.Helper()
	current, err := name.NewDigest(app.Configuration.Image)
	if err != nil {
		t.Fatal(err)
	}
	var granted struct{ Username, Password string }
	api, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	a.call(t, http.MethodPost, "/containers/registries/"+api.Host+"/credentials",
		`{"expiration_minutes":15,"permissions":["push","pull"]}`, &granted)
	client := registry.New(nil).With(api.Host, func(context.Context) (string, sandbox.Secret, error) {
		return granted.Username, sandbox.Secret(granted.Password), nil
	})
	repository := api.Host + "/" + current.Context().RepositoryStr()
	img, err := client.Open(t.Context(), repository+"@"+current.DigestStr(), "linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.CreatedAt(img, v1.Time{Time: time.Unix(1, 0)}); err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Push(t.Context(), repository+":"+app.Name+".variant", img); err != nil {
		t.Fatal(err)
	}
	return current.Context().Name() + "@" + digest.String()
}

// ChangeScript uploads the account's only Worker with more code. Its bindings stay.
func (a *Account) ChangeScript(t testing.TB, more string) {
	t.Helper()
	path := "/workers/scripts/" + a.application(t).Name
	module, content := a.script(t, path)
	var current struct {
		CompatibilityDate string `json:"compatibility_date"`
	}
	a.call(t, http.MethodGet, path+"/settings", "", &current)
	metadata, err := json.Marshal(map[string]any{
		"main_module":        module,
		"compatibility_date": current.CompatibilityDate,
		"containers":         []map[string]string{{"class_name": "Sandbox"}},
		"keep_bindings":      []string{"plain_text", "secret_text", "durable_object_namespace", "d1", "r2_bucket"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for part, text := range map[string]string{"metadata": string(metadata), module: content + more} {
		if err := form.WriteField(part, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	answer := a.send(t, http.MethodPut, path, form.FormDataContentType(), &body)
	defer func() { _ = answer.Body.Close() }() // it is read
	if said, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("upload another Worker: %s %s: %v", answer.Status, said, err)
	}
}

// script returns the name of a Worker's module, and its content.
func (a *Account) script(t testing.TB, path string) (module, content string) {
	t.Helper()
	answer := a.send(t, http.MethodGet, path+"/content/v2", "", strings.NewReader(""))
	defer func() { _ = answer.Body.Close() }() // it is read
	_, parameters, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil {
		t.Fatalf("read the Worker: %s: %v", answer.Status, err)
	}
	part, err := multipart.NewReader(answer.Body, parameters["boundary"]).NextPart()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(part)
	if err != nil {
		t.Fatal(err)
	}
	return part.FormName(), string(text)
}
