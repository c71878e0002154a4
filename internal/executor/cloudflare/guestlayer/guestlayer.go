// Package guestlayer makes of any image for linux/amd64 what a sandbox on Cloudflare runs: the same image with one more
// layer, which has the guest and the directories of its user.
//
// What it makes depends on nothing but the image and the guest, so that making it again gives the same digest, and
// layers that a registry has are not sent again.
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

// Platform is what Cloudflare runs images of.
const Platform = "linux/amd64"

// recipe changes whenever the same image and guest would give another one.
const recipe = "outfit/2"

const (
	// user is whom process 1 begins as. It takes another user before it runs anything.
	user = "0:0"
	// userID is whom commands run as, and who owns the directories.
	userID = 1000

	labelBase = "io.sandbox-lease.base-digest"
)

// Key names what Add makes of an image, known by its digest or its id on an engine, with a guest: 32 hexadecimal
// digits.
func Key(digest string, guest []byte) string {
	program := sha256.Sum256(guest)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%x", recipe, digest, program))
	return hex.EncodeToString(sum[:16])
}

// Check refuses an image for another platform. Errors: Invalid, naming the one it is for.
func Check(ref string, img v1.Image) error {
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	return CheckPlatform(ref, config.OS, config.Architecture)
}

// CheckPlatform refuses another platform for an image. Errors: Invalid.
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

// Add adds the guest to an image. Nothing of the image is read but its description. Errors: those of reading it.
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
	dressed, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: config.Created, CreatedBy: recipe + ": add " + guest.Path},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Config(dressed, settings(config.Config, digest))
}

// settings are those of the image, but for what the guest sees to.
func settings(c v1.Config, base v1.Hash) v1.Config {
	c.User, c.Entrypoint, c.Cmd = user, nil, nil
	c.Healthcheck = &v1.HealthConfig{Test: []string{"NONE"}}
	c.Volumes = nil // an anonymous volume would hide the directories
	// The local runtime wants a port that is exposed.
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

// layerOf packs the guest and the directories. What is above them is left as the image has it.
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
