package docker

import (
	"cmp"
	"io"
	"os"
	"path/filepath"

	"github.com/docker/cli/cli/config"
	dcontext "github.com/docker/cli/cli/context"
	"github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"
	"github.com/docker/docker/client"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// defaultContext is the docker CLI's name for "no context".
const defaultContext = "default"

// NewClient returns a client of the engine that cfg names, for work that is not about sandboxes.
// It does not connect. Errors: Invalid, when the address or context cannot be used.
func NewClient(cfg Config) (*client.Client, error) {
	opts, err := clientOptions(cfg)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "docker: find the engine: %w", err)
	}
	api, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "docker: set up the client: %w", err)
	}
	return api, nil
}

// clientOptions finds the engine in the order that the docker CLI has, after cfg.
func clientOptions(cfg Config) ([]client.Opt, error) {
	if cfg.Host == "" {
		name := cfg.Context
		if name == "" && os.Getenv(client.EnvOverrideHost) == "" {
			name = cmp.Or(os.Getenv("DOCKER_CONTEXT"), config.LoadDefaultConfigFile(io.Discard).CurrentContext)
		}
		if name != "" && name != defaultContext {
			return contextOptions(name)
		}
	}
	ep := docker.Endpoint{EndpointMeta: docker.EndpointMeta{
		Host: cmp.Or(cfg.Host, os.Getenv(client.EnvOverrideHost), client.DefaultDockerHost),
	}}
	if dir := os.Getenv(client.EnvOverrideCertPath); dir != "" {
		tls, err := dcontext.TLSDataFromFiles(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
		if err != nil {
			return nil, err
		}
		ep.TLSData, ep.SkipTLSVerify = tls, os.Getenv(client.EnvTLSVerify) == ""
	}
	return ep.ClientOpts()
}

// contextOptions reads a context of the docker CLI; with ssh, it runs the ssh program.
func contextOptions(name string) ([]client.Opt, error) {
	contexts := store.New(filepath.Join(config.Dir(), "contexts"), store.NewConfig(
		func() any { return &map[string]any{} },
		store.EndpointTypeGetter(docker.DockerEndpoint, func() any { return &docker.EndpointMeta{} }),
	))
	meta, err := contexts.GetMetadata(name)
	if err != nil {
		return nil, err
	}
	endpoint, err := docker.EndpointFromContext(meta)
	if err != nil {
		return nil, err
	}
	ep, err := docker.WithTLSData(contexts, name, endpoint)
	if err != nil {
		return nil, err
	}
	return ep.ClientOpts()
}
