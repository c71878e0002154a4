package image_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// buildContext writes files into a new directory; names ending in "/" are directories.
func buildContext(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, "/") {
		return
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mustHash(t *testing.T, spec image.Spec) string {
	t.Helper()
	h, err := spec.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func game() map[string]string {
	return map[string]string{
		"Dockerfile":       "FROM scratch\nCOPY . /\n",
		".dockerignore":    "# comment\n*.log\nsecrets\n!secrets/public\n",
		"main.txt":         "hello",
		"rules/dice.txt":   "6",
		"debug.log":        "noise",
		"secrets/key":      "hidden",
		"secrets/public/a": "seen",
	}
}

func TestHashChangesWithWhatTheBuildGets(t *testing.T) {
	t.Parallel()
	changes := map[string]func(t *testing.T, s *image.Spec){
		"content":              func(t *testing.T, s *image.Spec) { write(t, s.Context+"/main.txt", "other") },
		"content of same size": func(t *testing.T, s *image.Spec) { write(t, s.Context+"/main.txt", "hallo") },
		"new file":             func(t *testing.T, s *image.Spec) { write(t, s.Context+"/new.txt", "") },
		"wanted again":         func(t *testing.T, s *image.Spec) { write(t, s.Context+"/secrets/public/a", "other") },
		"Dockerfile": func(t *testing.T, s *image.Spec) {
			write(t, s.Context+"/Dockerfile", "FROM scratch\nCOPY . /x\n")
		},
		"rename": func(t *testing.T, s *image.Spec) {
			must(t, os.Rename(s.Context+"/main.txt", s.Context+"/main2.txt"))
		},
		"state that is wanted": func(t *testing.T, s *image.Spec) {
			write(t, s.Context+"/secrets/public/terraform.tfstate", "{}")
		},
		"mode":       func(t *testing.T, s *image.Spec) { must(t, os.Chmod(s.Context+"/main.txt", 0o755)) },
		"link":       func(t *testing.T, s *image.Spec) { must(t, os.Symlink("main.txt", s.Context+"/link")) },
		"directory":  func(t *testing.T, s *image.Spec) { must(t, os.Mkdir(s.Context+"/empty", 0o755)) },
		"args":       func(_ *testing.T, s *image.Spec) { s.Args = map[string]string{"A": "1"} },
		"labels":     func(_ *testing.T, s *image.Spec) { s.Labels = map[string]string{"A": "1"} },
		"target":     func(_ *testing.T, s *image.Spec) { s.Target = "build" },
		"platform":   func(_ *testing.T, s *image.Spec) { s.Platform = "linux/arm64" },
		"dockerfile": func(_ *testing.T, s *image.Spec) { s.Dockerfile = "rules/dice.txt" },
		"inline":     func(_ *testing.T, s *image.Spec) { s.Inline = "FROM scratch\nCOPY . /\n" },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := image.Spec{Context: buildContext(t, game())}
			before := mustHash(t, spec)
			change(t, &spec)
			if mustHash(t, spec) == before {
				t.Errorf("the hash did not change")
			}
		})
	}
}

func TestHashKeepsWithWhatTheBuildDoesNotGet(t *testing.T) {
	t.Parallel()
	changes := map[string]func(t *testing.T, s *image.Spec){
		"ignored file":      func(t *testing.T, s *image.Spec) { write(t, s.Context+"/debug.log", "more noise") },
		"ignored directory": func(t *testing.T, s *image.Spec) { write(t, s.Context+"/secrets/key", "other") },
		"Terraform's files": func(t *testing.T, s *image.Spec) {
			for _, file := range []string{
				".terraform/environment", ".terraform/sandbox/creating/a", "rules/.terraform/modules/modules.json",
				"terraform.tfstate", "terraform.tfstate.backup", ".terraform.tfstate.lock.info", "rules/dev.tfstate",
				"terraform.tfstate.d/dev/terraform.tfstate",
			} {
				write(t, s.Context+"/"+file, "{}")
			}
		},
		"time of change": func(t *testing.T, s *image.Spec) {
			must(t, os.Chtimes(s.Context+"/main.txt", time.Unix(1, 0), time.Unix(2, 0)))
		},
		"default Dockerfile named": func(_ *testing.T, s *image.Spec) { s.Dockerfile = "./Dockerfile" },
		"no cache":                 func(_ *testing.T, s *image.Spec) { s.NoCache = true },
		"empty args":               func(_ *testing.T, s *image.Spec) { s.Args = map[string]string{} },
		"place of the context": func(t *testing.T, s *image.Spec) {
			moved := filepath.Join(t.TempDir(), "moved")
			must(t, os.CopyFS(moved, os.DirFS(s.Context)))
			s.Context = moved + "/."
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := image.Spec{Context: buildContext(t, game())}
			before := mustHash(t, spec)
			change(t, &spec)
			if after := mustHash(t, spec); after != before {
				t.Errorf("the hash changed from %s to %s", before, after)
			}
		})
	}
}

func TestHashSeesAnIgnoredDockerfile(t *testing.T) {
	t.Parallel()
	spec := image.Spec{Dockerfile: "build/Dockerfile", Context: buildContext(t, map[string]string{
		"build/Dockerfile": "FROM scratch\n",
		"build/other":      "x",
		".dockerignore":    "build\n",
	})}
	before := mustHash(t, spec)
	write(t, spec.Context+"/build/other", "y")
	if mustHash(t, spec) != before {
		t.Errorf("an ignored file beside the Dockerfile changed the hash")
	}
	write(t, spec.Context+"/build/Dockerfile", "FROM scratch\nLABEL a=b\n")
	if mustHash(t, spec) == before {
		t.Errorf("the ignored Dockerfile did not change the hash")
	}
}

func TestUnusableContexts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(buildContext(t, game()), "main.txt")
	fifo := buildContext(t, game())
	must(t, syscall.Mkfifo(fifo+"/pipe", 0o600))
	tests := map[string]struct {
		spec image.Spec
		says string
	}{
		"no directory":          {image.Spec{Context: "/does/not/exist"}, "/does/not/exist"},
		"a file":                {image.Spec{Context: file}, "not a directory"},
		"no Dockerfile":         {image.Spec{Context: buildContext(t, map[string]string{"a": "b"})}, "Dockerfile"},
		"Dockerfile outside":    {image.Spec{Context: buildContext(t, game()), Dockerfile: "../Dockerfile"}, "outside"},
		"Dockerfile absolute":   {image.Spec{Context: buildContext(t, game()), Dockerfile: "/etc/passwd"}, "outside"},
		"Dockerfile directory":  {image.Spec{Context: buildContext(t, game()), Dockerfile: "rules"}, "not a file"},
		"a pipe in the context": {image.Spec{Context: fifo}, "pipe"},
		"a pattern that is none": {image.Spec{Context: buildContext(t, map[string]string{
			"Dockerfile": "FROM scratch", ".dockerignore": "[a-\n"})}, ".dockerignore"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.spec.Hash()
			if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want an invalid error that says %q", err, tt.says)
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"player": true, "registry.example.com:5000/games/player": true,
		"": false, "Player": false, "player:1": false, "player@sha256:" + strings.Repeat("0", 64): false,
	} {
		if err := image.CheckName(name); (err == nil) != ok {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for tag, ok := range map[string]bool{
		"latest":                 true,
		"v1.2_3-x":               true,
		"":                       false,
		"a b":                    false,
		"-a":                     false,
		strings.Repeat("a", 129): false,
	} {
		if err := image.CheckTag(tag); (err == nil) != ok {
			t.Errorf("tag %q: %v", tag, err)
		}
	}
	if name, tag, err := image.Split("docker.io/library/player"); name != "player" || tag != "latest" || err != nil {
		t.Errorf("got %q %q %v", name, tag, err)
	}
	if _, _, err := image.Split("player@sha256:" + strings.Repeat("0", 64)); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a digest was accepted as a tag: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
