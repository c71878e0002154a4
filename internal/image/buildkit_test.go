package image_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// byBuildKit returns a spec whose Dockerfile runs a command that no other test has in the cache.
func byBuildKit(t *testing.T, run string) image.Spec {
	t.Helper()
	spec, name := unique(t)
	spec.Builder = image.BuildKit
	spec.Inline = "FROM " + dockertest.Busybox(t) + "\nLABEL test=" + name + "\nCOPY id.txt /\nRUN " + run + "\n"
	return spec
}

func TestBuildKitGivesSecretsToOneStep(t *testing.T) {
	t.Parallel()
	b := builder(t, engine(t))
	spec := byBuildKit(t,
		`--mount=type=secret,id=token test "$(cat /run/secrets/token)" = hunter2 && echo the secret was right`)
	spec.Secrets = map[string]sandbox.Secret{"token": "hunter2"}
	var log []string
	id, err := b.Build(t.Context(), spec, mustHash(t, spec), func(line string) { log = append(log, line) })
	must(t, err)
	t.Cleanup(func() { must(t, b.Delete(context.WithoutCancel(t.Context()), id)) })
	text := strings.Join(log, "\n")
	if !strings.Contains(text, "the secret was right") || !strings.Contains(text, "COPY id.txt /") {
		t.Errorf("the log is\n%s", text)
	}
	img, err := b.Inspect(t.Context(), id)
	must(t, err)
	if img.ContextHash != mustHash(t, spec) {
		t.Errorf("got %+v", img)
	}

	spec.Secrets, spec.NoCache = nil, true
	_, err = b.Build(t.Context(), spec, mustHash(t, spec), nil)
	if sandbox.CodeOf(err) != sandbox.Failed || !strings.Contains(err.Error(), "hunter2 &&") {
		t.Errorf("without its secret: %v", err)
	}
}

func TestBuildKitFailureShowsTheEndOfItsLog(t *testing.T) {
	t.Parallel()
	b := builder(t, engine(t))
	spec := byBuildKit(t, `for i in $(seq 1 60); do echo line $i; done; exit 7`)
	_, err := b.Build(t.Context(), spec, mustHash(t, spec), nil)
	if sandbox.CodeOf(err) != sandbox.Failed {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"line 60", "exit code: 7", "last 40 lines"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "line 5\n") {
		t.Errorf("the error holds the whole log")
	}
}

// meddler is an engine that calls meddle after a build's context is listed and before any of it is sent.
type meddler struct {
	*dockerapi.Client

	meddle func()
}

func (m meddler) ImageBuild(ctx context.Context, body io.Reader,
	options dockerapi.BuildOptions) (dockerapi.BuildResponse, error) {
	m.meddle()
	return m.Client.ImageBuild(ctx, body, options)
}

func TestBuildKitRefusesAContextThatChangesWhileItIsSent(t *testing.T) {
	t.Parallel()
	for what, meddle := range map[string]func(path string) error{
		"other content": func(path string) error { return os.WriteFile(path, []byte("jello"), 0o600) },
		"gone":          os.Remove,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cli := engine(t)
			spec := byBuildKit(t, "true")
			spec.Inline += "COPY . /\n"
			b := image.NewBuilder(func() (image.Engine, error) {
				return meddler{cli, func() { must(t, meddle(spec.Context+"/main.txt")) }}, nil
			})
			id, err := b.Build(t.Context(), spec, mustHash(t, spec), nil)
			if sandbox.CodeOf(err) != sandbox.Conflict ||
				!strings.Contains(err.Error(), "changed during the upload") || id != "" {
				t.Errorf("got image %q, %v", id, err)
			}
		})
	}
}

// BuildKit requests only files that it does not have. It must notice a changed file whose size and times are the same.
func TestBuildKitSeesAChangeThatOnlyTheContentShows(t *testing.T) {
	t.Parallel()
	b := builder(t, engine(t))
	spec, _ := unique(t)
	spec.Inline = "FROM " + dockertest.Busybox(t) + "\nCOPY . /\nRUN grep -q ^hello$ /main.txt\n"
	spec.Builder = image.BuildKit
	file := spec.Context + "/main.txt"
	then := time.Unix(1_000_000_000, 0)
	must(t, os.Chtimes(file, then, then))
	build(t, b, spec)
	write(t, file, "jello")
	must(t, os.Chtimes(file, then, then))
	spec.Inline = strings.Replace(spec.Inline, "^hello$", "^.*jello$", 1) // a Dockerfile of another size
	build(t, b, spec)
}

// When the caller cancels a build, Build stops it and does not wait for its end.
func TestStoppedBuildKitBuild(t *testing.T) {
	t.Parallel()
	b := builder(t, engine(t))
	spec := byBuildKit(t, "echo it runs; sleep 1000")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, err := b.Build(ctx, spec, mustHash(t, spec), func(line string) {
		if line == "it runs" {
			stop()
		}
	})
	if sandbox.CodeOf(err) != sandbox.Timeout || strings.Contains(err.Error(), "stop build") {
		t.Errorf("got %v", err)
	}
}

// BuildKit is the default builder: the classic builder does not support mounts.
func TestBuildKitBuildsByDefault(t *testing.T) {
	t.Parallel()
	spec := byBuildKit(t, "--mount=type=tmpfs,target=/scratch true")
	spec.Builder = ""
	build(t, builder(t, engine(t)), spec)
}

// BuildKit looks for the images of CacheFrom. A missing one does not fail the build.
func TestBuildKitTakesStepsOfOtherImages(t *testing.T) {
	t.Parallel()
	b := builder(t, engine(t))
	spec := byBuildKit(t, "true")
	spec.CacheFrom = []string{"127.0.0.1:1/player:cached"}
	var log []string
	id, err := b.Build(t.Context(), spec, mustHash(t, spec), func(line string) { log = append(log, line) })
	must(t, err)
	t.Cleanup(func() { must(t, b.Delete(context.WithoutCancel(t.Context()), id)) })
	if text := strings.Join(log,
		"\n"); !strings.Contains(text, "importing cache manifest from 127.0.0.1:1/player:cached") {
		t.Errorf("the log is\n%s", text)
	}
}

// BuildKit takes the id of an image in FROM for a name on Docker Hub. The error says what to do.
func TestBuildKitSaysThatABaseHasNoName(t *testing.T) {
	t.Parallel()
	b := builder(t, engine(t))
	base, _ := unique(t)
	spec, _ := unique(t)
	spec.Builder, spec.Inline = image.BuildKit, "FROM "+build(t, b, base)+"\n"
	_, err := b.Build(t.Context(), spec, mustHash(t, spec), nil)
	if sandbox.CodeOf(err) != sandbox.Failed || !strings.Contains(err.Error(), "Name it by a tag") {
		t.Errorf("got %v", err)
	}
}
