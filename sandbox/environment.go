package sandbox

import (
	"fmt"
	"slices"
	"time"
)

// EnvironmentType sets the default expiry conditions of an environment.
type EnvironmentType string

// The environment types.
const (
	TypeRPG    EnvironmentType = "rpg"
	TypeCatan  EnvironmentType = "catan"
	TypeCoding EnvironmentType = "coding"
	TypeCustom EnvironmentType = "custom"
)

// EnvironmentTypes lists the types in the order that documentation shows them.
var EnvironmentTypes = []EnvironmentType{TypeRPG, TypeCatan, TypeCoding, TypeCustom}

// DefaultExpiryConditions returns the default conditions that end leases in environments of a type.
func DefaultExpiryConditions(t EnvironmentType) []string {
	switch t {
	case TypeRPG:
		return []string{"agent.death", "game.finished", "campaign.ended"}
	case TypeCoding:
		return []string{"task.complete", "pr.merged"}
	default:
		return []string{"game.finished"}
	}
}

// Backend is the kind of system that runs sandboxes.
type Backend string

// The backends.
const (
	Docker     Backend = "docker"
	Cloudflare Backend = "cloudflare"
)

// SleepMode says how a sandbox sleeps.
type SleepMode string

// The sleep modes. Pause keeps processes and memory. Stop ends processes, frees memory and keeps /workspace.
const (
	SleepPause SleepMode = "pause"
	SleepStop  SleepMode = "stop"
)

// NetworkMode says what a sandbox may reach.
type NetworkMode string

// The network modes. Restricted is the default.
const (
	NetworkNone       NetworkMode = "none"
	NetworkRestricted NetworkMode = "restricted"
	NetworkFull       NetworkMode = "full"
)

// Defaults of leases. MaxLifetime always has a value, because renewals must not extend a lease forever.
const (
	DefaultTTL         = Duration(24 * time.Hour)
	DefaultSleepAfter  = Duration(5 * time.Minute)
	DefaultMaxLifetime = Duration(240 * time.Hour)
	DefaultExecTimeout = Duration(120 * time.Second)
	MaxExecTimeout     = Duration(24 * time.Hour)
	DefaultPostMortem  = Duration(time.Hour)
	MaxPostMortem      = Duration(720 * time.Hour)
)

// EnvironmentSpec is the configuration of an environment. Zero values take the defaults.
type EnvironmentSpec struct {
	Type             EnvironmentType   `json:"type" enum:"rpg,catan,coding,custom" doc:"Sets the default expiry conditions."`
	Backend          Backend           `json:"backend" enum:"docker,cloudflare"`
	Image            string            `json:"image" doc:"Image reference, pinned by digest or id if possible."`
	ImagePull        ImagePull         `json:"image_pull,omitempty" enum:"never,missing" doc:"missing: the engine pulls images that it does not have, those of companions too. Docker only. Default never."`
	Resources        Resources         `json:"resources,omitzero" doc:"Size of a sandbox. Default 512 MiB, 500 thousandths of a core, 256 processes and 10240 MB, on Cloudflare those of basic. An environment that has the former default of 4096 MiB or 2000 thousandths keeps it where a change leaves it out."`
	Network          NetworkMode       `json:"network" enum:"none,restricted,full"`
	Egress           *Egress           `json:"egress,omitempty" doc:"What sandboxes may reach in a restricted network. Default: github.com, api.github.com, raw.githubusercontent.com and cdn.jsdelivr.net."`
	TTL              Duration          `json:"ttl,omitempty" doc:"A lease ends this long after its last activity. Default 24h."`
	MaxLifetime      Duration          `json:"max_lifetime,omitempty" doc:"A lease ends this long after it began, even if it is renewed. Default 240h."`
	SleepAfter       *Duration         `json:"sleep_after,omitempty" doc:"An idle sandbox sleeps after this time; 0s disables sleep. Default 5m."`
	SleepMode        SleepMode         `json:"sleep_mode,omitempty" enum:"pause,stop"`
	KeepDisk         bool              `json:"keep_disk,omitempty" doc:"Keeps the whole disk of a sandbox while it sleeps. On Cloudflare it needs the scheduling policy durable_object, and the default keeps only /data; a change applies to later generations. On Docker a sleeping sandbox always keeps its disk. Default false."`
	CommandTimeout   Duration          `json:"command_timeout,omitempty" doc:"Time limit of commands that set none, 1s to 24h. Default 2m."`
	ExpiryConditions []string          `json:"expiry_conditions,omitempty" doc:"Conditions that end leases of this environment. At most 32."`
	Env              map[string]string `json:"env,omitempty" doc:"Environment variables of every sandbox. Do not put secrets here."`
	Secrets          []string          `json:"secrets,omitempty" doc:"Names of the secrets that every sandbox gets as files in /run/secrets. A new name requires a value in secret_values. A secret that is left out is deleted."`
	Confinement      Confinement       `json:"confinement,omitzero" doc:"Isolation settings beyond those that every sandbox has."`
	Labels           map[string]string `json:"labels,omitempty" doc:"Labels of the environment and of its leases: filters of lists, events and costs. At most 32, without commas."`
	HostAccess
	Budget       *Budget             `json:"budget,omitempty" doc:"Refuses acquires that could exceed a monthly amount. Ends the environment's leases once it is spent. Default: no limit."`
	WarmPool     *WarmPool           `json:"warm_pool,omitempty" doc:"Keeps sandboxes ready for the next acquires. Default: none."`
	Snapshot     *SnapshotSpec       `json:"state,omitempty" doc:"Keeps /data from one generation of a lease to the next. Default: /data is deleted with its sandbox."`
	InitialData  map[string]string   `json:"initial_state,omitempty" doc:"Initial text files, by path relative to /data, for sandboxes that start without a snapshot."`
	Processes    []ProcessSpec       `json:"processes,omitempty" doc:"Processes that start in every sandbox as soon as it is ready, at most 16. A change applies to later generations."`
	Skills       map[string]string   `json:"skills,omitempty" doc:"Prompts by skill, written to /data/skills/<skill>/prompt.md at the start of each generation."`
	LLM          map[string]LLMRoute `json:"llm,omitempty" doc:"Routes to models by name. A sandbox calls them without a key; the environment's gateway adds it and records tokens and cost."`
	PostMortem   *Duration           `json:"post_mortem,omitempty" doc:"How long a sandbox that failed after it was ready is kept, stopped, for inspection; 0s removes it at once. At most 720h, and never longer than the service's cleanup TTL. Default 1h."`
	Workspace    *Workspace          `json:"workspace,omitempty" doc:"Git repository that each sandbox starts with. The service fetches it; its credential stays outside. Docker only. Default: none."`
	Archives     []Archive           `json:"archives,omitempty" doc:"Tar archives, plain or compressed with gzip or zstd, that each sandbox starts with. The service fetches them; credentials stay outside. At most 16. Docker only. Default: none."`
	Companions   Companions          `json:"companions,omitempty" doc:"Containers that live with each sandbox and share its network, by name, at most 4. They are ready before its lease is. A change applies to later generations. Docker only."`
	BuiltinTools []string            `json:"builtin_tools,omitempty" doc:"Tools that the image must have, by name, such as git or python. Each sandbox is checked before its lease is ready; a lease whose image lacks one fails. Default: none."`
	PostStart    []PostStart         `json:"post_start,omitempty" doc:"Commands that run once in each sandbox, one after another, before its lease is ready. If one fails, the lease fails."`
}

// WithDefaults returns the specification with all defaults filled in.
func (s EnvironmentSpec) WithDefaults() EnvironmentSpec {
	orDefault(&s.Type, TypeCustom)
	orDefault(&s.Backend, Docker)
	network, sleep, size := NetworkRestricted, SleepPause, defaultResources(s.Backend)
	if s.Backend == Cloudflare { // it cannot pause
		network, sleep = NetworkNone, SleepStop
	}
	orDefault(&s.ImagePull, PullNever)
	orDefault(&s.Network, network)
	orDefault(&s.TTL, DefaultTTL)
	orDefault(&s.MaxLifetime, DefaultMaxLifetime)
	orDefault(&s.CommandTimeout, DefaultExecTimeout)
	orDefault(&s.SleepMode, sleep)
	orDefault(&s.Resources.MemoryMB, size.MemoryMB)
	orDefault(&s.Resources.CPUMillis, size.CPUMillis)
	orDefault(&s.Resources.PIDs, size.PIDs)
	orDefault(&s.Resources.DiskMB, size.DiskMB)
	if s.SleepAfter == nil {
		d := DefaultSleepAfter
		s.SleepAfter = &d
	}
	if s.PostMortem == nil {
		d := DefaultPostMortem
		s.PostMortem = &d
	}
	s.WarmPool = s.WarmPool.withDefaults()
	s.Confinement = s.Confinement.WithDefaults()
	s.Snapshot = s.Snapshot.withDefaults()
	s.PostStart = withPostStartDefaults(s.PostStart)
	s.LLM = llmWithDefaults(s.LLM)
	s.Workspace = s.Workspace.withDefaults()
	s.Archives = withArchiveDefaults(s.Archives)
	s.Companions = s.Companions.withDefaults()
	if len(s.ExpiryConditions) == 0 {
		s.ExpiryConditions = DefaultExpiryConditions(s.Type)
	}
	return s
}

// Keeping returns the specification of a changed environment. If it names no size, it keeps the former default size of
// the stored one: a new default changes no environment that never named a size.
func (s EnvironmentSpec) Keeping(stored EnvironmentSpec) EnvironmentSpec {
	if s.WithDefaults().Backend != Docker || stored.Backend != Docker {
		return s
	}
	if stored.Resources.MemoryMB == FormerDefaultResources.MemoryMB {
		orDefault(&s.Resources.MemoryMB, stored.Resources.MemoryMB)
	}
	if stored.Resources.CPUMillis == FormerDefaultResources.CPUMillis {
		orDefault(&s.Resources.CPUMillis, stored.Resources.CPUMillis)
	}
	return s
}

// KeepFailed returns how long a sandbox that failed after it was ready is kept.
func (s EnvironmentSpec) KeepFailed() Duration { return *s.WithDefaults().PostMortem }

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Validate checks a specification. Its defaults must be filled in. Errors: Invalid, naming each field.
func (s EnvironmentSpec) Validate() error {
	var f []Field
	bad := func(name, problem string, args ...any) { f = append(f, Field{name, fmt.Sprintf(problem, args...)}) }
	if !slices.Contains(EnvironmentTypes, s.Type) {
		bad("type", "must be rpg, catan, coding or custom, not %q", s.Type)
	}
	if s.Backend != Docker && s.Backend != Cloudflare {
		bad("backend", "must be docker or cloudflare, not %q", s.Backend)
	}
	if s.Image == "" {
		bad("image", "must be set to an image reference, for example the reference of a sandbox_container_image")
	}
	switch s.Network {
	case NetworkNone, NetworkRestricted, NetworkFull:
	default:
		bad("network", "must be none, restricted or full, not %q", s.Network)
	}
	if s.SleepMode != SleepPause && s.SleepMode != SleepStop {
		bad("sleep_mode", "must be pause or stop, not %q", s.SleepMode)
	}
	f = append(f, s.ImagePull.fields()...)
	f = append(f, s.Unsupported()...)
	f = append(f, s.Resources.fields()...)
	f = append(f, s.envFields()...)
	f = append(f, s.HostAccess.fields()...)
	f = append(f, s.leaseFields()...)
	f = append(f, labelFields("labels", s.Labels)...)
	f = append(f, s.Confinement.fields()...)
	f = append(f, s.Confinement.AboveMemory(s.Resources)...)
	if s.Egress != nil {
		f = append(f, s.Egress.fields()...)
		if s.Network != NetworkRestricted {
			bad("egress", "requires network \"restricted\", not %q", s.Network)
		}
	}
	f = append(f, s.credentialSecretFields()...)
	f = append(f, s.processFields()...)
	f = append(f, s.WarmPool.fields()...)
	f = append(f, s.Snapshot.fields()...)
	f = append(f, s.initialDataFields()...)
	f = append(f, s.toolFields()...)
	f = append(f, s.postStartFields()...)
	f = append(f, s.llmFields()...)
	f = append(f, s.workspaceFields()...)
	f = append(f, s.archiveFields()...)
	f = append(f, s.companionFields()...)
	if s.Budget != nil && s.Budget.Monthly <= 0 {
		bad("budget.monthly_usd", "must be more than 0; omit the budget to set no limit")
	}
	return InvalidFields("environment", f)
}

// Unsupported returns the fields that request features that the backend lacks.
func (s EnvironmentSpec) Unsupported() []Field {
	var f []Field
	must := func(holds bool, name, problem string) {
		if !holds {
			f = append(f, Field{name, problem})
		}
	}
	if s.Backend == Cloudflare {
		must(s.ImagePull != PullMissing, "image_pull",
			"must not be missing on Cloudflare, which runs images of the account's registry")
		must(s.SleepMode != SleepPause, "sleep_mode",
			"must be stop on Cloudflare, which cannot pause")
		must(s.WarmPool == nil, "warm_pool",
			"must not be set on Cloudflare: a sleeping container is stopped and starts no faster than a new one")
		must(len(s.Mounts) == 0, "mounts",
			"must not be set on Cloudflare, which has no host directories to mount")
		must(s.Confinement.WithDefaults() == Confinement{}.WithDefaults(), "confinement",
			"must not be set on Cloudflare, which runs each sandbox in its own virtual machine")
		must(s.Workspace == nil, "workspace",
			"must not be set on Cloudflare: a sandbox that stops there keeps only /data")
		must(len(s.Archives) == 0, "archives",
			"must not be set on Cloudflare: a sandbox that stops there keeps only /data")
		must(len(s.Companions) == 0, "companions",
			"must not be set on Cloudflare, whose sandboxes share no network with another container")
		basic := defaultResources(Cloudflare)
		basic.PIDs = s.Resources.PIDs // Cloudflare has no such limit
		must(!s.KeepDisk || s.Resources != basic, "keep_disk",
			"must not be set with the size basic on Cloudflare, which has no snapshots of that size: choose another size")
		f = append(f, s.EgressRules().unsupportedOnCloudflare()...)
		f = append(f, s.llmUnsupportedOnCloudflare()...)
	}
	return f
}

func (s EnvironmentSpec) leaseFields() []Field {
	var f []Field
	if s.TTL < Duration(time.Second) {
		f = append(f, Field{"ttl", "must be at least 1s"})
	}
	if s.MaxLifetime < Duration(time.Second) || s.MaxLifetime > Duration(365*24*time.Hour) {
		f = append(f, Field{"max_lifetime", "must be between 1s and 8760h"})
	}
	if d := *s.SleepAfter; d != 0 && d < Duration(time.Second) {
		f = append(f, Field{"sleep_after", "must be 0s (never sleep) or at least 1s"})
	}
	if s.CommandTimeout < Duration(time.Second) || s.CommandTimeout > MaxExecTimeout {
		f = append(f, Field{"command_timeout", "must be between 1s and 24h"})
	}
	if d := *s.PostMortem; d < 0 || d > MaxPostMortem {
		f = append(f, Field{"post_mortem", "must be between 0s (not kept) and " + MaxPostMortem.String()})
	}
	if n := len(s.ExpiryConditions); n > MaxExpiryConditions {
		f = append(f, Field{"expiry_conditions",
			fmt.Sprintf("must be at most %d conditions, not %d", MaxExpiryConditions, n)})
	}
	for i, c := range s.ExpiryConditions {
		f = checkCondition(f, fmt.Sprintf("expiry_conditions[%d]", i), c)
	}
	return f
}

// reservedEnv are the variables that the system sets in every sandbox.
var reservedEnv = []string{
	"IS_SANDBOXED", "SANDBOX_VERSION", "AGENT_DID", "ENVIRONMENT_ID", "ENVIRONMENT_TYPE", "ALLOWED_ROOT_DIRECTORY",
}

// EnvironmentStatus says whether an environment grants leases.
type EnvironmentStatus string

// The environment statuses.
const (
	EnvironmentOpen      EnvironmentStatus = "open"
	EnvironmentClosed    EnvironmentStatus = "ended"
	EnvironmentDeleting  EnvironmentStatus = "deleting"
	EnvironmentDestroyed EnvironmentStatus = "destroyed"
)

// Environment is a game, campaign or task whose agents lease sandboxes.
type Environment struct {
	// ID is the name that the user chose. Game servers refer to it.
	ID    string `json:"id"`
	Owner string `json:"owner"`
	EnvironmentSpec
	// Instance is the backend instance on which the environment is deployed.
	Instance string            `json:"instance,omitempty"`
	Status   EnvironmentStatus `json:"status" enum:"open,ended,deleting,destroyed"`
	// Epoch counts reopenings by number (Terraform). Raising it reopens the environment.
	Epoch int64 `json:"epoch"`
	// EndedBy is the last condition that closed the environment. EndedAt is when the service accepted it.
	EndedBy string `json:"ended_by,omitempty"`
	// EndConditions are all conditions that closed the environment, in their order.
	EndConditions []string  `json:"end_conditions,omitempty" doc:"All conditions that ended the environment, in their order. A lease that names one of them is not granted."`
	EndedAt       time.Time `json:"ended_at,omitzero"`
	CreatedAt     time.Time `json:"created_at"`
	UpdatedAt     time.Time `json:"updated_at"`
	// PurgedAt is when the details of a destroyed environment were purged. Only its name stays.
	PurgedAt time.Time `json:"retired_at,omitzero"`
	// LastEventID is the ledger's latest event when this was read. A reader that follows the events after it
	// misses none and gets none twice.
	LastEventID int64 `json:"last_event_id" doc:"The ledger's latest event when this was read: follow events after it."`
	// Leases counts the environment's leases by the state of their sandboxes. OpenDrift counts its open drift
	// findings.
	Leases    LeaseCounts `json:"leases" doc:"The environment's leases whose sandboxes are not deleted, by sandbox_state."`
	OpenDrift int64       `json:"open_drift" doc:"Number of open drift findings."`
	// BudgetUse is set if there is a budget, Pool if there is a warm pool.
	BudgetUse *BudgetUse  `json:"budget_use,omitempty"`
	Pool      *PoolStatus `json:"pool,omitempty"`
	// Drift are the open findings about the environment's deployment. Only GetEnvironment returns them.
	Drift []DriftFinding `json:"drift,omitempty"`
}

// PutEnvironment creates or changes an environment.
type PutEnvironment struct {
	ID    string `json:"id"`
	Owner string `json:"owner,omitempty" doc:"Owner, who may change it. Default: the caller's token."`
	// An Epoch above the stored one reopens an ended environment. One below it is a conflict.
	Epoch int64 `json:"epoch,omitempty"`
	EnvironmentSpec
	// SecretValues are the values of new or changed secrets, by name. No answer contains them.
	SecretValues map[string]Secret `json:"secret_values,omitempty" writeOnly:"true" doc:"Values of new or changed secrets, by name. They are stored encrypted and never shown."`
	// CreateOnly makes it a conflict if the environment exists, instead of a change.
	CreateOnly bool `json:"create_only,omitempty"`
	// Was, unless nil, is the settings on which the change is based. If the environment is gone or has other settings, it
	// is a conflict with ReasonOtherSettings. It is not part of the request's JSON.
	Was *EnvironmentSpec `json:"-"`
	// Tenant is the caller, nil for the operator. The front end sets it; it is not part of the request's JSON.
	Tenant *Tenant `json:"-"`
	// Instance is the backend instance to deploy to. Empty means the current one, and for a new environment the
	// instance that answers. An environment moves to another instance only if this names it.
	Instance string `json:"instance,omitempty" doc:"Backend instance to deploy to. Another instance than before moves the environment; its leases must have ended."`
}

// Validate checks the request. Its defaults must be filled in. Errors: Invalid.
func (p PutEnvironment) Validate() error {
	if f := checkEnvironmentID(nil, "id", p.ID); f != nil {
		return InvalidFields("environment", f)
	}
	if f := p.secretFields(); f != nil {
		return InvalidFields("environment", f)
	}
	return p.EnvironmentSpec.Validate()
}

// DeleteEnvironment removes an environment and its backend resources.
type DeleteEnvironment struct {
	ID string `json:"id"`
	// Owner must be the environment's owner. Empty skips the check.
	Owner string `json:"owner,omitempty"`
	// Force ends leases that are still active. Without it they are a conflict.
	Force bool `json:"force,omitempty"`
}

// DefaultPoolTTL is how long a sandbox waits in a warm pool before it is replaced.
const DefaultPoolTTL = Duration(24 * time.Hour)

// MaxPoolSize is the largest size of a warm pool.
const MaxPoolSize = 100

// PoolMode is the state in which sandboxes of a warm pool wait.
type PoolMode string

// The modes. PoolPaused is the default: a waiting sandbox is asleep. It uses no CPU, runs no code and costs what a
// sleeping sandbox costs. A claim wakes it through the engine. PoolRunning needs no wake: a claim is one message to the
// sandbox, at the cost of an awake sandbox.
const (
	PoolPaused  PoolMode = "paused"
	PoolRunning PoolMode = "running"
)

// WarmPool keeps sandboxes ready, so that an acquire only claims one.
type WarmPool struct {
	Size    int64    `json:"size" doc:"Number of sandboxes that wait, 0 to 100." minimum:"0" maximum:"100"`
	MaxSize int64    `json:"max_size,omitempty" doc:"Largest size, at most 100. After a burst of leases within 10s the pool grows up to this size; it shrinks 10m later. Default: it does not grow." minimum:"0" maximum:"100"`
	Mode    PoolMode `json:"mode,omitempty" enum:"paused,running" doc:"paused: waiting sandboxes sleep by sleep_mode and cost what sleeping sandboxes cost; an acquire wakes one. running: waiting sandboxes are awake and cost as such; an acquire needs no wake. Default paused."`
	TTL     Duration `json:"ttl,omitempty" doc:"A waiting sandbox is replaced after this time. Default 24h."`
	Paused  bool     `json:"paused,omitempty" doc:"Create no new sandboxes; those that wait are still leased."`
}

const (
	// PoolDemandWindow is the length of a burst: leases that begin within it are served by one pool size. It is
	// about the time of a refill.
	PoolDemandWindow = 10 * time.Second
	// PoolDemandMemory is how long a pool keeps its size after a burst.
	PoolDemandMemory = 10 * time.Minute
)

// SizeFor returns the pool size for a demand: the most leases that began within one PoolDemandWindow.
func (p *WarmPool) SizeFor(demand int64) int64 { return max(p.Size, min(demand, p.MaxSize)) }

// Runs reports whether waiting sandboxes are awake.
func (p *WarmPool) Runs() bool { return p.Mode == PoolRunning }

// withDefaults returns the pool with its defaults filled in; nil stays nil.
func (p *WarmPool) withDefaults() *WarmPool {
	if p == nil {
		return nil
	}
	filled := *p
	orDefault(&filled.TTL, DefaultPoolTTL)
	orDefault(&filled.Mode, PoolPaused)
	return &filled
}

// fields returns the problems of a pool. Its defaults must be filled in.
func (p *WarmPool) fields() (f []Field) {
	if p == nil {
		return nil
	}
	if p.Size < 0 || p.Size > MaxPoolSize {
		f = append(f, Field{"warm_pool.size", fmt.Sprintf("must be between 0 and %d, not %d", MaxPoolSize, p.Size)})
	}
	if p.MaxSize != 0 && (p.MaxSize < p.Size || p.MaxSize > MaxPoolSize) {
		f = append(f, Field{"warm_pool.max_size", fmt.Sprintf("must be between warm_pool.size (%d) and %d, not %d",
			p.Size, MaxPoolSize, p.MaxSize)})
	}
	if p.Mode != PoolPaused && p.Mode != PoolRunning {
		f = append(f, Field{"warm_pool.mode", fmt.Sprintf("must be paused or running, not %q", p.Mode)})
	}
	if p.TTL < Duration(time.Minute) || p.TTL > Duration(365*24*time.Hour) {
		f = append(f, Field{"warm_pool.ttl", "must be between 1m and 8760h"})
	}
	return f
}

// PoolStatus is the status of an environment's warm pool.
type PoolStatus struct {
	// Ready counts sandboxes that wait, Pending those that are being created.
	Ready   int64 `json:"ready"`
	Pending int64 `json:"pending"`
	// Failures counts consecutive failed creations. At MaxPoolFailures the pool stops until the environment
	// changes.
	Failures  int64     `json:"failures,omitempty"`
	LastError string    `json:"last_error,omitempty"`
	RetryAt   time.Time `json:"retry_at,omitzero"`
}

// MaxPoolFailures is the number of consecutive failures after which a pool gives up.
const MaxPoolFailures = 8
