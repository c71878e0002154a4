package docker

import (
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// hostSchemes are the schemes of an engine's address.
var hostSchemes = []string{"unix", "tcp", "ssh", "npipe", "http", "https"}

// CheckHost rejects an invalid engine address. It does not connect. Errors: Invalid.
func CheckHost(host string) error {
	u, err := dockerapi.ParseHostURL(host)
	if err == nil && slices.Contains(hostSchemes, u.Scheme) && (u.Host != "" || strings.Trim(u.Path, "/") != "") {
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, "Docker host %q: write it as unix:///var/run/docker.sock, "+
		"tcp://host:2376 or ssh://user@host", host)
}

// LoginsIn returns the logins in a configuration file of the docker CLI. Errors: Invalid if it cannot be read.
func LoginsIn(file string) (engine.Logins, error) {
	logins := dockerapi.LoginFile(file)
	return logins, logins.Check()
}
