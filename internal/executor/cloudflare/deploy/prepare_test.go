package deploy_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	containerregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// origin is a registry outside of accounts, where images come from.
type origin struct {
	*testing.T
	host   string
	server *httptest.Server
}

func newOrigin(t *testing.T) *origin {
	t.Helper()
	server := httptest.NewServer(containerregistry.New(containerregistry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return &origin{t, strings.TrimPrefix(server.URL, "http://"), server}
}

// game returns an image for a platform that contains says.
func (o *origin) game(says, arch string) v1.Image {
	o.Helper()
	img, err := random.Image(1000, 2)
	o.must(err)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS:           "linux",
		Architecture: arch,
		RootFS:       rootFS(o, img),
		Config: v1.Config{
			Env:        []string{"SAYS=" + says},
			Entrypoint: []string{"/play"},
			User:       "root",
			WorkingDir: "/game",
			Volumes:    map[string]struct{}{"/data": {}},
		},
	})
	o.must(err)
	return img
}

func rootFS(o *origin, img v1.Image) v1.RootFS {
	o.Helper()
	config, err := img.ConfigFile()
	o.must(err)
	return config.RootFS
}

// put stores an image, and returns its reference.
func (o *origin) put(img remote.Taggable, digest func() (v1.Hash, error)) string {
	o.Helper()
	ref, err := name.ParseReference(o.host + "/games/catan:v1")
	o.must(err)
	o.must(remote.Push(ref, img))
	d, err := digest()
	o.must(err)
	return o.host + "/games/catan@" + d.String()
}

func (o *origin) putGame(says string) string {
	o.Helper()
	img := o.game(says, "amd64")
	return o.put(img, img.Digest)
}

func (o *origin) must(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

func (w *world) prepare(name, ref string) cloudflare.Prepared {
	w.Helper()
	p, err := w.deployer.Prepare(w.Context(), name, ref, nil)
	w.must(err)
	return p
}

// uploads returns the requests to the account's registry that began or ended an upload.
func (w *world) uploads() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, request := range w.asked {
		if strings.Contains(request, "/blobs/uploads/") {
			all = append(all, request)
		}
	}
	return all
}

// registry returns a client that can read the account's registry.
func (w *world) registry() *registry.Client {
	host := strings.TrimSuffix(strings.TrimPrefix(w.url, "http://"), "/client/v4")
	return registry.New(nil).With(host, func(context.Context) (string, sandbox.Secret, error) {
		username, password := w.api.Credentials(account, time.Minute)
		return username, sandbox.Secret(password), nil
	})
}

func (w *world) open(ref string) v1.Image {
	w.Helper()
	img, err := w.registry().Open(w.Context(), ref, "linux/amd64")
	w.must(err)
	return img
}

// TestAPreparedImageIsTheImageWithTheGuest: it has everything that a sandbox needs, and keeps the settings of its
// programs.
func TestAPreparedImageIsTheImageWithTheGuest(t *testing.T) {
	t.Parallel()
	w, o := newWorld(t), newOrigin(t)
	p := w.prepare(wanted().Name, o.putGame("hello"))
	if !p.Sent {
		t.Error("nothing was pushed to an empty account")
	}
	img := w.open(p.Reference)
	config, err := img.ConfigFile()
	w.must(err)
	c := config.Config
	if c.User != "0:0" || len(c.Entrypoint)+len(c.Cmd)+len(c.Volumes) > 0 || len(c.ExposedPorts) != 1 ||
		!slices.Contains(c.Env, "SAYS=hello") || c.WorkingDir != "/game" {
		t.Errorf("it runs with %+v", c)
	}
	layers, err := img.Layers()
	w.must(err)
	content, err := layers[len(layers)-1].Uncompressed()
	w.must(err)
	defer content.Close()
	found := map[string]string{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		w.must(err)
		found[h.Name] = fmt.Sprintf("%o %d:%d", h.Mode, h.Uid, h.Gid)
	}
	for file, want := range map[string]string{
		".sandbox/guest": "755 0:0",
		"workspace/":     "700 1000:1000",
		"data/":          "700 1000:1000",
		"run/secrets/":   "700 1000:1000",
		"tmp/":           "1777 0:0",
	} {
		if found[file] != want {
			t.Errorf("%s is %q, want %q", file, found[file], want)
		}
	}
	if len(layers) != 3 || found["run/"] != "" {
		t.Errorf("it has %d layers; the last has %v", len(layers), found)
	}
}

func TestWhatWasPreparedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	w, o := newWorld(t), newOrigin(t)
	ref := o.putGame("once")
	first := w.prepare(wanted().Name, ref)
	w.forget(nil)
	second := w.prepare(cloudflare.DeploymentName("ledgerofdeploy22", "catan-8"), ref)
	if second.Reference != first.Reference || !second.Sent {
		t.Errorf("another environment's image is %v, the first one's %v", second, first)
	}
	if sent := w.uploads(); len(sent) > 0 {
		t.Errorf("existing layers are pushed again: %v", sent)
	}
	o.server.Close()
	w.forget(nil)
	if again := w.prepare(wanted().Name, ref); again.Reference != first.Reference || again.Sent {
		t.Errorf("prepared again it is %v, not %v", again, first)
	}
	if changes := w.changes(); len(changes) != 1 || !strings.HasPrefix(changes[0], "HEAD /v2/") {
		t.Errorf("prepared again it needs the requests %v", changes)
	}
	other := newWorld(t)
	o2 := newOrigin(t)
	img := o2.game("once", "amd64")
	one, two := o2.put(img, img.Digest), newOrigin(t).put(img, img.Digest)
	if a, b := w.prepare(wanted().Name, one), other.prepare(otherName, two); digest(a.Reference) != digest(b.Reference) {
		t.Errorf("the same image is %s in one account and %s in another", a.Reference, b.Reference)
	}
}

var otherName = cloudflare.DeploymentName("ledgerofanother2", "catan-7")

func digest(ref string) string { return ref[strings.LastIndex(ref, "@")+1:] }

// TestAPreparationThatBreaksOffContinues breaks a preparation at every request, before and after the request is carried
// out. A short run tests only one of both.
func TestAPreparationThatBreaksOffContinues(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	ref := o.putGame("broken")
	whole := newWorld(t)
	want := whole.prepare(wanted().Name, ref)
	for kind, fault := range map[string]localapi.Fault{"down": localapi.Down, "lost": localapi.Lost} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for n := range whole.requests() {
				if (n%2 == 0) != (fault == localapi.Down) && os.Getenv("SANDBOX_TEST_LONG") == "" {
					continue
				}
				w := newWorld(t)
				w.forget(func(at int, _ *http.Request) localapi.Fault {
					if at >= n {
						return fault
					}
					return localapi.None
				})
				if _, err := w.deployer.Prepare(t.Context(), wanted().Name, ref, nil); err == nil {
					if n < whole.requests()-1 {
						t.Errorf("request %d is %s without an error", n, kind)
					}
				} else if code := sandbox.CodeOf(err); code != sandbox.Unavailable {
					t.Errorf("request %d is %s: %q: %v", n, kind, code, err)
				}
				w.forget(nil)
				got := w.prepare(wanted().Name, ref)
				if digest(got.Reference) != digest(want.Reference) {
					t.Errorf("after request %d was %s it is %s, not %s", n, kind, got.Reference, want.Reference)
				}
				w.open(got.Reference)
			}
		})
	}
}

func TestCredentialsAreAskedForOnceAndAgainWhenTheyEnd(t *testing.T) {
	t.Parallel()
	w, o := newWorld(t), newOrigin(t)
	now := time.Now()
	w.deployer = w.newDeployer(deploy.Config{Now: func() time.Time { return now }})
	asked := func(what string, want int) {
		t.Helper()
		w.prepare(wanted().Name, o.putGame(what))
		if n := strings.Count(strings.Join(w.changes(), "\n"),
			"POST /containers/registries/registry.cloudflare.com/credentials"); n != want {
			t.Errorf("%s: credentials were requested %d times, want %d: %v", what, n, want, w.changes())
		}
		w.forget(nil)
	}
	asked("at first", 1)
	asked("soon after", 0)
	now = now.Add(13*time.Minute + time.Second)
	asked("shortly before their end", 1)
	w.api.RevokeCredentials()
	asked("after they were revoked", 1)
	if w.prepare(wanted().Name, o.putGame("logged")); strings.Contains(w.logged.String(), "password") {
		t.Error("the log holds a password")
	}
}

func TestImagesThatCannotBePreparedAreRefusedByWhatIsWrong(t *testing.T) {
	t.Parallel()
	w, o := newWorld(t), newOrigin(t)
	arm := o.game("arm", "arm64")
	single := o.put(arm, arm.Digest)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: arm, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{
			Add:        arm,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "windows", Architecture: "amd64"}},
		})
	several := o.put(index, index.Digest)
	absent := o.host + "/games/none@sha256:" + strings.Repeat("0a", 32)
	down := newOrigin(t)
	gone := down.putGame("gone")
	down.server.Close()
	for ref, want := range map[string]struct {
		code sandbox.Code
		says []string
	}{
		single:                               {sandbox.Invalid, []string{"linux/arm64", "linux/amd64 only"}},
		several:                              {sandbox.NotFound, []string{"only for: linux/arm64, windows/amd64"}},
		absent:                               {sandbox.NotFound, []string{"/games/none", "Docker engine"}},
		gone:                                 {sandbox.Unavailable, []string{gone}},
		"sha256:" + strings.Repeat("0b", 32): {sandbox.NotFound, []string{"Docker engine"}},
		"registry.cloudflare.com/" + account + "/none@sha256:" + strings.Repeat("0c", 32): {sandbox.NotFound,
			[]string{"/none"}},
	} {
		_, err := w.deployer.Prepare(t.Context(), wanted().Name, ref, nil)
		if sandbox.CodeOf(err) != want.code ||
			(want.code == sandbox.NotFound && sandbox.ReasonOf(err) != sandbox.ReasonImageNotFound) {
			t.Errorf("image %s: %q, want %q: %v", ref, sandbox.CodeOf(err), want.code, err)
			continue
		}
		for _, says := range append(want.says, account) {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("image %s: the error does not contain %q: %v", ref, says, err)
			}
		}
	}
	if left := w.api.Images(); len(left) > 0 {
		t.Errorf("the registry has %v", left)
	}
}

// TestTheAccountsOwnImages: images with the guest are used unchanged, and others get it.
func TestTheAccountsOwnImages(t *testing.T) {
	t.Parallel()
	w, o := newWorld(t), newOrigin(t)
	prepared := w.prepare(otherName, o.putGame("own"))
	w.forget(nil)
	if p := w.prepare(wanted().Name, prepared.Reference); p.Reference != prepared.Reference || p.Sent {
		t.Errorf("an image with the guest became %v", p)
	}
	if sent := w.uploads(); len(sent) > 0 {
		t.Errorf("it was pushed: %v", sent)
	}
}

// engine is an engine with one image.
type engine struct {
	image.Engine
	t   *testing.T
	id  string
	img v1.Image
}

func (e engine) ImageInspect(_ context.Context, ref string,
	_ ...dockerapi.ImageInspectOption) (dockerapi.ImageInspect, error) {
	if ref != e.id {
		return dockerapi.ImageInspect{}, cerrdefs.ErrNotFound
	}
	return dockerapi.ImageInspect{ID: e.id}, nil
}

func (e engine) ImageSave(_ context.Context, _ []string, _ ...dockerapi.ImageSaveOption) (io.ReadCloser, error) {
	r, w := io.Pipe()
	tag, err := name.NewTag("game:latest")
	if err != nil {
		return nil, err
	}
	go func() { w.CloseWithError(tarball.Write(tag, e.img, w)) }() // ends with the pipe
	return r, nil
}

func TestAnImageThatOnlyTheEngineHasIsTakenFromThere(t *testing.T) {
	w, o := newWorld(t), newOrigin(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	img := o.game("local", "amd64")
	id, err := img.ConfigName()
	w.must(err)
	w.deployer = w.newDeployer(deploy.Config{
		Engine: func() (image.Engine, error) { return engine{t: t, id: id.String(), img: img}, nil },
	})
	p := w.prepare(wanted().Name, id.String())
	config, err := w.open(p.Reference).ConfigFile()
	w.must(err)
	if !p.Sent || !slices.Contains(config.Config.Env, "SAYS=local") {
		t.Errorf("%v runs with %+v", p, config.Config)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}
