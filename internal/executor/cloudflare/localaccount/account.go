// Package localaccount is a Cloudflare account on the local machine. localapi has its API and its registry. Its
// deployments run in miniflare, with containers on the local Docker Engine, which loads images from the registry.
// Containers are called workerd-NAME-Sandbox-…, with the deployment's name, and are removed with the account.
//
// It cannot prove Cloudflare's own behavior: capacity, instance sizes, rollouts, when a Durable Object is evicted from
// memory, and whether a container without internet access really has none.
package localaccount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi/miniflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ID is the id of every local account.
const ID = "0123456789abcdef0123456789abcdef"

// Config configures an account.
type Config struct {
	// Worker is the folder of the Worker's sources, with its packages installed.
	Worker string
	// State is the folder that Durable Objects, databases and buckets are kept in while the account runs. The API itself
	// keeps nothing: a restarted account is empty, whatever the folder contains.
	State string
	// Listen is the API's address; "" means a free port of 127.0.0.1.
	Listen string
	// Outside is the address of a server that stands in for the Internet: requests of Workers go there, with the header
	// X-Outside-Origin. "" means the Internet.
	Outside string
	// Log receives the runtime's messages; nil means standard error.
	Log io.Writer
}

// Account is a running account.
type Account struct {
	// URL is the API's address, for deploy.Config.
	URL   string
	Token sandbox.Secret
	API   *localapi.Server

	images  *images
	runtime *miniflare.Runtime
	server  *http.Server
	served  chan error
}

// Start runs an account on the Docker Engine that the environment names. Close ends it.
func Start(ctx context.Context, cfg Config) (a *Account, err error) {
	engine, err := dockerapi.Connect("", "")
	if err != nil {
		return nil, fmt.Errorf("run a Cloudflare account: %w", err)
	}
	defer func() {
		if err != nil {
			_ = engine.Close() // only closes idle connections
		}
	}()
	if err := CheckEngine(ctx, engine); err != nil {
		return nil, fmt.Errorf("run a Cloudflare account: %w", err)
	}
	sidecar, err := Sidecar(ctx, engine)
	if err != nil {
		return nil, fmt.Errorf("run a Cloudflare account: %w", err)
	}
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("run a Cloudflare account: %w", err)
	}
	images := newImages(engine, listener.Addr().String())
	workers, err := miniflare.Start(miniflare.Config{
		Worker:  cfg.Worker,
		State:   cfg.State,
		Engine:  engine.DaemonHost(),
		Sidecar: sidecar,
		Outside: cfg.Outside,
		Image:   images.ofReference,
		Log:     cfg.Log,
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	a = &Account{
		URL: "http://" + listener.Addr().String() + "/client/v4", Token: sandbox.Secret(sandbox.RandomIDs(40)),
		images: images, runtime: workers, served: make(chan error, 1),
	}
	a.API = localapi.New(localapi.Config{Token: string(a.Token), Runtime: workers})
	images.api = a.API
	a.server = &http.Server{Handler: a.API, ReadHeaderTimeout: time.Minute}
	go func() { a.served <- a.server.Serve(listener) }() // ends with Close
	return a, nil
}

// Close ends the account with everything that runs on it.
func (a *Account) Close() error {
	err := a.server.Close()
	if served := <-a.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if ended := a.runtime.Close(); ended != nil {
		err = errors.Join(err, fmt.Errorf("the program that runs Workers ended with %w", ended))
	}
	return errors.Join(err, a.images.close())
}

// CheckEngine returns why an engine cannot run containers for the Workers runtime, which needs the gateway of the
// engine's default network.
func CheckEngine(ctx context.Context, engine *dockerapi.Client) error {
	bridge, err := engine.NetworkInspect(ctx, "bridge", dockerapi.NetworkInspectOptions{})
	if err != nil {
		return fmt.Errorf("look at the Docker Engine's default network: %w", err)
	}
	for _, c := range bridge.IPAM.Config {
		if c.Gateway != "" {
			return nil
		}
	}
	return errors.New("the Docker Engine does not tell the gateway of its default network: start it with " +
		"--bip 172.17.0.1/16")
}
