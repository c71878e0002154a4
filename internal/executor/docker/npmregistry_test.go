package docker_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
)

// npmPackage is a registry with one package, secret-dice, below /npm/.
func npmPackage(t *testing.T) http.Handler {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{
		"package/package.json": `{"name": "secret-dice", "version": "1.0.0", "main": "index.js"}`,
		"package/index.js":     "module.exports = 'six sides'\n",
	} {
		must(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}))
		_, err := w.Write([]byte(text))
		must(t, err)
	}
	must(t, w.Close())
	must(t, z.Close())
	sum := sha512.Sum512(packed.Bytes())
	about := map[string]any{
		"name": "secret-dice", "dist-tags": map[string]string{"latest": "1.0.0"},
		"versions": map[string]any{"1.0.0": map[string]any{
			"name": "secret-dice", "version": "1.0.0", "dist": map[string]string{
				"tarball":   "https://git.test/npm/secret-dice/-/secret-dice-1.0.0.tgz",
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
			},
		}},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /npm/secret-dice", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(about) // the client may have gone
	})
	mux.HandleFunc("GET /npm/secret-dice/-/secret-dice-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(packed.Bytes())
	})
	return mux
}

// npmFiles is the machine's npm in /npm. It needs node.
func npmFiles(t *testing.T) (files []dockertest.File) {
	t.Helper()
	program, err := exec.LookPath("npm")
	must(t, err)
	program, err = filepath.EvalSymlinks(program)
	must(t, err)
	root := filepath.Dir(filepath.Dir(program))
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		if d.IsDir() && (name == "/docs" || name == "/man") {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() || slices.Contains([]string{".md", ".map"}, filepath.Ext(path)) {
			return nil
		}
		content, err := os.ReadFile(path)
		files = append(files, dockertest.File{Name: "npm" + name, Mode: 0o644, Content: content})
		return err
	}))
	return files
}
