// Package docker runs sandboxes as containers of one Docker Engine: 20.10 and newer, local or
// remote. Nothing of a sandbox lies on this program's own file system.
//
//	environment   seed image and guest volume     made at Provision, by name found again
//	              gateway and its volume          where the network is restricted
//	ledger        its witness, an empty volume    replaced with each generation of a lease
//	              relay and its volume            carries connections to sandboxes
//	sandbox       container, volumes for /workspace and /data
//	              network                         where the network is full
//
// The seed image holds the guest and what /workspace and /data begin with. A container made of it
// and never started, a carrier, has the engine copy that into the volumes that are mounted on it:
// this fills the guest volume, and gives /workspace to the sandbox's user, without any process
// running and within one request.
package docker

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"runtime"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/helper"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config says which engine to use.
type Config struct {
	// Host is the engine's address (unix://, tcp://, ssh://). When empty: Context, then
	// DOCKER_HOST, DOCKER_CONTEXT, the docker CLI's current context, the default socket.
	Host string
	// Context names a context of the docker CLI.
	Context string
	// Logger receives warnings about the engine; nil discards them.
	Logger *slog.Logger
	// Calls is how many requests may be under way at once, beside those that hang; 0 means twice the number of
	// CPUs, beyond which an engine gets slower and not faster.
	Calls int
	// Gateway says how restricted sandboxes get out.
	Gateway Gateway
	// NetworkPool is where the subnets, a /28 each, of sandboxes with a full network come from; the zero
	// value means DefaultNetworkPool. It must not be in use on the engine's host or where that leads to.
	NetworkPool netip.Prefix
}

// Executor drives one Docker Engine.
type Executor struct {
	helper.Guests
	api    *dockerapi.Client
	log    *slog.Logger
	lanes  *lanes
	warned sync.Once

	channels *channels
	gateway  Gateway
	pool     netip.Prefix // of subnets
	// networking holds an element while a network is being made.
	networking chan struct{}

	mu       sync.Mutex                      // guards what follows
	programs map[string]program              // for each engine seen
	links    map[driver.EnvironmentRef]*link // to gateways
	relays   map[relayRef]*relayLink
	clocks   map[string]engineClock   // of each engine seen
	accounts map[string]imageAccounts // by the image's id
	// proved are the container runtimes that have run a sandbox's command.
	proved map[provedRuntime]bool
	// numbers are the witnesses that engines are known to have, in order; the last one must be there.
	numbers map[witnessed][]int64
}

var _ driver.Executor = (*Executor)(nil)

// NewClient returns a client of the engine that cfg names, for work that is not about sandboxes.
// It does not connect. Errors: as dockerapi.Connect.
func NewClient(cfg Config) (*dockerapi.Client, error) {
	return dockerapi.Connect(cfg.Host, cfg.Context)
}

// New returns an executor for the engine that cfg names. It does not connect.
// Errors: Invalid, when the address, the context, the pool or a setting of gateways cannot be used.
func New(cfg Config) (*Executor, error) {
	pool, err := checkPool(cfg.NetworkPool)
	if err != nil {
		return nil, err
	}
	if err := cfg.Gateway.validate(); err != nil {
		return nil, err
	}
	api, err := NewClient(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Calls == 0 {
		cfg.Calls = 2 * runtime.NumCPU()
	}
	e := &Executor{
		api: api, log: cfg.Logger, lanes: newLanes(cfg.Calls),
		gateway: cfg.Gateway, pool: pool, networking: make(chan struct{}, 1), programs: make(map[string]program),
		links: make(map[driver.EnvironmentRef]*link), relays: make(map[relayRef]*relayLink), clocks: make(map[string]engineClock), numbers: make(map[witnessed][]int64), accounts: make(map[string]imageAccounts),
		proved: make(map[provedRuntime]bool),
	}
	e.channels = newChannels(e.openChannel)
	e.Guests = helper.New(sandbox.Docker, e.help).WithVerifiers()
	return e, nil
}

// Close releases the connections to the engine, to gateways, to relays and to sandboxes.
func (e *Executor) Close() error {
	e.channels.close()
	e.mu.Lock()
	links, relays := maps.Clone(e.links), maps.Clone(e.relays)
	e.mu.Unlock()
	for r := range relays {
		e.leaveRelay(r)
	}
	for ref := range links {
		e.hangUp(ref)
	}
	return e.api.Close()
}

// Backend implements driver.Executor.
func (e *Executor) Backend() sandbox.Backend { return sandbox.Docker }

// Capabilities implements driver.Executor. Disk limits need a storage driver that few engines
// have, so they are not promised.
func (e *Executor) Capabilities() driver.Capabilities {
	return driver.Capabilities{Pause: true, PIDLimit: true, CPUTime: true, Exec: true, Channel: true, Verifier: true, FullNetwork: true, WarmPool: true, Confined: true, Disk: true}
}

func isCode(err error, code sandbox.Code) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.Code == code
}
