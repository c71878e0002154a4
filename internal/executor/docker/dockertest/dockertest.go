// Package dockertest provides what tests on a real Docker Engine need, on a machine that cannot pull images:
// a small base image with the machine's static busybox, and images FROM scratch.
package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/gofrs/flock"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Busybox returns the reference of an image with a shell and the usual commands. It stays on the engine for
// later tests.
func Busybox(t testing.TB) string {
	t.Helper()
	return ensure(t, Engine(t), BusyboxFiles(t), busyboxPath)
}

const busyboxPath = "ENV PATH=/bin"

// BusyboxFiles returns the files of Busybox's image, so that tests can add to them.
func BusyboxFiles(t testing.TB) []File {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("make the base image: %v (install busybox-static)", err)
	}
	list, err := exec.CommandContext(t.Context(), "/bin/busybox", "--list").Output()
	if err != nil {
		t.Fatalf("list the commands of busybox: %v", err)
	}
	files := []File{
		{Name: "bin/busybox", Mode: 0o755, Content: program}, {Name: "tmp/", Mode: 0o1777}, {Name: "etc/", Mode: 0o755},
	}
	for command := range bytes.Lines(list) {
		if name := string(bytes.TrimSpace(command)); name != "busybox" {
			files = append(files, File{Name: "bin/" + name, Link: "busybox"})
		}
	}
	return files
}

// File is one entry of an image. A name with a trailing slash is a directory.
type File struct {
	Name     string
	Mode     int64
	UID, GID int
	Content  []byte
	Link     string
}

// Keep returns the reference of an image with exactly these files, and creates it if needed. It stays on the
// engine for later tests.
func Keep(t testing.TB, files []File, changes ...string) string {
	t.Helper()
	return ensure(t, Engine(t), files, changes...)
}

// Import creates an image with exactly these files, and with changes in Dockerfile syntax. It returns a
// unique reference. The image is removed at the end of the test.
func Import(t testing.TB, files []File, changes ...string) string {
	t.Helper()
	ref := "sandbox-test/import:" + sandbox.RandomIDs(12)
	importImage(t, Engine(t), ref, layerOf(t, files), changes)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if _, err := Engine(t).ImageRemove(ctx, ref, dockerapi.ImageRemoveOptions{}); err != nil {
			t.Errorf("remove image %s: %v", ref, err)
		}
	})
	return ref
}

// ensure creates an image unless the engine has it. Its tag depends on its content. A lock excludes other test
// processes.
func ensure(t testing.TB, api *dockerapi.Client, files []File, changes ...string) string {
	t.Helper()
	lock := flock.New(filepath.Join(os.TempDir(), "sandbox-test-image.lock"))
	if err := lock.Lock(); err != nil {
		t.Fatalf("make the base image: %v", err)
	}
	defer func() { _ = lock.Close() }() // closing the file releases the lock
	layer := layerOf(t, files)
	sum := sha256.Sum256(append(bytes.Clone(layer), strings.Join(changes, "\n")...))
	ref := "sandbox-test/base:" + hex.EncodeToString(sum[:6])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := api.ImageInspect(ctx, ref)
	if cerrdefs.IsNotFound(err) {
		importImage(t, api, ref, layer, changes)
	} else if err != nil {
		t.Fatalf("look for image %s: %v", ref, err)
	}
	return ref
}

func importImage(t testing.TB, api *dockerapi.Client, ref string, layer []byte, changes []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	source := dockerapi.ImageImportSource{Source: bytes.NewReader(layer), SourceName: "-"}
	answer, err := api.ImageImport(ctx, source, ref, dockerapi.ImageImportOptions{Changes: changes})
	if err != nil {
		t.Fatalf("make image %s: %v", ref, err)
	}
	defer answer.Close()
	if err := dockerapi.Finish(answer); err != nil {
		t.Fatalf("make image %s: %v", ref, err)
	}
}

func layerOf(t testing.TB, files []File) []byte {
	t.Helper()
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	for _, f := range files {
		h := tar.Header{
			Name:     f.Name,
			Mode:     f.Mode,
			Uid:      f.UID,
			Gid:      f.GID,
			Size:     int64(len(f.Content)),
			Typeflag: tar.TypeReg,
			Linkname: f.Link,
		}
		switch {
		case f.Link != "":
			h.Typeflag = tar.TypeSymlink
		case strings.HasSuffix(f.Name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatalf("pack %s: %v", f.Name, err)
		}
		if _, err := tw.Write(f.Content); err != nil {
			t.Fatalf("pack %s: %v", f.Name, err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return layer.Bytes()
}

// Engine returns a client of the engine that DOCKER_HOST names.
func Engine(t testing.TB) *dockerapi.Client {
	t.Helper()
	api, err := dockerapi.Connect("", "")
	if err != nil {
		t.Fatalf("connect to the Docker Engine: %v", err)
	}
	t.Cleanup(func() { _ = api.Close() }) // only closes idle connections
	return api
}

// KillBeside kills another container: its name is that of the container with this id, without suffix.
func KillBeside(t testing.TB, id, suffix string) {
	t.Helper()
	beside, err := Engine(t).ContainerInspect(t.Context(), id)
	if err != nil {
		t.Fatalf("look at container %s: %v", id, err)
	}
	if err := Engine(t).ContainerKill(t.Context(), strings.TrimSuffix(beside.Name, suffix), "KILL"); err != nil {
		t.Fatalf("kill the container beside %s: %v", id, err)
	}
}

// RemoveNamed removes the containers whose names start with prefix.
func RemoveNamed(t testing.TB, prefix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
	defer cancel()
	for _, name := range named(ctx, t, prefix, true) {
		err := Engine(t).ContainerRemove(ctx, name, dockerapi.ContainerRemoveOptions{Force: true})
		if err != nil && !cerrdefs.IsNotFound(err) && !cerrdefs.IsConflict(err) { // gone or being removed
			t.Errorf("remove container %s: %v", name, err)
		}
	}
}

// Named returns the containers whose names start with prefix.
func Named(t testing.TB, prefix string) []string {
	t.Helper()
	return named(t.Context(), t, prefix, true)
}

// Running returns the containers of Named that run or are paused.
func Running(t testing.TB, prefix string) []string {
	t.Helper()
	return named(t.Context(), t, prefix, false)
}

func named(ctx context.Context, t testing.TB, prefix string, all bool) (names []string) {
	t.Helper()
	found, err := Engine(t).ContainerList(ctx,
		dockerapi.ContainerListOptions{All: all, Filters: dockerapi.NewFilters(dockerapi.Filter("name", "^/"+prefix))})
	if err != nil {
		t.Errorf("list the containers called %s…: %v", prefix, err)
	}
	for _, c := range found {
		names = append(names, strings.TrimPrefix(c.Names[0], "/"))
	}
	return names
}
