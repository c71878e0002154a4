// Package dockertest makes what tests on a real Docker Engine need, on a machine that cannot pull
// an image: a small base image out of the machine's own static busybox, and images FROM scratch.
package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/jsonmessage"
)

// BusyboxImage is the reference of the image that Busybox makes.
const BusyboxImage = "sandbox-test/busybox:latest"

// Busybox returns the reference of an image with a shell and the usual commands. It stays on the
// engine for the next test.
func Busybox(t testing.TB) string {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("make the base image: %v (install busybox-static)", err)
	}
	list, err := exec.CommandContext(t.Context(), "/bin/busybox", "--list").Output()
	if err != nil {
		t.Fatalf("list the commands of busybox: %v", err)
	}
	files := []File{{Name: "bin/busybox", Mode: 0o755, Content: program}, {Name: "tmp/", Mode: 0o1777}, {Name: "etc/", Mode: 0o755}}
	for command := range bytes.Lines(list) {
		if name := string(bytes.TrimSpace(command)); name != "busybox" {
			files = append(files, File{Name: "bin/" + name, Link: "busybox"})
		}
	}
	return Import(t, BusyboxImage, files, "ENV PATH=/bin")
}

// File is one entry of an image. A name that ends in a slash is a directory.
type File struct {
	Name     string
	Mode     int64
	UID, GID int
	Content  []byte
	Link     string
}

// Import makes an image of exactly these files, with changes as of a Dockerfile, and returns its
// reference. When the engine has an image of that name with the same number of files, it is replaced.
func Import(t testing.TB, ref string, files []File, changes ...string) string {
	t.Helper()
	api := engine(t)
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	for _, f := range files {
		h := tar.Header{Name: f.Name, Mode: f.Mode, Uid: f.UID, Gid: f.GID, Size: int64(len(f.Content)), Typeflag: tar.TypeReg, Linkname: f.Link}
		switch {
		case f.Link != "":
			h.Typeflag = tar.TypeSymlink
		case f.Name[len(f.Name)-1] == '/':
			h.Typeflag = tar.TypeDir
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatalf("make image %s: %v", ref, err)
		}
		if _, err := tw.Write(f.Content); err != nil {
			t.Fatalf("make image %s: %v", ref, err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatalf("make image %s: %v", ref, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer, err := api.ImageImport(ctx, image.ImportSource{Source: &layer, SourceName: "-"}, ref, image.ImportOptions{Changes: changes})
	if err != nil {
		t.Fatalf("make image %s: %v", ref, err)
	}
	defer answer.Close()
	if err := jsonmessage.DisplayJSONMessagesStream(answer, io.Discard, 0, false, nil); err != nil {
		t.Fatalf("make image %s: %v", ref, err)
	}
	return ref
}

// RemoveImage removes an image when the test ends.
func RemoveImage(t testing.TB, ref string) {
	t.Helper()
	t.Cleanup(func() {
		api := engine(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := api.ImageRemove(ctx, ref, image.RemoveOptions{Force: true}); err != nil {
			t.Errorf("remove image %s: %v", ref, err)
		}
	})
}

// Compile compiles a Go program, given as the source of its main package, to a static Linux binary.
func Compile(t testing.TB, source string) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", "program", "main.go")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GO111MODULE=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile a test program: %v\n%s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// engine returns a client of the engine that DOCKER_HOST names. The test is skipped without one.
func engine(t testing.TB) *client.Client {
	t.Helper()
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatalf("connect to the Docker Engine: %v", err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api
}
