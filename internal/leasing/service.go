package leasing

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/archives"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/billing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/commands"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/companions"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/egresslog"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/environments"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/files"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/orphans"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/processes"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/secrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sessions"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshots"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/tools"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/warmpool"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config configures a service. Store and one executor are required.
type Config struct {
	Store     *ledger.Store
	Executors []driver.Executor
	// PriceBooks apply to usage that begins from now on. A backend without one is free.
	PriceBooks map[sandbox.Backend]sandbox.PriceBook
	// Objects stores snapshots of /data, and output. Without it, environments cannot keep snapshots.
	Objects ObjectStore
	// KeptOutput limits the kept output.
	KeptOutput output.Bounds
	// Host says which variables and paths of this machine sandboxes may use; nil allows none.
	Host *host.Host
	// Mirrors fetches Git repositories for workspaces, and archives; nil allows none.
	Mirrors *gitmirror.Store
	// Keys encrypt secrets; nil refuses secrets.
	Keys *seal.Keys
	// IDs issues sandbox ids and claims; nil means sandbox.RandomIDs.
	IDs     sandbox.IDs
	Logger  *slog.Logger // nil discards
	Version string
	// Observer is called for each step of this process; nil: none.
	Observer lifecycle.Observer
	// LLMObserver is called for each model call that this process records; nil: none.
	LLMObserver llm.Observer
}

// Service is the lease service in process. It is safe for concurrent use, by any number of
// services on one ledger.
type Service struct {
	*lifecycle.Core
	// The parts implement requests about environments, and about what is in sandboxes.
	service.Environments
	service.Execs
	service.Sessions
	service.Processes
	service.Companions
	service.Connector
	service.Files
	service.Workspaces
	service.Snapshots

	store        *ledger.Store
	books        map[sandbox.Backend]sandbox.PriceBook
	now          func() time.Time
	ids          sandbox.IDs
	log          *slog.Logger
	version      string
	billing      *billing.Service
	retention    *retention.Service
	egress       *egresslog.Collector
	orphans      *orphans.Service
	secrets      *secrets.Service
	llm          *llm.Service
	pools        *warmpool.Service
	snapshots    *snapshots.Service
	workspace    *workspace.Service
	archives     *archives.Service
	outputs      *output.Service
	sessions     *sessions.Service
	commands     *commands.Service
	processes    *processes.Service
	companions   *companions.Service
	environments *environments.Service
	receipts     *receipts
	// unmetered logs once for each backend that its usage is not compared.
	unmetered map[sandbox.Backend]*sync.Once
}

var _ service.Service = (*Service)(nil)

// New creates a service. It owns neither the store nor the executors.
func New(c Config) (*Service, error) {
	if c.Store == nil || len(c.Executors) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "leasing: a store and at least one executor are required")
	}
	if c.IDs == nil {
		c.IDs = sandbox.RandomIDs
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	books := make(map[sandbox.Backend]sandbox.PriceBook)
	unmetered := make(map[sandbox.Backend]*sync.Once)
	for _, x := range c.Executors {
		books[x.Backend()], unmetered[x.Backend()] = pricing.Free(), &sync.Once{}
	}
	maps.Copy(books, c.PriceBooks)
	own, err := lifecycle.New(lifecycle.Config{Store: c.Store, Executors: c.Executors, PriceBooks: books, Host: c.Host,
		IDs: c.IDs, Log: c.Logger, Observer: c.Observer, Version: c.Version})
	if err != nil {
		return nil, err
	}
	e := &Service{Core: own, store: c.Store, books: books, now: c.Store.Now, ids: c.IDs, log: c.Logger,
		version: c.Version, unmetered: unmetered}
	e.addParts(c)
	e.receipts = &receipts{service: e, arrivals: make(chan *arrival)}
	e.Start(e.hooksOfParts())
	e.Background(e.receipts.run)
	return e, nil
}

// addParts creates the parts of the service.
func (v *Service) addParts(c Config) {
	v.egress = egresslog.New(c.Store)
	v.orphans = orphans.New(c.Store, c.Logger)
	v.retention = retention.New(c.Store, endOldRetentions, output.Objects)
	v.billing = billing.New(billing.Config{
		Store: c.Store, Books: v.books, End: v.End, Measure: v.Sampler.Measure, Log: c.Logger,
	})
	v.secrets = secrets.New(c.Store, c.Keys)
	v.llm = llm.New(llm.Config{
		Store: c.Store, Keys: v.secrets, Budgets: v.billing, Observer: c.LLMObserver, Log: c.Logger,
	})
	v.pools = warmpool.New(warmpool.Config{
		Store: c.Store, NewSandbox: v.newSandbox, End: v.End, Spent: billing.IsSpent,
	})
	v.snapshots = snapshots.New(snapshots.Config{Core: v.Core, Ledger: c.Store, Objects: c.Objects, Life: v.Life(),
		Uses: v.HoldsFor, Log: c.Logger})
	v.archives = archives.New(archives.Config{Core: v.Core, Secrets: v.secrets, Store: c.Mirrors, Life: v.Life(),
		Log: c.Logger})
	v.outputs = output.New(output.Config{Ledger: c.Store, Objects: c.Objects, Bounds: c.KeptOutput})
	v.workspace = workspace.New(workspace.Config{Core: v.Core, Store: c.Store, Secrets: v.secrets, Mirrors: c.Mirrors,
		Outputs: v.outputs, Life: v.Life(), Log: c.Logger})
	v.sessions = sessions.New(sessions.Config{Store: c.Store, Keys: c.Keys, IDs: c.IDs, Life: v.Life(), Log: c.Logger,
		Cancel: func(ctx context.Context, r sandbox.ExecRef) (sandbox.Exec, error) {
			return v.commands.CancelExec(ctx, r)
		}})
	v.commands = commands.New(commands.Config{Core: v.Core, Store: c.Store, IDs: c.IDs, Log: c.Logger,
		Outputs: v.outputs, Sessions: v.sessions})
	v.processes = processes.New(processes.Config{Core: v.Core, Store: c.Store, IDs: c.IDs, Log: c.Logger})
	v.companions = companions.New(companions.Config{Core: v.Core, Store: c.Store, Secrets: v.secrets,
		Log: c.Logger})
	v.environments = environments.New(environments.Config{Core: v.Core, Store: c.Store, IDs: c.IDs,
		Checkers: []environments.Checker{v.snapshots, v.workspace, v.archives}, Host: c.Host, Secrets: v.secrets,
		LLM: v.llm, Billing: v.billing, Pools: v.pools, Log: c.Logger})
	v.Environments, v.Connector = v.environments, v.processes
	v.Execs, v.Sessions, v.Files = v.commands, v.sessions, files.New(v.Core)
	v.Processes, v.Companions = v.processes, v.companions
	v.Workspaces, v.Snapshots = v.workspace, v.snapshots
}

// hooksOfParts returns the hooks of the parts, in call order: /data is restored and the workspace written before
// secrets arrive, and commands run last.
func (v *Service) hooksOfParts() lifecycle.Hooks {
	return lifecycle.Hooks{
		Planners:     []lifecycle.Planner{v.snapshots, v.secrets, v.companions},
		Admitters:    []lifecycle.Admitter{v.snapshots},
		Actors:       []lifecycle.Actor{v.snapshots, v.companions},
		Initializers: []lifecycle.Initializer{v.companions, v.commands},
		Preparers: []lifecycle.Preparer{
			tools.Checker{}, v.snapshots, v.workspace, v.archives, v.secrets, v.llm, v.companions, v.processes, v.commands,
		},
		Settlers:    []lifecycle.Settler{v.pools, v.snapshots, v.commands, v.processes},
		StepFailers: []lifecycle.StepFailer{v},
		Failers:     []lifecycle.Failer{v.pools, v.companions},
		Finishers:   []lifecycle.Finisher{v.processes},
		Vanishers:   []lifecycle.Vanisher{v.snapshots},
		Starters:    []lifecycle.Starter{v.secrets, v.companions},
		Watchers:    []lifecycle.Watcher{v.companions},
		Stoppers:    []lifecycle.Stopper{v.processes},
		Enders:      []lifecycle.Ender{v.processes},
		Leavers:     []lifecycle.Leaver{v.workspace},
		Waiters:     []lifecycle.Waiter{v.snapshots},
		Extenders:   []lifecycle.Extender{v.commands, v.processes},
	}
}

// Ledger implements service.Reports.
func (v *Service) Ledger(ctx context.Context) (sandbox.LedgerInfo, error) {
	info := sandbox.LedgerInfo{ID: v.store.ID(), Version: v.version, PriceBooks: v.books}
	err := v.store.Read(ctx, func(tx *ledger.Tx) error {
		feed, err := tx.Feed()
		if err != nil {
			return err
		}
		since, err := accounting.In(tx).DetailSince()
		info.LastEventID, info.PurgedEventID, info.DetailSince = feed.Last, feed.Purged, since.Time()
		return err
	})
	if err != nil {
		return sandbox.LedgerInfo{}, err
	}
	return info, nil
}
