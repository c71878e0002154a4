// Package engine represents one Docker Engine: its requests with their deadlines, retries and errors, its identity and
// clock, and the operations on containers, volumes and images that several packages of the driver need. It knows no
// rules of sandboxes.
package engine

import (
	"log/slog"
	"runtime"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
)

// Config configures an Engine.
type Config struct {
	// Logger receives warnings about the engine; nil discards them.
	Logger *slog.Logger
	// Calls limits concurrent requests, except those that hang; 0 means twice the number of CPUs.
	Calls int
	// Logins has the credentials for the registries of images; nil means none.
	Logins Logins
}

// Engine is one Docker Engine.
type Engine struct {
	// API is the client. Requests go through Do or Fetch.
	API *dockerapi.Client
	// Log receives warnings about the engine.
	Log *slog.Logger
	// Witnesses distinguish the engine from its clones.
	Witnesses *Witnesses

	slots  *slots
	warned sync.Once
	logins Logins

	mu       sync.Mutex             // guards what follows
	programs map[string]Program     // by engine
	clocks   map[string]engineClock // by engine
}

// New returns the engine of a client. It does not connect. The caller closes the client.
func New(api *dockerapi.Client, cfg Config) *Engine {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Calls == 0 {
		cfg.Calls = 2 * runtime.NumCPU()
	}
	e := &Engine{
		API: api, Log: cfg.Logger, slots: newSlots(cfg.Calls), logins: cfg.Logins,
		programs: make(map[string]Program), clocks: make(map[string]engineClock),
	}
	e.Witnesses = &Witnesses{engine: e, numbers: make(map[witnessed][]int64)}
	return e
}
