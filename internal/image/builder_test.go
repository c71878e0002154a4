package image_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// engine connects to the Docker Engine of the environment, which these tests need.
func engine(t *testing.T) *dockerapi.Client {
	t.Helper()
	cli, err := dockerapi.Connect("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	if _, err := cli.Ping(t.Context()); err != nil {
		t.Fatalf("these tests need a Docker Engine: %v", err)
	}
	return cli
}

func builder(t *testing.T, cli *dockerapi.Client) *image.Builder {
	t.Helper()
	return image.NewBuilder(func() (image.Engine, error) { return cli, nil })
}

// unique returns a spec and a name that no other test uses.
func unique(t *testing.T) (image.Spec, string) {
	t.Helper()
	name := "sandbox-test-" + sandbox.RandomIDs(8)
	files := game()
	files["id.txt"] = name // makes the image unique to this test
	return image.Spec{Context: buildContext(t, files)}, name
}

// byEach runs a test with each of the engine's builders.
func byEach(t *testing.T, test func(t *testing.T, kind string)) {
	t.Helper()
	t.Parallel()
	for _, kind := range []string{image.BuildKit, image.Classic} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

func build(t *testing.T, b *image.Builder, spec image.Spec) string {
	t.Helper()
	id, err := b.Build(t.Context(), spec, mustHash(t, spec), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Delete(context.WithoutCancel(t.Context()), id); err != nil {
			t.Errorf("the image is left behind: %v", err)
		}
	})
	return id
}

func TestBuildTagUntag(t *testing.T) {
	byEach(t, func(t *testing.T, kind string) {
		cli := engine(t)
		b := builder(t, cli)
		spec, name := unique(t)
		spec.Builder = kind
		id := build(t, b, spec)

		for _, tag := range []string{"v2", "v1"} {
			must(t, b.Tag(t.Context(), id, name, tag))
		}
		img, err := b.Inspect(t.Context(), name+":v1")
		must(t, err)
		if img.ID != id || img.ContextHash != mustHash(t, spec) || strings.Join(img.Tags(name), " ") != "v1 v2" {
			t.Errorf("got %+v, tags %v", img, img.Tags(name))
		}

		must(t, b.Untag(t.Context(), id, name, "v1"))
		must(t, b.Untag(t.Context(), id, name, "v1"))
		must(t, b.Untag(t.Context(), "sha256:other", name, "v2"))
		img, err = b.Inspect(t.Context(), id)
		must(t, err)
		if strings.Join(img.Tags(name), " ") != "v2" {
			t.Errorf("a tag that points elsewhere must stay, one that was removed must not: %v", img.References)
		}

		must(t, b.Untag(t.Context(), id, name, "v2"))
		if _, err := b.Inspect(t.Context(), id); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("the image must go with its last name: %v", err)
		}
	})
}

func TestDelete(t *testing.T) {
	byEach(t, func(t *testing.T, kind string) {
		b := builder(t, engine(t))
		spec, name := unique(t)
		spec.Builder = kind
		id := build(t, b, spec)
		must(t, b.Tag(t.Context(), id, name, "latest"))
		must(t, b.Tag(t.Context(), id, name+"-other", "latest"))
		must(t, b.DeleteUnnamed(t.Context(), id))
		if _, err := b.Inspect(t.Context(), id); err != nil {
			t.Fatalf("DeleteUnnamed removed an image that has a name: %v", err)
		}
		must(t, b.Delete(t.Context(), id))
		if _, err := b.Inspect(t.Context(), id); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("the image is still there: %v", err)
		}
		must(t, b.Delete(t.Context(), id))

		id = build(t, b, spec)
		must(t, b.DeleteUnnamed(t.Context(), id))
		if _, err := b.Inspect(t.Context(), id); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("the unnamed image is still there: %v", err)
		}
	})
}

// Two builds of the same files give one image. Removing the names of one build must not remove the image of the other.
func TestABuildKeepsAnImageThatAnotherBuildMadeToo(t *testing.T) {
	byEach(t, func(t *testing.T, kind string) {
		b := builder(t, engine(t))
		spec, name := unique(t)
		spec.Builder = kind
		id := build(t, b, spec)
		must(t, b.Tag(t.Context(), id, name+"-other", "latest"))
		spec.Reference = name + ":latest"
		if again := build(t, b, spec); again != id {
			t.Fatalf("the same files give %s and %s", id, again)
		}
		must(t, b.Untag(t.Context(), id, name+"-other", "latest"))
		img, err := b.Inspect(t.Context(), spec.Reference)
		must(t, err)
		if img.ID != id {
			t.Errorf("%s is %s, want %s", spec.Reference, img.ID, id)
		}
	})
}

// Builds and removals of one builder that share cached steps do not break each other.
func TestBuildsAndRemovalsAtOnce(t *testing.T) {
	byEach(t, func(t *testing.T, kind string) {
		b := builder(t, engine(t))
		_, name := unique(t)
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				for round := range 6 {
					spec := image.Spec{Builder: kind, Context: buildContext(t, map[string]string{
						"Dockerfile": "FROM scratch\nLABEL name=" + name + "\nLABEL shared=step\nCOPY . /\n",
						"id.txt":     fmt.Sprint(name, i, round),
					})}
					hash, err := spec.Hash()
					if err != nil {
						t.Error(err)
						return
					}
					id, err := b.Build(t.Context(), spec, hash, nil)
					if err == nil {
						err = b.Delete(t.Context(), id)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// disturbed is an engine that fails builds in the way of a real one that loses an image during its cache lookup.
type disturbed struct {
	image.Engine
	left *atomic.Int32
}

func (d disturbed) ImageBuild(ctx context.Context, from io.Reader,
	o dockerapi.BuildOptions) (dockerapi.BuildResponse, error) {
	if d.left.Add(-1) < 0 {
		return d.Engine.ImageBuild(ctx, from, o)
	}
	_, err := io.Copy(io.Discard, from)
	said := fmt.Sprintf("unable to find image %q", "sha256:"+strings.Repeat("0", 64))
	answer := fmt.Sprintf(`{"errorDetail":{"message":%[1]q},"error":%[1]q}`, said)
	return dockerapi.BuildResponse{Body: io.NopCloser(strings.NewReader(answer))}, err
}

func TestABuildIsBegunAgainWhenAnImageIsRemovedBesideIt(t *testing.T) {
	t.Parallel()
	for times, built := range map[int32]bool{4: true, 1000: false} {
		var left atomic.Int32
		left.Store(times)
		cli := engine(t)
		b := image.NewBuilder(func() (image.Engine, error) { return disturbed{cli, &left}, nil })
		spec, _ := unique(t)
		spec.Builder = image.Classic
		if built {
			build(t, b, spec)
			continue
		}
		if _, err := b.Build(t.Context(), spec, mustHash(t, spec), nil); err == nil ||
			!strings.Contains(err.Error(), "unable to find image") {
			t.Errorf("building with an engine that finds no image: %v", err)
		}
	}
}

func TestImageInUseIsAConflict(t *testing.T) {
	t.Parallel()
	cli := engine(t)
	b := builder(t, cli)
	spec, name := unique(t)
	id := build(t, b, spec)
	must(t, b.Tag(t.Context(), id, name, "latest"))
	made, err := cli.ContainerCreate(t.Context(),
		&dockerapi.ContainerConfig{Image: id, Cmd: []string{"/none"}}, nil, nil, nil, "")
	must(t, err)
	t.Cleanup(func() {
		must(t,
			cli.ContainerRemove(context.WithoutCancel(t.Context()), made.ID, dockerapi.ContainerRemoveOptions{Force: true}))
	})
	if err := b.Untag(t.Context(), id, name, "latest"); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("untag: %v", err)
	}
	if err := b.Delete(t.Context(), id); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("delete: %v", err)
	}
	if _, err := b.Inspect(t.Context(), name+":latest"); err != nil {
		t.Errorf("the image in use lost its name: %v", err)
	}
}

func TestBuildRefusesAChangedContext(t *testing.T) {
	byEach(t, func(t *testing.T, kind string) {
		b := builder(t, engine(t))
		spec, _ := unique(t)
		spec.Builder = kind
		planned := mustHash(t, spec)
		write(t, spec.Context+"/main.txt", "changed after the plan")
		var log []string
		_, err := b.Build(t.Context(), spec, planned, func(line string) { log = append(log, line) })
		if sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "changed after it was planned") {
			t.Errorf("got %v", err)
		}
		if len(log) != 0 {
			t.Errorf("the engine began to build: %q", log)
		}
	})
}

func TestFailedClassicBuildShowsTheEndOfItsLog(t *testing.T) {
	t.Parallel()
	cli := engine(t)
	b := builder(t, cli)
	_, name := unique(t)
	dockerfile := "FROM scratch\n"
	for i := range 14 { // of four lines each
		dockerfile += fmt.Sprintf("LABEL %s=%d\n", name, i)
	}
	removeUnnamed(t, cli, name)
	spec := image.Spec{
		Builder: image.Classic,
		Context: buildContext(t, map[string]string{"Dockerfile": dockerfile + "COPY missing /\n"}),
	}
	_, err := b.Build(t.Context(), spec, mustHash(t, spec), nil)
	if sandbox.CodeOf(err) != sandbox.Failed {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"missing", "Step 16/17 : COPY missing /", "last 40 lines"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "Step 1/") {
		t.Errorf("the error holds the whole log")
	}
}

// removeUnnamed removes, after the test, the unnamed images with a label that a failed build left.
func removeUnnamed(t *testing.T, cli *dockerapi.Client, label string) {
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		left, err := cli.ImageList(ctx, dockerapi.ImageListOptions{Filters: dockerapi.NewFilters(
			dockerapi.Filter("label", label), dockerapi.Filter("dangling", "true"))})
		must(t, err)
		for _, img := range left {
			_, err := cli.ImageRemove(ctx, img.ID, dockerapi.ImageRemoveOptions{PruneChildren: true})
			must(t, err)
		}
	})
}

// An inline Dockerfile builds like one in the context, and COPY does not copy it.
func TestInlineDockerfile(t *testing.T) {
	byEach(t, func(t *testing.T, kind string) {
		cli := engine(t)
		b := builder(t, cli)
		spec, _ := unique(t)
		spec.Builder = kind
		spec.Dockerfile, spec.NoCache = "not/looked/for", true
		spec.Inline = "FROM scratch\nCOPY . /\nCMD [\"/none\"]\n"
		id := build(t, b, spec)
		made, err := cli.ContainerCreate(t.Context(), &dockerapi.ContainerConfig{Image: id}, nil, nil, nil, "")
		must(t, err)
		t.Cleanup(func() {
			must(t, cli.ContainerRemove(context.WithoutCancel(t.Context()), made.ID, dockerapi.ContainerRemoveOptions{}))
		})
		for path, want := range map[string]bool{
			"/main.txt":           true,
			"/debug.log":          false,
			"/.dockerfile.inline": false,
			"/secrets/key":        false,
			"/secrets/public/a":   true,
		} {
			_, err := cli.ContainerStatPath(t.Context(), made.ID, path)
			if got := err == nil; got != want {
				t.Errorf("%s is in the image: %v, want %v (%v)", path, got, want, err)
			}
		}
	})
}

func TestBuildErrorsOfTheDockerfile(t *testing.T) {
	byEach(t, func(t *testing.T, kind string) {
		b := builder(t, engine(t))
		spec := image.Spec{Builder: kind, Context: buildContext(t, map[string]string{"Dockerfile": "NONSENSE\n"})}
		_, err := b.Build(t.Context(), spec, mustHash(t, spec), nil)
		if err == nil || !strings.Contains(err.Error(), "NONSENSE") {
			t.Errorf("got %v", err)
		}
	})
}

func TestEngineAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	cli, err := dockerapi.Connect("unix:///nowhere/docker.sock", "")
	must(t, err)
	b := builder(t, cli)
	spec, _ := unique(t)
	if _, err := b.Build(t.Context(), spec, mustHash(t, spec), nil); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("build: %v", err)
	}
	if _, err := b.Inspect(t.Context(), "player"); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("inspect: %v", err)
	}
}
