package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io/fs"
	"path/filepath"

	"github.com/distribution/reference"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// DefaultDockerfile is the default path of the Dockerfile in the context.
const DefaultDockerfile = "Dockerfile"

// The builders of an engine.
const (
	Classic  = "classic"
	BuildKit = "buildkit"
)

// Spec describes a build.
type Spec struct {
	// Context is the directory to send to the engine.
	Context string
	// Dockerfile is a path relative to Context and inside it. Default: DefaultDockerfile.
	Dockerfile string
	// Inline is the text of a Dockerfile, used instead of one in the context.
	Inline string
	// Files are added to the context of an inline Dockerfile, below FilesDir, which .dockerignore does not hide.
	Files    []File
	FilesDir string
	Args     map[string]string
	// Target is the stage to build; empty means the last one.
	Target string
	// Platform is os/arch[/variant]; empty means the engine's.
	Platform string
	Labels   map[string]string
	// NoCache runs every step again. It does not change the result, so it is not part of the hash.
	NoCache bool
	// CacheFrom names images whose steps may be reused: images on the engine and, for BuildKit, registry
	// images with an inline cache. Not part of the hash.
	CacheFrom []string
	// Builder is the engine's builder to use: BuildKit or Classic. Empty means BuildKit if the engine has it.
	// Not part of the hash.
	Builder string
	// Registries has the credentials to pull base images; nil means none. Not part of the hash.
	Registries *registry.Client
	// Reference is a name:tag that the image gets as soon as it exists; empty means no name. The engine
	// removes an image with its last name, even if another build produced the same image. Not part of the
	// hash.
	Reference string
	// Secrets are available to RUN --mount=type=secret,id=…. They require BuildKit. Not part of the hash.
	Secrets map[string]sandbox.Secret
}

// File is a file that the context gets in addition to those on disk.
type File struct {
	Name    string // below FilesDir
	Mode    fs.FileMode
	Content []byte
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

// hashVersion changes whenever the hash of the same inputs changes.
const hashVersion = "context-hash/2"

// newHash returns a hash over everything except the context's files.
func (s Spec) newHash() (hash.Hash, error) {
	options, err := json.Marshal(struct { // the encoder sorts the keys of maps
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
		return sandbox.Errorf(sandbox.Invalid, "must be an image name without tag and digest, such as catan-player "+
			"or registry.example.com/games/catan-player, not %q", name)
	}
	return nil
}

// CheckTag checks a tag. Errors: Invalid.
func CheckTag(tag string) error {
	if !reference.TagRegexp.MatchString(tag) || reference.TagRegexp.FindString(tag) != tag {
		return sandbox.Errorf(sandbox.Invalid,
			"must be a tag such as latest or v1.2: letters, digits, '_', '.' and '-', at most 128, not %q", tag)
	}
	return nil
}

// Split divides a reference into the name, as written, and the tag ("latest" if there is none). Errors:
// Invalid.
func Split(ref string) (name, tag string, err error) {
	parsed, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "", "", sandbox.Errorf(sandbox.Invalid, "%q is not an image reference such as catan-player:latest", ref)
	}
	if _, ok := parsed.(reference.Digested); ok {
		return "", "", sandbox.Errorf(sandbox.Invalid,
			"%q contains a digest; use the name and tag of an image on the engine, such as catan-player:latest", ref)
	}
	tagged, ok := reference.TagNameOnly(parsed).(reference.NamedTagged)
	if !ok {
		return "", "", sandbox.Errorf(sandbox.Invalid, "%q has no tag", ref)
	}
	return reference.FamiliarName(parsed), tagged.Tag(), nil
}

// sameName reports whether two names refer to the same repository, such as "catan" and
// "docker.io/library/catan".
func sameName(a, b string) bool {
	refA, errA := reference.ParseNormalizedNamed(a)
	refB, errB := reference.ParseNormalizedNamed(b)
	return errA == nil && errB == nil && refA.Name() == refB.Name()
}

// CheckReference checks a reference, with a tag or digest or neither. Errors: Invalid.
func CheckReference(ref string) error {
	if _, err := reference.ParseNormalizedNamed(ref); err != nil {
		return sandbox.Errorf(sandbox.Invalid,
			"must be an image reference such as busybox:1.36 or ghcr.io/acme/player@sha256:…, not %q", ref)
	}
	return nil
}

// Repository returns a valid reference without tag and digest, as written.
func Repository(ref string) string {
	parsed, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return ref
	}
	return reference.FamiliarName(parsed)
}

// DigestOf returns the digest of a valid reference, "" if it has none.
func DigestOf(ref string) string {
	if parsed, err := reference.ParseNormalizedNamed(ref); err == nil {
		if pinned, ok := parsed.(reference.Digested); ok {
			return pinned.Digest().String()
		}
	}
	return ""
}
