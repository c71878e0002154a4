package devcontainer_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/devcontainer"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// project writes files and returns the path of their devcontainer.json.
func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, ".devcontainer/devcontainer.json")
}

func config(text string) map[string]string {
	return map[string]string{".devcontainer/devcontainer.json": text}
}

// shop holds features by reference.
type shop map[string][]byte

func (s shop) fetch(_ context.Context, ref string) ([]byte, error) {
	if archive, has := s[ref]; has {
		return archive, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no %s", ref)
}

// packed returns the archive of a feature with this description.
func packed(t *testing.T, about string, more ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{"./devcontainer-feature.json": about, "./install.sh": "#!/bin/sh\n"} {
		h := tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(text)) // a buffer takes everything
	}
	for _, h := range more {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = w.Close(), z.Close()
	return b.Bytes()
}

func read(t *testing.T, files map[string]string, s shop) devcontainer.Build {
	t.Helper()
	b, err := devcontainer.Read(t.Context(), project(t, files), s.fetch)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnImageWithCommentsAndVariables(t *testing.T) {
	t.Parallel()
	b := read(t, config(`{
		// the image
		"image": "debian:${localEnv:RELEASE:12}",
		"containerEnv": {"HERE": "${containerWorkspaceFolder}", "PRICE": "5$", "Q": "say \"hi\" \\ there"},
		"remoteEnv": {"PATH": "${containerEnv:PATH}:/tools", "GONE": null},
		"postCreateCommand": {
			"b": ["make", "deps", "${TARGET}"],
			"a": "echo ${containerWorkspaceFolder} ${HOME} ${P:-x} ${containerEnv:A} ${containerEnv:B:c}"
		},
		"onCreateCommand": "true",
		"postStartCommand": "",
		"customizations": {"vscode": {}},
	}`), nil)
	want := `FROM debian:12 AS devcontainer_base
FROM devcontainer_base AS devcontainer
ENV HERE="/workspace"
ENV PRICE="5\$"
ENV Q="say \"hi\" \\ there"
ENV PATH="${PATH}:/tools"
`
	if b.Dockerfile != want {
		t.Errorf("the Dockerfile is\n%s\nwant\n%s", b.Dockerfile, want)
	}
	commands := [][]string{{"/bin/sh", "-c", "true"}, {"/bin/sh", "-c", "echo /workspace ${HOME} ${P:-x} ${A} ${B:-c}"},
		{"make", "deps", "${TARGET}"}}
	if !slices.EqualFunc(b.PostStart, commands, slices.Equal) || len(b.Notes) != 0 {
		t.Errorf("the commands are %q, and the notes %v", b.PostStart, b.Notes)
	}
}

func TestADockerfileContinuesFromItsLastStage(t *testing.T) {
	t.Parallel()
	for dockerfile, want := range map[string]string{
		"FROM a AS x\nFROM --platform=linux/amd64 b\nRUN <<E\nFROM c\nE\n": "FROM a AS x\n" +
			"FROM --platform=linux/amd64 b AS devcontainer_base\nRUN <<E\nFROM c\nE\nFROM devcontainer_base AS devcontainer\n",
		"FROM a as last": "FROM a as last\nFROM last AS devcontainer\n",
		"FROM \\\n  a":   "FROM \\\n  a AS devcontainer_base\nFROM devcontainer_base AS devcontainer\n",
	} {
		b := read(t, map[string]string{
			".devcontainer/devcontainer.json": `{"build": {"dockerfile": "../Dockerfile", "context": "..", "args": {"A": "b"}}}`,
			"Dockerfile":                      dockerfile,
		}, nil)
		if b.Dockerfile != want || b.Args["A"] != "b" {
			t.Errorf("of %q the Dockerfile is\n%s\nwant\n%s, with %v", dockerfile, b.Dockerfile, want, b.Args)
		}
		if _, err := os.Stat(filepath.Join(b.Context, "Dockerfile")); err != nil {
			t.Errorf("the context is %s: %v", b.Context, err)
		}
	}
}

func TestFeaturesAreInstalledInTheirOrder(t *testing.T) {
	t.Parallel()
	files := config(`{
		"image": "base", "remoteUser": "dev",
		"features": {
			"r.test/f/last:1": {}, "r.test/f/first:2": {"version": "1.22", "with-tools": true},
			"./local": {}, "r.test/f/preferred:1": "9"
		},
		"overrideFeatureInstallOrder": ["r.test/f/preferred"],
		"postCreateCommand": "own"
	}`)
	files[".devcontainer/local/devcontainer-feature.json"] = `{"id": "local", "installsAfter": ["r.test/f/first"]}`
	files[".devcontainer/local/install.sh"] = "#!/bin/sh\n"
	s := shop{
		"r.test/f/first:2": packed(t, `{"id": "first", "postCreateCommand": "of first",
			"options": {"version": {"type": "string", "default": "latest"}, "with-tools": {"type": "boolean", "default": false},
				"2fast": {"type": "string", "default": "it's"}},
			"containerEnv": {"PATH": "/first:${PATH}"}}`),
		"r.test/f/last:1":      packed(t, `{"id": "last", "dependsOn": {"r.test/f/needed:1": {}}, "privileged": true}`),
		"r.test/f/needed:1":    packed(t, `{"id": "needed", "installsAfter": ["./local"]}`),
		"r.test/f/preferred:1": packed(t, `{"id": "preferred", "options": {"version": {"type": "string"}}}`),
	}
	b := read(t, files, s)
	var order []string
	env := make(map[string]string)
	for _, f := range b.Files {
		switch filepath.Base(f.Name) {
		case "devcontainer-feature.json":
			id, _, _ := strings.Cut(strings.SplitN(string(f.Content), `"`, 5)[3], `"`)
			order = append(order, id)
		case "devcontainer-features.env":
			env[f.Name] = string(f.Content)
		}
	}
	if got := strings.Join(order, " "); got != "preferred first local needed last" {
		t.Errorf("the order is %s", got)
	}
	want := "VERSION='1.22'\nWITH_TOOLS='true'\n_CONTAINER_USER='root'\n_CONTAINER_USER_HOME='/root'\n" +
		"_FAST='it'\\''s'\n_REMOTE_USER='dev'\n_REMOTE_USER_HOME='/home/dev'\n"
	if got := env[".devcontainer-features/1/devcontainer-features.env"]; got != want {
		t.Errorf("first gets\n%s\nwant\n%s", got, want)
	}
	if !strings.HasPrefix(env[".devcontainer-features/0/devcontainer-features.env"], "VERSION='9'\n") {
		t.Errorf("preferred gets %q", env[".devcontainer-features/0/devcontainer-features.env"])
	}
	if !strings.Contains(b.Dockerfile, "USER 0:0\nCOPY .devcontainer-features/0/") ||
		!strings.Contains(b.Dockerfile, "ENV PATH=\"/first:${PATH}\"\nCOPY .devcontainer-features/1/") ||
		!strings.HasSuffix(b.Dockerfile, "\nUSER dev\n") {
		t.Errorf("the Dockerfile is\n%s", b.Dockerfile)
	}
	commands := [][]string{{"/bin/sh", "-c", "of first"}, {"/bin/sh", "-c", "own"}}
	if !slices.EqualFunc(b.PostStart, commands, slices.Equal) {
		t.Errorf("the commands are %q", b.PostStart)
	}
	if len(b.Notes) != 2 || b.Notes[1].Property != "feature r.test/f/last:1" {
		t.Errorf("the notes are %v", b.Notes)
	}
}

func TestWhatASandboxCannotHaveIsNoted(t *testing.T) {
	t.Parallel()
	b := read(t, config(`{
		"image": "base", "privileged": true, "capAdd": ["SYS_PTRACE"], "securityOpt": ["seccomp=unconfined"],
		"runArgs": ["--gpus=all"], "mounts": ["source=/var/run/docker.sock,target=/var/run/docker.sock,type=bind"],
		"initializeCommand": "rm -rf /", "postAttachCommand": "x", "postStartCommand": "y", "workspaceFolder": "/src",
		"containerUser": "dev", "postCreateComand": "z"
	}`), nil)
	var noted []string
	for _, n := range b.Notes {
		noted = append(noted, n.Property)
	}
	want := "postCreateComand privileged capAdd securityOpt runArgs mounts remoteUser and containerUser workspaceFolder " +
		"initializeCommand postAttachCommand postStartCommand"
	if got := strings.Join(noted, " "); got != want {
		t.Errorf("noted are %s\nwant %s", got, want)
	}
	if len(b.PostStart) != 1 || strings.Contains(b.Dockerfile, "rm -rf") {
		t.Errorf("what runs is %q, of\n%s", b.PostStart, b.Dockerfile)
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	link := tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}
	up := tar.Header{Name: "../up", Typeflag: tar.TypeReg}
	s := shop{
		"r.test/f/link":  packed(t, `{"id": "link"}`, link),
		"r.test/f/up":    packed(t, `{"id": "up"}`, up),
		"r.test/f/a":     packed(t, `{"id": "a", "dependsOn": {"r.test/f/b": {}}}`),
		"r.test/f/b":     packed(t, `{"id": "b", "dependsOn": {"r.test/f/a": {}}}`),
		"r.test/f/enum":  packed(t, `{"id": "enum", "options": {"size": {"type": "string", "enum": ["s", "l"]}}}`),
		"r.test/f/env":   packed(t, `{"id": "env", "containerEnv": {"A": "x\nRUN --mount=type=secret,id=token cat /run/secrets/token"}}`),
		"r.test/f/name":  packed(t, `{"id": "name", "containerEnv": {"A=1\nRUN true\nENV B": "x"}}`),
		"r.test/f/empty": {},
	}
	for text, says := range map[string]string{
		`{"image": "a"`:                     "is not JSON with comments",
		`{}`:                                "must have image or build.dockerfile",
		`{"image": "a", "dockerFile": "b"}`: "has both",
		`{"dockerComposeFile": "c.yml"}`:    "has dockerComposeFile",
		`{"image": 5}`:                      "image",
		`{"image": "${localEnv:X}"}`:        "image has ${localEnv:X}",
		`{"image": "a", "containerEnv": {"A": "b\nc"}}`:                       "containerEnv.A must be one line",
		`{"image": "a", "remoteEnv": {"A B": "c"}}`:                           "remoteEnv has the invalid name \"A B\"",
		`{"image": "a", "remoteUser": "dev\nRUN true"}`:                       "remoteUser must be one word",
		`{"image": "a", "features": {"r.test/f/env": {}}}`:                    "containerEnv.A must be one line",
		`{"image": "a", "features": {"r.test/f/name": {}}}`:                   "containerEnv has the invalid name",
		`{"image": "a", "postCreateCommand": "echo ${localEnv:X}"}`:           "postCreateCommand has ${localEnv:X}",
		`{"image": "a", "postCreateCommand": ["echo", "${containerEnv:X}"]}`:  "in a list, which no shell expands",
		`{"image": "a", "containerEnv": {"A": "${HOME}"}}`:                    "containerEnv.A has ${HOME}",
		`{"image": "a", "postCreateCommand": 5}`:                              "a command must be",
		`{"build": {"dockerfile": "none"}}`:                                   "no such file",
		`{"image": "a", "features": {"go": {}}}`:                              "names no registry",
		`{"image": "a", "features": {"https://x.test/f.tgz": {}}}`:            "is a URL",
		`{"image": "a", "features": {"./none": {}}}`:                          "no such file",
		`{"image": "a", "features": {"r.test/f/link": {}}}`:                   `has "out"`,
		`{"image": "a", "features": {"r.test/f/up": {}}}`:                     `has "../up"`,
		`{"image": "a", "features": {"r.test/f/a": {}}}`:                      "wait for each other",
		`{"image": "a", "features": {"r.test/f/enum": {"size": "m"}}}`:        "must be one of [s l], not m",
		`{"image": "a", "features": {"r.test/f/enum": {"color": "red"}}}`:     "has no option color, only size",
		`{"image": "a", "features": {"r.test/f/enum": {"size": {"x": "y"}}}}`: "must be a text or true or false",
		`{"image": "a", "features": {"r.test/f/enum": 5}}`:                    "its options must be an object",
		`{"image": "a", "features": {"r.test/f/empty": {}}}`:                  "must have devcontainer-feature.json and install.sh",
	} {
		_, err := devcontainer.Read(t.Context(), project(t, config(text)), s.fetch)
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want an Invalid error that says %q", text, err, says)
		}
	}
	_, err := devcontainer.Read(t.Context(), project(t, config(`{"image": "a", "features": {"r.test/f/none": {}}}`)), s.fetch)
	if sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("a missing feature: %v", err)
	}
}
