package main

import (
	"archive/tar"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestImage: the image for two architectures has the program, is reproducible, and arrives complete in a registry.
func TestImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"build", "-version", "1.2.3", "-date", "2026-11-26T04:00:00Z", "-out", ""}
	for _, arch := range []string{"amd64", "arm64"} {
		path := filepath.Join(dir, arch)
		must(t, os.WriteFile(path, []byte("program for "+arch), 0o600))
		args = append(args, "linux/"+arch+"="+path)
	}
	var digests []v1.Hash
	for _, out := range []string{"first", "second"} {
		args[6] = filepath.Join(dir, out)
		must(t, run(t.Context(), args))
		index, err := layout.ImageIndexFromPath(args[6])
		must(t, err)
		digest, err := index.Digest()
		must(t, err)
		digests = append(digests, digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds of the same are %s and %s", digests[0], digests[1])
	}
	if err := run(t.Context(), args); err == nil {
		t.Error("a build goes into the directory of another one")
	}

	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	reference := strings.TrimPrefix(server.URL, "http://") + "/sandbox:1.2.3"
	must(t, run(t.Context(), []string{"push", args[6], reference}))
	ref, err := name.ParseReference(reference)
	must(t, err)
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		must(t, err)
		config, err := img.ConfigFile()
		must(t, err)
		if got := config.OS + "/" + config.Architecture; got != "linux/"+arch || config.Config.User != "65532:65532" {
			t.Errorf("the image for %s is for %s, with user %s", arch, got, config.Config.User)
		}
		layers, err := img.Layers()
		must(t, err)
		modes, program := content(t, layers[0])
		want := map[string]int64{
			"etc/ssl/certs/ca-certificates.crt": 0o644, "tmp/": 0o1777, "usr/bin/sandbox": 0o755, "var/lib/sandbox/": 0o700,
		}
		for name := range modes {
			if _, ok := want[name]; !ok && modes[name] == 0o755 && strings.HasSuffix(name, "/") {
				delete(modes, name) // a parent of those
			}
		}
		if diff := cmp.Diff(want, modes); diff != "" || program != "program for "+arch {
			t.Errorf("the image for %s has program %q, files -want +got:\n%s", arch, program, diff)
		}
	}
}

// content returns the modes of a layer's files, and its program.
func content(t *testing.T, layer v1.Layer) (modes map[string]int64, program string) {
	t.Helper()
	r, err := layer.Uncompressed()
	must(t, err)
	defer r.Close()
	modes = map[string]int64{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return modes, program
		}
		must(t, err)
		modes[header.Name] = header.Mode
		if header.Name == "usr/bin/sandbox" {
			text, err := io.ReadAll(archive)
			must(t, err)
			program = string(text)
		}
	}
}
