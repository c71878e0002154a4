package registry_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// player pushes a small, unique image and returns its digest.
func player(t *testing.T, c *registry.Client, ref string) string {
	t.Helper()
	img, err := random.Image(64, 2)
	must(t, err)
	return push(t, c, ref, img)
}

func push(t *testing.T, c *registry.Client, ref string, what remote.Taggable) string {
	t.Helper()
	parsed, err := name.ParseReference(ref)
	must(t, err)
	must(t, remote.Push(parsed, what, remote.WithAuthFromKeychain(c), remote.WithContext(t.Context())))
	digest, err := c.Digest(t.Context(), ref, "")
	must(t, err)
	return digest
}

func expect(t *testing.T, what string, err error, code sandbox.Code, says string) {
	t.Helper()
	if sandbox.CodeOf(err) != code || code != "" && !strings.Contains(err.Error(), says) {
		t.Errorf("%s: got %q %v, want %q that says %q", what, sandbox.CodeOf(err), err, code, says)
	}
}

func TestReadAndCopy(t *testing.T) {
	t.Parallel()
	r, other, c := registrytest.Start(t, registrytest.Options{}), registrytest.Start(t,
		registrytest.Options{}), registry.New(nil)
	digest := player(t, c, r.Host+"/games/catan:v1")

	img, err := c.Image(t.Context(), r.Host+"/games/catan@"+digest)
	must(t, err)
	if img.Size == 0 || len(img.Layers) != 2 {
		t.Errorf("got %+v", img)
	}
	must(t, c.Copy(t.Context(), r.Host+"/games/catan@"+digest, other.Host+"/mirror:v1", other.Host+"/mirror:latest"))
	tags, err := c.Tags(t.Context(), other.Host+"/mirror")
	must(t, err)
	slices.Sort(tags)
	if !slices.Equal(tags, []string{"latest", "v1"}) {
		t.Errorf("the copy has the tags %v", tags)
	}
	if got, err := c.Digest(t.Context(), other.Host+"/mirror:latest", ""); got != digest || err != nil {
		t.Errorf("the copy has digest %s, %v; want %s", got, err, digest)
	}
	_, err = c.Digest(t.Context(), r.Host+"/games/catan:none", "")
	expect(t, "a missing tag", err, sandbox.NotFound, "games/catan:none")
	expect(t, "copy of a missing image", c.Copy(t.Context(), r.Host+"/none:v1", other.Host+"/x:v1"),
		sandbox.NotFound, "/none:v1")
	_, err = c.Digest(t.Context(), "Catan Player", "")
	expect(t, "an invalid reference", err, sandbox.Invalid, "registry.example.com/games/catan:v1")
}

func TestPlatformOfSeveral(t *testing.T) {
	t.Parallel()
	r, c := registrytest.Start(t, registrytest.Options{}), registry.New(nil)
	ref := r.Host + "/player:v1"
	amd, arm := platform(t, "amd64"), platform(t, "arm64")
	index := mutate.AppendManifests(empty.Index, amd, arm)
	all := push(t, c, ref, index)
	want, err := arm.Add.(v1.Image).Digest()
	must(t, err)
	got, err := c.Digest(t.Context(), ref, "linux/arm64")
	must(t, err)
	if got != want.String() || got == all {
		t.Errorf("linux/arm64 is %s, want %s (all: %s)", got, want, all)
	}
	_, err = c.Digest(t.Context(), ref, "linux/s390x")
	expect(t, "a missing platform", err, sandbox.NotFound, "no image for linux/s390x")
	_, err = c.Digest(t.Context(), ref, "a/b/c/d")
	expect(t, "an invalid platform", err, sandbox.Invalid, "linux/amd64")
	must(t, c.Copy(t.Context(), ref, r.Host+"/copy:v1"))
	if got, err := c.Digest(t.Context(), r.Host+"/copy:v1", "linux/arm64"); got != want.String() || err != nil {
		t.Errorf("the copy lacks a platform: %s, %v", got, err)
	}
}

func platform(t *testing.T, arch string) mutate.IndexAddendum {
	t.Helper()
	img, err := random.Image(64, 1)
	must(t, err)
	return mutate.IndexAddendum{
		Add:        img,
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	r, c := registrytest.Start(t, registrytest.Options{}), registry.New(nil)
	digest := player(t, c, r.Host+"/player:v1")
	expect(t, "this registry removes no tag", c.DeleteTag(t.Context(), r.Host+"/player:v1"), sandbox.Forbidden,
		"cannot remove single tags")
	for range 2 {
		must(t, c.Delete(t.Context(), r.Host+"/player@"+digest))
	}
	_, err := c.Digest(t.Context(), r.Host+"/player:v1", "")
	expect(t, "a tag of a removed image", err, sandbox.NotFound, "player:v1")

	keeps := registrytest.Start(t, registrytest.Options{Keep: true})
	digest = player(t, c, keeps.Host+"/player:v1")
	expect(t, "this registry removes nothing", c.Delete(t.Context(), keeps.Host+"/player@"+digest), sandbox.Forbidden,
		"does not support this")
}

func TestCredentialsAndTrust(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, registrytest.Options{Auth: true, TLS: true})
	ref := r.Host + "/player:v1"
	with := func(c registry.Credentials) *registry.Client {
		return registry.New(map[string]registry.Credentials{r.Host: c})
	}
	right := with(registry.Credentials{Username: registrytest.Username, Password: registrytest.Password, CA: r.CA})
	must(t, right.CheckPush(t.Context(), ref))
	_, err := right.Digest(t.Context(), ref, "")
	expect(t, "nothing was pushed", err, sandbox.NotFound, ref)

	wrong := with(registry.Credentials{Username: registrytest.Username, Password: "opensesame", CA: r.CA})
	none := with(registry.Credentials{CA: r.CA})
	for what, c := range map[string]*registry.Client{"a wrong password": wrong, "no password": none} {
		err := c.CheckPush(t.Context(), ref)
		expect(t, what+", push", err, sandbox.Unauthenticated, "registry_auth")
		_, err = c.Digest(t.Context(), ref, "")
		expect(t, what+", read", err, sandbox.Unauthenticated, "docker login")
		if strings.Contains(err.Error(), "opensesame") {
			t.Errorf("%s: the error has the password: %v", what, err)
		}
	}
	stranger := with(registry.Credentials{Username: registrytest.Username, Password: registrytest.Password})
	if err := stranger.CheckPush(t.Context(), ref); sandbox.CodeOf(err) == "" ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of an unknown CA: %v", err)
	}
	expect(t, "an invalid CA", with(registry.Credentials{CA: "x"}).CheckPush(t.Context(), ref), sandbox.Invalid, "PEM")
}

func TestRegistryDown(t *testing.T) {
	t.Parallel()
	r, c := registrytest.Start(t, registrytest.Options{}), registry.New(nil)
	ref := r.Host + "/player:v1"
	player(t, c, ref)
	r.Stop()
	_, err := c.Digest(t.Context(), ref, "")
	expect(t, "read", err, sandbox.Unavailable, ref)
	expect(t, "push", c.CheckPush(t.Context(), ref), sandbox.Unavailable, "push to")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Digest(ctx, ref, "")
	expect(t, "stopped", err, sandbox.Timeout, ref)
}

// This test is not parallel: PATH finds the credential helper, and DOCKER_CONFIG finds config.json.
func TestDockersOwnCredentials(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	helper := "#!/bin/sh\nread host; echo '{\"ServerURL\":\"'$host'\",\"Username\":\"of-helper\",\"Secret\":\"s1\"}'\n"
	must(t, os.WriteFile(filepath.Join(dir, "docker-credential-games"), []byte(helper), 0o755))
	config := `{"auths":{"file.example.com":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("of-file:s2")) +
		`"}},"credHelpers":{"helper.example.com":"games"}}`
	must(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
	c := registry.New(map[string]registry.Credentials{"given.example.com": {Username: "given", Password: "s3"}})
	for ref, want := range map[string]string{
		"file.example.com/player:v1": "of-file s2",
		"helper.example.com/player":  "of-helper s1",
		"given.example.com/player":   "given s3",
		"player":                     " ",
	} {
		header, err := c.EngineAuth(t.Context(), ref)
		must(t, err)
		decoded, err := base64.URLEncoding.DecodeString(header)
		must(t, err)
		var got struct{ Username, Password string }
		must(t, json.Unmarshal(decoded, &got))
		if got.Username+" "+got.Password != want {
			t.Errorf("%s: the engine gets %s", ref, decoded)
		}
	}
}
