package containerimage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Each image was created in a month of this year; month 0 is an image without a date.
const year = 2026

// push pushes a new image of a month with a tag.
func push(w *providertest.World, ref string, month int, options ...remote.Option) {
	w.Helper()
	img, err := random.Image(100, 1)
	w.Must(err)
	if month > 0 {
		img, err = mutate.CreatedAt(img, v1.Time{Time: time.Date(year, time.Month(month), 1, 0, 0, 0, 0, time.UTC)})
		w.Must(err)
	}
	parsed, err := name.ParseReference(ref)
	w.Must(err)
	w.Must(remote.Write(parsed, img, options...))
}

// The newest tags of a repository stay, and images in use. The resource's own tags count as the newest.
func TestAccContainerImageKeepsTagsOfCloudflare(t *testing.T) {
	t.Parallel()
	const account = "0123456789abcdef0123456789abcdef"
	w := providertest.New(t)
	api := localapi.New(localapi.Config{Token: "the-token"})
	cloud := httptest.NewServer(api)
	t.Cleanup(cloud.Close)
	to := strings.TrimPrefix(cloud.URL, "http://") + "/" + account + "/player"
	from := newShelf(t, w, registrytest.Options{}).name
	push(w, from+":game", 1)
	login := remote.WithAuth(pushTo(w, cloud.URL, account))
	for tag, month := range map[string]int{"february": 2, "march": 3, "april": 4, "used": 2, "helper": 2, "undated": 0} {
		push(w, to+":"+tag, month, login)
	}
	for _, tag := range []string{":used", ":helper"} {
		w.Must(w.Docker.ImageTag(t.Context(), w.Image, to+tag))
		t.Cleanup(func() {
			if _, err := w.Docker.ImageRemove(context.WithoutCancel(t.Context()), to+tag,
				dockerapi.ImageRemoveOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	conf := func(more string) string {
		return fmt.Sprintf(`
provider "sandbox" {
  ledger = %q
  cloudflare = {
    account_id   = %q
    api_token    = "the-token"
    api_base_url = "%s/client/v4"
  }
}
resource "sandbox_container_image" "test" {
  name       = %q
  on_destroy = "delete"
  tags       = ["january"]
  source = {
    reference = "%s:game"
  }
  %s
}
`, w.LedgerURL, account, cloud.URL, to, from, more)
	}
	has := func(tags ...string) {
		t.Helper()
		var want []string
		for _, tag := range tags {
			want = append(want, account+"/player:"+tag)
		}
		if got := api.Images(); !slices.Equal(got, want) {
			t.Errorf("the registry has %v, want %v", got, want)
		}
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{
				Config:      conf("keep_tags = 2"),
				ExpectError: regexp.MustCompile(`(?s)keep_tags needs a registry.*set\s+push\s+=\s+true`),
			},
			{
				Config:      conf("push = true\n  keep_tags = 0"),
				ExpectError: regexp.MustCompile(`keep_tags value must be at least 1`),
			},
			{Config: conf("push = true")},
			{
				PreConfig: func() {
					has("april", "february", "helper", "january", "march", "undated", "used")
					_, err := w.Service().PutEnvironment(t.Context(), sandbox.PutEnvironment{
						ID:    w.Name,
						Owner: "test",
						EnvironmentSpec: sandbox.EnvironmentSpec{
							Type: sandbox.TypeCustom, Image: to + ":used", Network: sandbox.NetworkNone,
							Companions: sandbox.Companions{"db": {Image: to + ":helper"}},
						},
					})
					w.Must(err)
				},
				Config: conf("push = true\n  keep_tags = 2"), ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
			},
			{
				PreConfig: func() { has("april", "helper", "january", "undated", "used") },
				Config:    conf("push = true\n  keep_tags = 2"),
				PlanOnly:  true,
			},
			{
				PreConfig: func() {
					w.Must(w.Service().DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: w.Name}))
				},
				Config: conf("push = true\n  keep_tags = 1"), ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
			},
			{
				PreConfig:        func() { has("january", "undated") },
				Config:           conf("push = true"),
				ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
			},
		},
	})
	has("undated")
}

// pushTo returns credentials for pushes to the account's registry, as the API does.
func pushTo(w *providertest.World, url, account string) authn.Authenticator {
	w.Helper()
	body := bytes.NewReader([]byte(`{"expiration_minutes":15,"permissions":["push","pull"]}`))
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost,
		url+"/client/v4/accounts/"+account+"/containers/registries/"+localapi.RegistryDomain+"/credentials", body)
	w.Must(err)
	req.Header.Set("Authorization", "Bearer the-token")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	w.Must(err)
	defer resp.Body.Close()
	var answer struct {
		Result struct{ Username, Password string }
	}
	w.Must(json.NewDecoder(resp.Body).Decode(&answer))
	return &authn.Basic{Username: answer.Result.Username, Password: answer.Result.Password}
}

// In a registry that removes no single tags, whole old images are removed. In one that removes nothing they stay, and
// the new image is still made.
func TestAccContainerImageKeepsTagsOfARegistry(t *testing.T) {
	t.Parallel()
	for behaviour, keeps := range map[string]bool{"removes images": false, "removes nothing": true} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			s := newShelf(t, w, registrytest.Options{Keep: keeps})
			from := s.Host + "/origin:game"
			push(w, from, 1)
			for month, tag := range []string{2: "february", 3: "march"} {
				if tag != "" {
					push(w, s.name+":"+tag, month)
				}
			}
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: w.Providers(),
				Steps: []resource.TestStep{{
					Config: s.named(s.source(from, "", "push = true\n  keep_tags = 2\n  on_destroy = \"keep\"")),
				}},
			})
			for tag, there := range map[string]bool{"latest": true, "march": true, "february": keeps} {
				if (s.digest(tag) != "") != there {
					t.Errorf("tag %s is there: %v, want %v", tag, !there, there)
				}
			}
		})
	}
}
