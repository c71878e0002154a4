package devcontainer

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Bounds of features.
const (
	maxFeatures     = 64
	MaxFeatureBytes = 16 << 20 // of one feature, unpacked
)

// Fetch returns the archive of a feature in a registry, such as ghcr.io/devcontainers/features/go:1. Its errors carry a
// code.
type Fetch func(ctx context.Context, ref string) ([]byte, error)

// File is a file of a feature.
type File struct {
	Name    string // relative to the build context
	Mode    fs.FileMode
	Content []byte
}

// feature is a feature to install, with its options.
type feature struct {
	ref     string // as it is written in devcontainer.json or dependsOn
	options any
	files   []File

	ID            string            `json:"id"`
	Options       map[string]option `json:"options"`
	ContainerEnv  map[string]string `json:"containerEnv"`
	InstallsAfter []string          `json:"installsAfter"`
	DependsOn     map[string]any    `json:"dependsOn"`
	Privileged    bool              `json:"privileged"`
	CapAdd        []string          `json:"capAdd"`
	SecurityOpt   []string          `json:"securityOpt"`
	Mounts        []any             `json:"mounts"`
	Entrypoint    string            `json:"entrypoint"`
	lifecycle
	PostStarting command `json:"postStartCommand"`
}

// option is an option of a feature.
type option struct {
	Type    string `json:"type"`
	Default any    `json:"default"`
	Enum    []any  `json:"enum"`
}

// name is the name that other features use: the reference without version.
func (f *feature) name() string { return unversioned(f.ref) }

func unversioned(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		ref = ref[:i]
	}
	return strings.ToLower(ref)
}

// load reads a feature from the directory of the devcontainer.json or from a registry. Errors: Invalid; those of fetch.
func load(ctx context.Context, dir, ref string, options any, fetch Fetch) (*feature, error) {
	f := &feature{ref: ref, options: options}
	var err error
	switch {
	case strings.HasPrefix(ref, "./"):
		f.files, err = readDir(filepath.Join(dir, filepath.FromSlash(ref)))
	case strings.Contains(ref, "://"):
		err = errors.New("is a URL: name a feature of a registry, or a directory that begins with ./")
	case !strings.Contains(ref, "/"):
		err = errors.New("names no registry: write it like ghcr.io/devcontainers/features/go:1")
	default:
		var archive []byte
		if archive, err = fetch(ctx, ref); err == nil {
			f.files, err = unpack(archive)
		}
	}
	if err == nil {
		err = f.parse()
	}
	if own, coded := errors.AsType[*sandbox.Error](err); coded {
		return nil, own
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "feature %s: %w", ref, err)
	}
	return f, nil
}

// parse reads devcontainer-feature.json.
func (f *feature) parse() error {
	find := func(name string) *File {
		i := slices.IndexFunc(f.files, func(file File) bool { return file.Name == name })
		if i < 0 {
			return nil
		}
		return &f.files[i]
	}
	about := find("devcontainer-feature.json")
	if about == nil || find("install.sh") == nil {
		return errors.New("must have devcontainer-feature.json and install.sh")
	}
	plain, err := hujson.Standardize(about.Content)
	if err == nil {
		err = json.Unmarshal(plain, f)
	}
	if err != nil {
		return fmt.Errorf("devcontainer-feature.json: %w", err)
	}
	if err := checkEnv("containerEnv", f.ContainerEnv); err != nil {
		return fmt.Errorf("devcontainer-feature.json: %w", err)
	}
	_, err = f.variables()
	return err
}

var (
	notInName = regexp.MustCompile(`[^\w_]`)
	digits    = regexp.MustCompile(`^[\d_]+`)
)

// variables returns the options as the variables of install.sh.
func (f *feature) variables() (map[string]string, error) {
	given := make(map[string]any)
	switch o := f.options.(type) {
	case map[string]any:
		given = o
	case string:
		given["version"] = o
	case nil, bool:
	default:
		return nil, fmt.Errorf("its options must be an object, not %v", o)
	}
	env := make(map[string]string)
	set := func(name string, value any) error {
		switch value.(type) {
		case string, bool:
			env[strings.ToUpper(digits.ReplaceAllString(notInName.ReplaceAllString(name, "_"), "_"))] = fmt.Sprint(value)
			return nil
		}
		return fmt.Errorf("option %s must be a text or true or false, not %v", name, value)
	}
	for name, o := range f.Options {
		if err := set(name, cmp.Or[any](o.Default, "")); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		if err := set(name, value); err != nil { // from here on, value can be compared
			return nil, err
		}
		o, known := f.Options[name]
		switch {
		case !known && name != "version":
			return nil, fmt.Errorf("has no option %s, only %s", name,
				strings.Join(slices.Sorted(maps.Keys(f.Options)), ", "))
		case len(o.Enum) > 0 && !slices.Contains(o.Enum, value):
			return nil, fmt.Errorf("option %s must be one of %v, not %v", name, o.Enum, value)
		}
	}
	return env, nil
}

// notes returns the properties of a feature that have no effect in a sandbox.
func (f *feature) notes() (notes []Note) {
	for property, has := range map[string]bool{
		"privileged": f.Privileged, "capAdd": len(f.CapAdd) > 0, "securityOpt": len(f.SecurityOpt) > 0,
		"mounts": len(f.Mounts) > 0, "entrypoint": f.Entrypoint != "",
	} {
		if has {
			notes = append(notes, Note{"feature " + f.ref, "asks for " + property +
				", which has no effect: a sandbox stays confined as its environment's confinement says"})
		}
	}
	slices.SortFunc(notes, func(a, b Note) int { return cmp.Compare(a.Text, b.Text) })
	return notes
}

// readDir reads a feature from a directory of the project.
func readDir(dir string) (files []File, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // only read
	size := int64(0)
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if size += info.Size(); !info.Mode().IsRegular() || size > MaxFeatureBytes {
			return fmt.Errorf("%s: must have only files, of %d bytes in all", name, MaxFeatureBytes)
		}
		content, err := fs.ReadFile(root.FS(), name)
		files = append(files, File{name, info.Mode().Perm(), content})
		return err
	})
	return files, err
}

// unpack reads the archive of a feature, a tar that may be compressed.
func unpack(archive []byte) (files []File, err error) {
	var in io.Reader = bytes.NewReader(archive)
	if bytes.HasPrefix(archive, []byte{0x1f, 0x8b}) {
		if in, err = gzip.NewReader(in); err != nil {
			return nil, err
		}
	}
	bounded := io.LimitReader(in, MaxFeatureBytes+1<<20) // with the headers
	for t := tar.NewReader(bounded); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("its archive: %w", err)
		}
		name := path.Clean(h.Name)
		switch {
		case h.Typeflag == tar.TypeDir:
		case h.Typeflag != tar.TypeReg || !filepath.IsLocal(name) || strings.ContainsAny(name, "\\\x00"):
			return nil, fmt.Errorf("its archive has %q, which is neither a file nor a directory in it", h.Name)
		default:
			content, err := io.ReadAll(t)
			if err != nil {
				return nil, fmt.Errorf("its archive: %w", err)
			}
			files = append(files, File{name, fs.FileMode(h.Mode).Perm(), content}) //nolint:gosec // Perm keeps nine bits
		}
	}
}
