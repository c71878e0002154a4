package devcontainer

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

var variable = regexp.MustCompile(`\$\{([^}:]+)(?::([^}]*))?\}`)

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
	replace := func(property, text string) string {
		return variable.ReplaceAllStringFunc(text, func(found string) string {
			parts := variable.FindStringSubmatch(found)
			name, value := parts[1], parts[2]
			if text, is := known[name]; is {
				return text
			}
			switch {
			case name == "containerEnv":
				return found // the build expands it
			case name == "localEnv" && strings.Contains(value, ":"): // with a default
				_, fallback, _ := strings.Cut(value, ":")
				return fallback
			}
			failed = fmt.Errorf("%s has %s, which is not known here: variables of this machine are not read. Set the value, "+
				"or for localEnv a default such as ${localEnv:NAME:value}", property, found)
			return found
		})
	}
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
			for j := range (*commands)[i] {
				(*commands)[i][j] = replace(property, (*commands)[i][j])
			}
		}
	}
	return failed
}
