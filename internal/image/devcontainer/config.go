// Package devcontainer turns a devcontainer.json (containers.dev, read 2026-11-26) into a build of an image.
//
// It supports what makes the image: image or Dockerfile, features, variables, and the commands that run once the
// container exists. A property that changes how a container starts (runArgs, privileged, mounts) has no effect and
// leads to a Note.
package devcontainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/tailscale/hujson"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxFile limits a devcontainer.json, in bytes.
const maxFile = 1 << 20

// config has the fields of a devcontainer.json that affect the image.
type config struct {
	Image      string          `json:"image"`
	Build      build           `json:"build"`
	DockerFile string          `json:"dockerFile"` // the older form of build.dockerfile
	Context    string          `json:"context"`
	Features   map[string]any  `json:"features"`
	Order      []string        `json:"overrideFeatureInstallOrder"`
	Compose    json.RawMessage `json:"dockerComposeFile"`

	ContainerEnv  map[string]string  `json:"containerEnv"`
	RemoteEnv     map[string]*string `json:"remoteEnv"`
	ContainerUser string             `json:"containerUser"`
	RemoteUser    string             `json:"remoteUser"`

	lifecycle
	// The rest leads to notes.
	Privileged   bool     `json:"privileged"`
	CapAdd       []string `json:"capAdd"`
	SecurityOpt  []string `json:"securityOpt"`
	RunArgs      []string `json:"runArgs"`
	Mounts       []any    `json:"mounts"`
	Folder       string   `json:"workspaceFolder"`
	Initialize   command  `json:"initializeCommand"`
	PostAttach   command  `json:"postAttachCommand"`
	PostStarting command  `json:"postStartCommand"`
}

// build is the property build.
type build struct {
	Dockerfile string            `json:"dockerfile"`
	Context    string            `json:"context"`
	Args       map[string]string `json:"args"`
	Target     string            `json:"target"`
	CacheFrom  stringOrList      `json:"cacheFrom"`
}

// stringOrList is a list that may be written as its only element.
type stringOrList []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *stringOrList) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = stringOrList{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// ignored are properties that say how an editor or a cloud service works with the container.
var ignored = []string{
	"$schema", "name", "customizations", "extensions", "settings", "devPort", "forwardPorts", "portsAttributes",
	"otherPortsAttributes", "appPort", "shutdownAction", "overrideCommand", "init", "updateRemoteUserUID", "userEnvProbe",
	"waitFor", "hostRequirements", "workspaceMount", "secrets", "service", "runServices",
}

// read reads and checks a devcontainer.json. Errors: Invalid.
func read(file string) (c config, notes []Note, err error) {
	invalid := func(format string, args ...any) error {
		return sandbox.Errorf(sandbox.Invalid, "devcontainer file %s: "+format, append([]any{file}, args...)...)
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return c, nil, invalid("%w", err)
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return c, nil, invalid("must be a file of at most %d bytes", maxFile)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return c, nil, invalid("%w", err)
	}
	plain, err := hujson.Standardize(text)
	if err != nil {
		return c, nil, invalid("is not JSON with comments: %w", err)
	}
	if err := json.Unmarshal(plain, &c); err != nil {
		return c, nil, invalid("%w", err)
	}
	if unknown := unknownProperties(plain); len(unknown) > 0 {
		notes = append(notes, Note{strings.Join(unknown, ", "), "is not known, and has no effect: check its spelling"})
	}
	if c.DockerFile != "" && c.Build.Dockerfile == "" {
		c.Build.Dockerfile, c.Build.Context = c.DockerFile, c.Context
	}
	switch {
	case len(c.Compose) > 0:
		return c, nil, invalid("has dockerComposeFile: several containers are companions of an environment; name one " +
			"image or Dockerfile here")
	case c.Image == "" && c.Build.Dockerfile == "":
		return c, nil, invalid("must have image or build.dockerfile")
	case c.Image != "" && c.Build.Dockerfile != "":
		return c, nil, invalid("has both image and build.dockerfile: leave one of them out")
	}
	if err := c.substitute(filepath.Dir(file)); err != nil {
		return c, nil, invalid("%w", err)
	}
	if err := c.checkLines(); err != nil {
		return c, nil, invalid("%w", err)
	}
	return c, append(notes, c.notes()...), nil
}

// checkLines refuses values that a line of a Dockerfile cannot hold: they would become other instructions.
func (c *config) checkLines() error {
	for name, value := range map[string]string{
		"image": c.Image, "containerUser": c.ContainerUser, "remoteUser": c.RemoteUser,
	} {
		if strings.ContainsFunc(value, unicode.IsSpace) {
			return fmt.Errorf("%s must be one word, not %q", name, value)
		}
	}
	return errors.Join(checkEnv("containerEnv", c.ContainerEnv), checkEnv("remoteEnv", c.remoteEnv()))
}

// remoteEnv returns the variables to set. null removes a variable, which a Dockerfile cannot do.
func (c *config) remoteEnv() map[string]string {
	set := make(map[string]string)
	for name, value := range c.RemoteEnv {
		if value != nil {
			set[name] = *value
		}
	}
	return set
}

var envName = regexp.MustCompile(`^[^\s="'\\$]+$`)

// checkEnv refuses variables that an ENV instruction cannot set.
func checkEnv(property string, env map[string]string) error {
	for name, value := range env {
		switch {
		case !envName.MatchString(name):
			return fmt.Errorf("%s has the invalid name %q", property, name)
		case strings.ContainsAny(value, "\r\n"):
			return fmt.Errorf("%s.%s must be one line: a Dockerfile sets it", property, name)
		}
	}
	return nil
}

// unknownProperties returns the properties that neither this program nor the specification knows.
func unknownProperties(plain []byte) []string {
	var all map[string]json.RawMessage
	if json.Unmarshal(plain, &all) != nil {
		return nil // not an object: reading the configuration has failed
	}
	for name := range all {
		lone, _ := json.Marshal(map[string]any{name: nil})
		d := json.NewDecoder(bytes.NewReader(lone))
		d.DisallowUnknownFields()
		if d.Decode(new(config)) == nil || slices.Contains(ignored, name) {
			delete(all, name)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Note says that a property of a devcontainer.json has no effect, or a different one, in a sandbox.
type Note struct{ Property, Text string }

func (n Note) String() string { return n.Property + " " + n.Text }

func (c *config) notes() (notes []Note) {
	note := func(applies bool, property, text string) {
		if applies {
			notes = append(notes, Note{property, text})
		}
	}
	const hardened = "has no effect: a sandbox stays confined as its environment's confinement says"
	note(c.Privileged, "privileged", hardened)
	note(len(c.CapAdd) > 0, "capAdd", hardened)
	note(len(c.SecurityOpt) > 0, "securityOpt", hardened)
	note(len(c.RunArgs) > 0, "runArgs", "has no effect: set the environment's resources, network and confinement")
	socket := slices.ContainsFunc(c.Mounts, func(m any) bool { return strings.Contains(fmt.Sprint(m), "docker.sock") })
	note(socket, "mounts", "names the Docker socket, which no sandbox gets: with it, code could leave its sandbox")
	note(len(c.Mounts) > 0 && !socket, "mounts", "has no effect: use mount and copy of the environment")
	note(c.RemoteUser != "" || c.ContainerUser != "", "remoteUser and containerUser",
		"are for the features only: code runs as the sandbox's own user, with /workspace as its home")
	note(c.Folder != "" && path.Clean(c.Folder) != workspace, "workspaceFolder",
		"has no effect: the directory is "+workspace)
	note(len(c.Initialize) > 0, "initializeCommand", "has no effect: it would run on this machine")
	note(len(c.PostAttach) > 0, "postAttachCommand", "has no effect: no editor attaches to a sandbox")
	note(len(c.PostStarting) > 0, "postStartCommand", "runs once in each sandbox, and not after each wake")
	return notes
}

// workspace is the directory in which sandboxes work.
const workspace = "/workspace"
