package inside

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestOneSideOfACopyIsInASandbox(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]remote{
		"did:plc:ada::catan-7:/workspace/a": {"did:plc:ada::catan-7", "/workspace/a"},
		"did:plc:ada::catan-7:a":            {"did:plc:ada::catan-7", "a"},
		"did:web:a.example:b::catan-7:a:b":  {"did:web:a.example:b::catan-7", "a:b"},
		"ada@catan-7:/data/x:y":             {"ada@catan-7", "/data/x:y"},
		"ada@catan-7:":                      {"ada@catan-7", ""},
	} {
		if got, ok := parseRemote(text); !ok || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"a", "a:b", "./ada@catan-7:x", "/tmp/ada@catan-7:x", "../x@y:z", "did:plc:ada::catan-7", "a@b", ""} {
		if got, ok := parseRemote(text); ok {
			t.Errorf("%q is %+v, want a local path", text, got)
		}
	}
}

// TestACopyStaysInItsDirectory: the archive comes from a sandbox, which is not trusted.
func TestACopyStaysInItsDirectory(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string][]tar.Header{
		"a path that leads out":    {{Name: "maps/../../out", Typeflag: tar.TypeReg, Mode: 0o644}},
		"an absolute path":         {{Name: "/out", Typeflag: tar.TypeReg, Mode: 0o644}},
		"a symlink that leads out": {{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "../"}, {Name: "link/out", Typeflag: tar.TypeReg, Mode: 0o644}},
		"a device":                 {{Name: "out", Typeflag: tar.TypeChar}},
	} {
		dir := t.TempDir()
		inside := filepath.Join(dir, "inside")
		if err := os.Mkdir(inside, 0o700); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(inside)
		if err != nil {
			t.Fatal(err)
		}
		if err := unpack(tar.NewReader(&b), root, ""); err == nil {
			t.Errorf("%s: it is unpacked", name)
		}
		if err := root.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "out")); !os.IsNotExist(err) {
			t.Errorf("%s: it wrote outside: %v", name, err)
		}
	}
}
