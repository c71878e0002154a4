package dockertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Programs returns programs of this machine with their libraries, for an image. A program without a slash is found in
// PATH and goes to /bin. Others keep their path.
func Programs(t testing.TB, names ...string) (files []File) {
	t.Helper()
	seen := make(map[string]bool)
	add := func(name, from string) {
		name = strings.TrimPrefix(name, "/")
		if seen[name] {
			return
		}
		seen[name] = true
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{Name: name, Mode: 0o755, Content: content})
	}
	for _, name := range names {
		from, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("make an image with %s: %v", name, err)
		}
		to := from
		if !strings.Contains(name, "/") {
			to = "/bin/" + name
		}
		add(to, from)
		libraries, err := exec.CommandContext(t.Context(), "ldd", from).Output()
		if err != nil {
			t.Fatalf("the libraries of %s: %v", from, err)
		}
		for _, word := range strings.Fields(string(libraries)) {
			if filepath.IsAbs(word) {
				add(word, word)
			}
		}
	}
	return files
}
