package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user id of the reconciler in the image, which owns its files.
const user = 65532

// program is the program for one system and architecture.
type program struct{ system, arch, path string }

// assemble returns the index of the images with the programs.
func assemble(programs []program, version string, made time.Time) (v1.ImageIndex, error) {
	labels := map[string]string{
		"org.opencontainers.image.title":       "sandbox",
		"org.opencontainers.image.description": "Leases Docker sandboxes to AI agents",
		"org.opencontainers.image.source":      "https://github.com/sandbox-lease/terraform-provider-sandbox",
		"org.opencontainers.image.licenses":    "MPL-2.0",
		"org.opencontainers.image.version":     version,
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		img, err := p.image(labels, made)
		if err != nil {
			return nil, fmt.Errorf("image for %s/%s: %w", p.system, p.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.system, Architecture: p.arch}},
		})
	}
	annotated, ok := mutate.Annotations(index, labels).(v1.ImageIndex)
	if !ok {
		return nil, errors.New("the library annotates an index as something else")
	}
	return annotated, nil
}

func (p program) image(labels map[string]string, made time.Time) (v1.Image, error) {
	content, err := p.files(made)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: made}, CreatedBy: "scripts/release"},
	})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.system, p.arch, v1.Time{Time: made}
	config.Config = v1.Config{
		Entrypoint:   []string{"/usr/bin/sandbox"},
		Cmd:          []string{"serve"},
		Env:          []string{"PATH=/usr/bin", "XDG_STATE_HOME=/var/lib/sandbox"},
		ExposedPorts: map[string]struct{}{"8787/tcp": {}},
		User:         fmt.Sprintf("%d:%d", user, user),
		WorkingDir:   "/var/lib/sandbox",
		Labels:       labels,
	}
	return mutate.ConfigFile(img, config)
}

// files returns the layer: a tar stream with the program and the files that it needs.
func (p program) files(made time.Time) ([]byte, error) {
	code, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name    string // a directory's ends with /
		mode    int64
		owner   int
		content []byte
	}{
		{name: "etc/", mode: 0o755},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities()},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: "usr/bin/sandbox", mode: 0o755, content: code},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/sandbox/", mode: 0o700, owner: user}, // a new volume gets its owner and mode
	} {
		err := w.WriteHeader(&tar.Header{
			Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.content)), ModTime: made,
			Format: tar.FormatPAX,
		})
		if err == nil {
			_, err = w.Write(f.content)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// authorities returns the public TLS authorities in PEM. It leaves out authorities with constraints on names: the
// program that reads the file cannot see the constraints.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
	}
	return out.Bytes()
}
