// Package docker runs sandboxes as containers of one Docker Engine: 20.10 and newer, local or remote. This
// program's own file system holds no sandbox data.
//
//	environment   template image and guest volume     Provision makes them; a name finds them again
//	              gateway and its volume          if the network is restricted
//	ledger        its witness, an empty volume    replaced with each generation of a lease
//	              relay and its volume            carries connections to sandboxes
//	sandbox       container, volumes for /workspace and /data
//	              network                         if the network is full
//	companion     container and volumes like those of its sandbox, in its network
//
// The template image holds the guest and the initial /workspace and /data. A populator is a container of it
// that is never started. When the engine creates a populator, it copies that content into the mounted volumes.
// This fills the guest volume and prepares /workspace in one request and without a process.
//
// Each of its packages has one subject:
//
//	engine      requests, identity, clock, images, volumes
//	objects     names and labels
//	confine     seccomp, limits
//	containers  finds and observes containers
//	templates   fill volumes
//	networks    bridges of sandboxes with network full
//	gateways    how restricted sandboxes reach hosts and models
//	relays      carry connections to sandboxes
//	channels    sessions with sandboxes
//	audit       checks containers against rules
//	runtimes    proves that a container runtime runs sandboxes
//	accounts    names for the users of sandboxes
//	dependents  finds and removes what sandboxes and environments left
package docker

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/channels"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/containers"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dependents"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/gateways"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/networks"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/relays"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/runtimes"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/templates"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/helper"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config selects an engine and its settings.
type Config struct {
	// Host is the engine's address (unix://, tcp://, ssh://). If empty: Context, then DOCKER_HOST,
	// DOCKER_CONTEXT, the docker CLI's current context, the default socket.
	Host string
	// Context names a context of the docker CLI.
	Context string
	// Logger receives warnings about the engine; nil discards them.
	Logger *slog.Logger
	// Calls limits concurrent requests, except those that hang; 0 means twice the number of CPUs. More requests slow an
	// engine down.
	Calls int
	// Gateway configures the gateways of restricted networks.
	Gateway gateways.Config
	// Logins has the credentials for the registries of images; nil means none.
	Logins engine.Logins
	// NetworkPool provides a /28 subnet for each sandbox with network full; the zero value means
	// networks.DefaultPool. The range must not be in use on the engine's host or on networks that the host can
	// reach.
	NetworkPool netip.Prefix
}

// Executor drives one Docker Engine. It spawns, assigns, sleeps, wakes and kills sandboxes. Its parts do the rest.
type Executor struct {
	helper.Guests // runs commands and moves files, over channels
	audit.Auditor
	containers.Observer
	*dependents.Cleaner
	gateways.Broker
	*engine.Witnesses

	engine     *engine.Engine
	containers *containers.Containers
	templates  *templates.Templates
	networks   *networks.Networks
	gateways   *gateways.Gateways
	relays     *relays.Relays
	channels   *channels.Channels
	runtimes   *runtimes.Prover
}

var (
	_ driver.Executor         = (*Executor)(nil)
	_ driver.Auditor          = (*Executor)(nil)
	_ driver.CompanionHost    = (*Executor)(nil)
	_ driver.ContainerHost    = (*Executor)(nil)
	_ driver.CredentialBroker = (*Executor)(nil)
	_ driver.DiskReader       = (*Executor)(nil)
	_ driver.EgressLogger     = (*Executor)(nil)
	_ driver.LLMBroker        = (*Executor)(nil)
	_ driver.Witnesser        = (*Executor)(nil)
)

// NewClient returns a client of the engine that cfg names, for work unrelated to sandboxes. It does not connect.
// Errors: as for dockerapi.Connect.
func NewClient(cfg Config) (*dockerapi.Client, error) {
	return dockerapi.Connect(cfg.Host, cfg.Context)
}

// Address returns the address of the engine that cfg names. Errors: Invalid if the context is invalid.
func Address(cfg Config) (string, error) { return dockerapi.Address(cfg.Host, cfg.Context) }

// New returns an executor for the engine that cfg names. It does not connect. Errors: Invalid if the address, the
// context, the pool or a gateway setting is invalid.
func New(cfg Config) (*Executor, error) {
	pool, err := networks.CheckPool(cfg.NetworkPool)
	if err != nil {
		return nil, err
	}
	if err := cfg.Gateway.Validate(); err != nil {
		return nil, err
	}
	api, err := NewClient(cfg)
	if err != nil {
		return nil, err
	}
	eng := engine.New(api, engine.Config{Logger: cfg.Logger, Calls: cfg.Calls, Logins: cfg.Logins})
	e := &Executor{
		engine: eng, containers: containers.New(eng), templates: templates.New(eng), networks: networks.New(eng, pool),
		relays: relays.New(eng), Auditor: audit.New(eng), Witnesses: eng.Witnesses,
	}
	e.gateways = gateways.New(eng, cfg.Gateway, func(ctx context.Context, ref driver.EnvironmentRef) error {
		return e.relays.Remove(ctx, ref.LedgerID, ref.Instance)
	})
	e.channels = channels.New(eng.Log, e.containers, e.relays)
	e.runtimes = runtimes.New(eng, e.containers, e)
	e.Observer, e.Broker = e.containers.Observer(), e.gateways.Broker()
	e.Cleaner = dependents.New(eng, e.networks, e.relays, e.channels)
	e.Guests = helper.New(sandbox.Docker, e.channels.Call).WithVerifiers()
	return e, nil
}

// Close releases the connections to the engine, to gateways, to relays and to sandboxes.
func (e *Executor) Close() error {
	e.channels.Close()
	e.relays.Close()
	e.gateways.Close()
	return e.engine.API.Close()
}

// Backend implements driver.Executor.
func (e *Executor) Backend() sandbox.Backend { return sandbox.Docker }

// Instance implements driver.Executor: it returns the engine's own id.
func (e *Executor) Instance(ctx context.Context) (string, error) {
	info, err := e.engine.Info(ctx)
	return info.ID, err
}

// Capabilities implements driver.Executor. It does not promise disk limits: they need a storage driver that few engines
// have.
func (e *Executor) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Pause:       true,
		PIDLimit:    true,
		CPUTime:     true,
		Exec:        true,
		Channel:     true,
		Verifier:    true,
		FullNetwork: true,
		Gateway:     true,
		WarmPool:    true,
		Confined:    true,
		Disk:        true,
		Companions:  true,
	}
}
