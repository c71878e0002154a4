package devcontainer

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var variable = regexp.MustCompile(`\$\{([^}:]+)(?::([^}]*))?\}`)

// ofThisMachine are the variables of devcontainer.json that depend on the machine of the build.
var ofThisMachine = []string{"env", "localEnv", "localWorkspaceFolder", "devcontainerId"}

// substitute replaces the variables in the image, the build arguments, the environment and the commands. dir is the
// directory of the file.
func (c *config) substitute(dir string) error {
	base := filepath.Base(dir)
	if base == ".devcontainer" {
		base = filepath.Base(filepath.Dir(dir))
	}
	known := map[string]string{
		"containerWorkspaceFolder":         workspace,
		"containerWorkspaceFolderBasename": strings.TrimPrefix(workspace, "/"),
		"localWorkspaceFolderBasename":     base,
	}
	var failed error
	replaceIn := func(property, text string, command []string) string {
		return variable.ReplaceAllStringFunc(text, func(found string) string {
			parts := variable.FindStringSubmatch(found)
			name, value := parts[1], parts[2]
			if text, is := known[name]; is {
				return text
			}
			switch {
			case name == "containerEnv" && isShell(command):
				return "${" + strings.Replace(value, ":", ":-", 1) + "}"
			case name == "containerEnv" && command != nil:
				failed = fmt.Errorf("%s has %s in a list, which no shell expands: write the command as one text", property, found)
				return found
			case name == "containerEnv":
				return found // the build expands it
			case name == "localEnv" && strings.Contains(value, ":"): // with a default
				_, fallback, _ := strings.Cut(value, ":")
				return fallback
			case command != nil && !slices.Contains(ofThisMachine, name):
				return found // it belongs to the command
			}
			failed = fmt.Errorf("%s has %s, which is not known here: variables of this machine are not read. Set the value, "+
				"or for localEnv a default such as ${localEnv:NAME:value}", property, found)
			return found
		})
	}
	replace := func(property, text string) string { return replaceIn(property, text, nil) }
	c.Image = replace("image", c.Image)
	for name, text := range c.Build.Args {
		c.Build.Args[name] = replace("build.args."+name, text)
	}
	for name, text := range c.ContainerEnv {
		c.ContainerEnv[name] = replace("containerEnv."+name, text)
	}
	for name, text := range c.RemoteEnv {
		if text != nil {
			*text = replace("remoteEnv."+name, *text)
		}
	}
	for property, commands := range c.hooks() {
		for i := range *commands {
			command := (*commands)[i]
			for j := range command {
				command[j] = replaceIn(property, command[j], command)
			}
		}
	}
	return failed
}
