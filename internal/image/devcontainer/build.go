package devcontainer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// FilesDir is the directory of the build context that gets the files of features.
const FilesDir = ".devcontainer-features"

// Build is what a devcontainer.json says about its image.
type Build struct {
	// Context is the directory of the build context. Dockerfile is the text of the Dockerfile.
	Context, Dockerfile string
	Args                map[string]string
	CacheFrom           []string
	// Files must be added to the context.
	Files []File
	// PostStart are the commands to run once in each sandbox, in this order.
	PostStart [][]string
	// Notes list the properties that have no effect, or a different one, in a sandbox.
	Notes []Note
}

// Read reads a devcontainer.json. Errors: Invalid; those of fetch.
func Read(ctx context.Context, file string, fetch Fetch) (Build, error) {
	c, notes, err := read(file)
	if err != nil {
		return Build{}, err
	}
	dir := filepath.Dir(file)
	features, err := c.features(ctx, dir, fetch)
	if err != nil {
		return Build{}, err
	}
	b := Build{
		Context: filepath.Join(dir, filepath.FromSlash(c.Build.Context)), Args: c.Build.Args, CacheFrom: c.Build.CacheFrom,
		PostStart: c.postStart(features), Notes: notes,
	}
	text, stage := "FROM "+c.Image+" AS "+baseStage+"\n", baseStage
	if c.Image == "" {
		dockerfile := filepath.Join(dir, filepath.FromSlash(c.Build.Dockerfile))
		if text, stage, err = dockerfileOf(dockerfile, c.Build.Target); err != nil {
			return Build{}, err
		}
	}
	for i, f := range features {
		b.Notes = append(b.Notes, f.notes()...)
		if err := b.add(f, i, &c); err != nil {
			return Build{}, err
		}
	}
	b.Dockerfile = text + c.lastStage(stage, features)
	return b, nil
}

// baseStage is the name of the stage before the features, if it has no other name.
const baseStage = "devcontainer_base"

// dockerfileOf returns the text of a Dockerfile, and the name of the stage to continue from: the target or, without
// one, the last stage.
func dockerfileOf(file, target string) (text, stage string, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", "", sandbox.Errorf(sandbox.Invalid, "devcontainer: Dockerfile: %w", err)
	}
	text = strings.TrimRight(string(content), "\n") + "\n"
	if target != "" {
		return text, target, nil
	}
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return "", "", sandbox.Errorf(sandbox.Invalid, "devcontainer: Dockerfile %s: %w", file, err)
	}
	var last *parser.Node
	for _, n := range parsed.AST.Children {
		if strings.EqualFold(n.Value, "from") {
			last = n
		}
	}
	if last == nil {
		return "", "", sandbox.Errorf(sandbox.Invalid, "devcontainer: Dockerfile %s has no FROM", file)
	}
	var words []string
	for n := last.Next; n != nil; n = n.Next {
		words = append(words, n.Value)
	}
	if len(words) == 3 && strings.EqualFold(words[1], "as") {
		return text, words[2], nil
	}
	lines := strings.Split(text, "\n")
	lines[last.EndLine-1] = strings.TrimRight(lines[last.EndLine-1], " \t\r") + " AS " + baseStage
	return strings.Join(lines, "\n"), baseStage, nil
}

// add adds the files of a feature, and the variables of its installation.
func (b *Build) add(f *feature, n int, c *config) error {
	env, err := f.variables()
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "feature %s: %w", f.ref, err)
	}
	container := cmp.Or(c.ContainerUser, "root")
	remote := cmp.Or(c.RemoteUser, container)
	env["_CONTAINER_USER"], env["_REMOTE_USER"] = container, remote
	env["_CONTAINER_USER_HOME"], env["_REMOTE_USER_HOME"] = homeOf(container), homeOf(remote)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&text, "%s='%s'\n", name, strings.ReplaceAll(env[name], "'", `'\''`))
	}
	dir := path.Join(FilesDir, strconv.Itoa(n))
	for _, file := range f.files {
		b.Files = append(b.Files, File{path.Join(dir, file.Name), file.Mode, file.Content})
	}
	b.Files = append(b.Files, File{path.Join(dir, envFile), 0o644, []byte(text.String())})
	return nil
}

// envFile has the variables of a feature's installation.
const envFile = "devcontainer-features.env"

// homeOf returns the usual home directory of a user. The build cannot ask the image.
func homeOf(user string) string {
	if user == "root" || user == "0" {
		return "/root"
	}
	return "/home/" + user
}

// lastStage returns the part of the Dockerfile that installs the features and sets variables and user.
func (c *config) lastStage(from string, features []*feature) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("FROM %s AS devcontainer", from)
	if len(features) > 0 {
		line("USER 0:0") // an image may lack user names
	}
	for i, f := range features {
		setEnv(&b, f.ContainerEnv)
		line("COPY %s/%d/ /tmp/%s/%d/", FilesDir, i, FilesDir, i)
		line("RUN cd /tmp/%s/%d && chmod +x install.sh && set -a && . ./%s && set +a && ./install.sh && rm -rf /tmp/%s",
			FilesDir, i, envFile, FilesDir)
	}
	setEnv(&b, c.ContainerEnv)
	setEnv(&b, c.remoteEnv())
	if user := cmp.Or(c.ContainerUser, c.RemoteUser); user != "" {
		line("USER %s", user)
	}
	return b.String()
}

// plainDollar matches a dollar sign that does not begin ${NAME}.
var plainDollar = regexp.MustCompile(`\$([^{]|$)`)

// setEnv sets variables. ${containerEnv:NAME} and, in features, ${NAME} refer to variables of the image.
func setEnv(b *strings.Builder, env map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "${containerEnv:", "${").Replace(env[name])
		value = plainDollar.ReplaceAllString(value, `\$$$1`)
		fmt.Fprintf(b, "ENV %s=\"%s\"\n", name, value)
	}
}
