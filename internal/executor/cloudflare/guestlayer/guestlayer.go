// Package guestlayer turns any image for linux/amd64 into one that a sandbox on Cloudflare can run. It adds a layer
// with the guest and the directories of its user.
//
// The result depends only on the image and the guest. So a repetition gives the same digest, and layers that a registry
// has are not pushed again.
package guestlayer

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Platform is the only platform whose images Cloudflare runs.
const Platform = "linux/amd64"

// recipe must change whenever the same image and guest give another result.
const recipe = "outfit/2"

const (
	// user is the user that process 1 starts as. It switches to another user before it runs anything.
	user = "0:0"
	// userID is the user that runs commands and owns the directories.
	userID = 1000

	labelBase = "io.sandbox-lease.base-digest"
)

// Key identifies the result of Add for an image and a guest, by 32 hexadecimal digits. digest is the image's digest, or
// its id on an engine.
func Key(digest string, guest []byte) string {
	program := sha256.Sum256(guest)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%x", recipe, digest, program))
	return hex.EncodeToString(sum[:16])
}

// Check rejects an image for another platform. Errors: Invalid, naming the image's platform.
func Check(ref string, img v1.Image) error {
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	return CheckPlatform(ref, config.OS, config.Architecture)
}

// CheckPlatform rejects an image whose platform Cloudflare does not run. Errors: Invalid.
func CheckPlatform(ref, os, architecture string) error {
	if is := os + "/" + architecture; is != Platform {
		return sandbox.Errorf(sandbox.Invalid,
			"image %s is for %s: Cloudflare runs %s only; build it for that, with platform = %q", ref, is, Platform, Platform)
	}
	return nil
}

// Has reports whether an image was made with a guest inside: by Add, or by a Dockerfile that copies it.
func Has(img v1.Image) (bool, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return false, err
	}
	if len(config.Config.Entrypoint) > 0 || !slices.Contains([]string{"", "0", user, "root"}, config.Config.User) {
		return false, nil
	}
	for _, step := range config.History {
		if strings.Contains(step.CreatedBy, guest.Path) {
			return true, nil
		}
	}
	return false, nil
}

// Add adds the guest to an image. It reads only the image's manifest and configuration, and returns errors of reading
// them.
func Add(base v1.Image, program []byte) (v1.Image, error) {
	digest, err := base.Digest()
	if err != nil {
		return nil, err
	}
	kind, err := base.MediaType()
	if err != nil {
		return nil, err
	}
	layer, err := layerOf(program, kind)
	if err != nil {
		return nil, err
	}
	config, err := base.ConfigFile()
	if err != nil {
		return nil, err
	}
	layered, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: config.Created, CreatedBy: recipe + ": add " + guest.Path},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Config(layered, settings(config.Config, digest))
}

// settings returns the image's settings, except those that the guest replaces.
func settings(c v1.Config, base v1.Hash) v1.Config {
	c.User, c.Entrypoint, c.Cmd = user, nil, nil
	c.Healthcheck = &v1.HealthConfig{Test: []string{"NONE"}}
	c.Volumes = nil // an anonymous volume would hide the directories
	// The local runtime reaches only exposed ports.
	exposed := map[string]struct{}{fmt.Sprintf("%d/tcp", guest.Port): {}}
	maps.Copy(exposed, c.ExposedPorts)
	c.ExposedPorts = exposed
	labels := map[string]string{labelBase: base.String()}
	for name, value := range c.Labels {
		if name != labelBase {
			labels[name] = value
		}
	}
	c.Labels = labels
	return c
}

// layerOf packs the guest and the directories. It does not change their parent directories.
func layerOf(program []byte, of types.MediaType) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, h := range []tar.Header{
		{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir},
		{Name: strings.TrimPrefix(guest.Dir, "/") + "/", Mode: 0o755, Typeflag: tar.TypeDir},
		{Name: strings.TrimPrefix(guest.Path, "/"), Mode: 0o755, Typeflag: tar.TypeReg, Size: int64(len(program))},
		{Name: "workspace/", Mode: 0o700, Typeflag: tar.TypeDir, Uid: userID, Gid: userID},
		{Name: "data/", Mode: 0o700, Typeflag: tar.TypeDir, Uid: userID, Gid: userID},
		{Name: strings.TrimPrefix(guest.SecretsDir, "/") + "/", Mode: 0o700, Typeflag: tar.TypeDir, Uid: userID, Gid: userID},
	} {
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if _, err := w.Write(program); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	kind := types.DockerLayer
	if of == types.OCIManifestSchema1 {
		kind = types.OCILayer
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	}, tarball.WithMediaType(kind), tarball.WithCompressedCaching)
}
