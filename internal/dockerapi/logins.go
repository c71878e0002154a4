package dockerapi

import (
	"context"
	"os"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/docker/api/types/registry"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// LoginFile is the path of a configuration file of the docker CLI, with the logins that `docker login` writes. Each use
// reads it again, so that a changed password needs no restart.
type LoginFile string

// Check checks that the file is readable. Errors: Invalid.
func (l LoginFile) Check() error {
	_, err := l.read()
	return err
}

func (l LoginFile) read() (*configfile.ConfigFile, error) {
	f, err := os.Open(string(l))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "read the logins for registries: %w", err)
	}
	defer func() { _ = f.Close() }() // the file was only read
	parsed, err := config.LoadFromReader(f)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "read the logins for registries in %s: %w", string(l), err)
	}
	return parsed, nil
}

// EngineAuth returns the X-Registry-Auth header with which an engine pulls an image, or "" without a login for the
// registry. The value is a secret. Errors: Invalid.
func (l LoginFile) EngineAuth(_ context.Context, ref string) (string, error) {
	parsed, err := name.ParseReference(ref)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "%q is not an image reference", ref)
	}
	host := parsed.Context().RegistryStr()
	if host == name.DefaultRegistry {
		host = "https://index.docker.io/v1/" // Docker Hub's name in the file
	}
	file, err := l.read()
	if err != nil {
		return "", err
	}
	found, err := file.GetAuthConfig(host)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "find the login for registry %s: %w", host, err)
	}
	if found.Username == "" && found.IdentityToken == "" && found.RegistryToken == "" && found.Auth == "" {
		return "", nil
	}
	return registry.EncodeAuthConfig(registry.AuthConfig{
		Username: found.Username, Password: found.Password, Auth: found.Auth, ServerAddress: found.ServerAddress,
		IdentityToken: found.IdentityToken, RegistryToken: found.RegistryToken,
	})
}
