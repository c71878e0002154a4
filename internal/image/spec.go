package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"path/filepath"

	"github.com/distribution/reference"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// DefaultDockerfile is the Dockerfile's path in the context when none is given.
const DefaultDockerfile = "Dockerfile"

// The builders of an engine.
const (
	Classic  = "classic"
	BuildKit = "buildkit"
)

// Spec says how an image is built.
type Spec struct {
	// Context is the directory that is sent to the engine.
	Context string
	// Dockerfile is a path relative to Context, and inside of it. Default: DefaultDockerfile.
	Dockerfile string
	// Inline is the text of a Dockerfile that takes the place of one in the context.
	Inline string
	Args   map[string]string
	// Target is the stage to build; empty is the last one.
	Target string
	// Platform is os/arch[/variant]; empty is the engine's.
	Platform string
	Labels   map[string]string
	// NoCache has every step carried out again. It is how to build and not what, so no part of the hash.
	NoCache bool
	// CacheFrom names images whose steps need not be carried out again: those on the engine, and for BuildKit also
	// those of a registry that were built with their cache inline. No part of the hash.
	CacheFrom []string
	// Builder is what of the engine builds: BuildKit or Classic. Empty is BuildKit where the engine has it.
	// No part of the hash.
	Builder string
	// Registries has the credentials that base images are pulled with; nil is none. No part of the hash.
	Registries *registry.Client
	// Reference is a name:tag that the image gets as soon as it is there; empty leaves it without a name. The engine removes
	// an image with its last name, also when another build made the same one. No part of the hash.
	Reference string
	// Secrets are what RUN --mount=type=secret,id=… finds. They need BuildKit and are no part of the hash.
	Secrets map[string]sandbox.Secret
}

func (s Spec) dockerfile() string {
	if s.Inline != "" {
		return inlineDockerfile
	}
	if s.Dockerfile == "" {
		return DefaultDockerfile
	}
	return filepath.ToSlash(filepath.Clean(s.Dockerfile))
}

// hashVersion changes whenever the same inputs would give another hash.
const hashVersion = "context-hash/2"

// newHash returns a hash that has taken in everything but the context's files.
func (s Spec) newHash() (hash.Hash, error) {
	options, err := json.Marshal(struct { // keys of maps are sorted
		Version, Dockerfile, Target, Platform string
		Args, Labels                          map[string]string
	}{hashVersion, s.dockerfile(), s.Target, s.Platform, nonNil(s.Args), nonNil(s.Labels)})
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "hash build options: %w", err)
	}
	h := sha256.New()
	h.Write(options)
	return h, nil
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func sum(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// CheckName checks a repository name without tag or digest. Errors: Invalid.
func CheckName(name string) error {
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil || !reference.IsNameOnly(ref) {
		return sandbox.Errorf(sandbox.Invalid, "must be the name of an image without tag and digest, such as catan-player or registry.example.com/games/catan-player, not %q", name)
	}
	return nil
}

// CheckTag checks a tag. Errors: Invalid.
func CheckTag(tag string) error {
	if !reference.TagRegexp.MatchString(tag) || reference.TagRegexp.FindString(tag) != tag {
		return sandbox.Errorf(sandbox.Invalid, "must be a tag such as latest or v1.2: letters, digits, '_', '.' and '-', at most 128, not %q", tag)
	}
	return nil
}

// Split divides a reference into name, as the user wrote it, and tag ("latest" when it has none).
// Errors: Invalid.
func Split(ref string) (name, tag string, err error) {
	parsed, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "", "", sandbox.Errorf(sandbox.Invalid, "%q is not an image reference such as catan-player:latest", ref)
	}
	if _, ok := parsed.(reference.Digested); ok {
		return "", "", sandbox.Errorf(sandbox.Invalid, "%q names a digest; give the name and tag of an image on the engine, such as catan-player:latest", ref)
	}
	tagged, ok := reference.TagNameOnly(parsed).(reference.NamedTagged)
	if !ok {
		return "", "", sandbox.Errorf(sandbox.Invalid, "%q has no tag", ref)
	}
	return reference.FamiliarName(parsed), tagged.Tag(), nil
}

// sameName reports whether two names mean the same repository, such as "catan" and
// "docker.io/library/catan".
func sameName(a, b string) bool {
	refA, errA := reference.ParseNormalizedNamed(a)
	refB, errB := reference.ParseNormalizedNamed(b)
	return errA == nil && errB == nil && refA.Name() == refB.Name()
}

// CheckReference checks a reference, with a tag or digest or neither. Errors: Invalid.
func CheckReference(ref string) error {
	if _, err := reference.ParseNormalizedNamed(ref); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "must be an image reference such as busybox:1.36 or ghcr.io/acme/player@sha256:…, not %q", ref)
	}
	return nil
}

// Repository returns a well-formed reference without tag and digest, as the user writes it.
func Repository(ref string) string {
	parsed, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return ref
	}
	return reference.FamiliarName(parsed)
}

// DigestOf returns the digest of a well-formed reference, "" when it has none.
func DigestOf(ref string) string {
	if parsed, err := reference.ParseNormalizedNamed(ref); err == nil {
		if pinned, ok := parsed.(reference.Digested); ok {
			return pinned.Digest().String()
		}
	}
	return ""
}
