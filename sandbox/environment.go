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

// DefaultExpiryConditions returns the conditions that end the leases of a type of environment.
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

// Backend is the kind of engine that sandboxes run on.
type Backend string

// The backends.
const (
	Docker     Backend = "docker"
	Cloudflare Backend = "cloudflare"
)

// SleepMode says how a sandbox sleeps.
type SleepMode string

// The sleep modes. Pause keeps processes and memory; stop ends processes and frees memory, and
// keeps /workspace.
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

// Defaults of leases. MaxLifetime always has a value because renewal may extend a lease's time
// to live, but not for ever.
const (
	DefaultTTL         = Duration(24 * time.Hour)
	DefaultSleepAfter  = Duration(5 * time.Minute)
	DefaultMaxLifetime = Duration(240 * time.Hour)
	DefaultExecTimeout = Duration(120 * time.Second)
	DefaultPostMortem  = Duration(time.Hour)
	MaxPostMortem      = Duration(720 * time.Hour)
)

// EnvironmentSpec is what a user decides about an environment. Zero values take the defaults.
type EnvironmentSpec struct {
	Type             EnvironmentType   `json:"type" enum:"rpg,catan,coding,custom" doc:"Sets the default expiry conditions."`
	Backend          Backend           `json:"backend" enum:"docker,cloudflare"`
	Image            string            `json:"image" doc:"Image reference; pinned by digest or id where it can be."`
	Resources        Resources         `json:"resources,omitzero"`
	Network          NetworkMode       `json:"network" enum:"none,restricted,full"`
	Egress           *Egress           `json:"egress,omitempty" doc:"What a restricted network lets out. Default: github.com, api.github.com, raw.githubusercontent.com and cdn.jsdelivr.net."`
	TTL              Duration          `json:"ttl,omitempty" doc:"A lease ends this long after its last activity. Default 24h."`
	MaxLifetime      Duration          `json:"max_lifetime,omitempty" doc:"A lease ends this long after it began, whatever happens. Default 240h."`
	SleepAfter       *Duration         `json:"sleep_after,omitempty" doc:"An unused sandbox sleeps after this time; 0s turns that off. Default 5m."`
	SleepMode        SleepMode         `json:"sleep_mode,omitempty" enum:"pause,stop"`
	ExpiryConditions []string          `json:"expiry_conditions,omitempty" doc:"Conditions that end leases of this environment."`
	Env              map[string]string `json:"env,omitempty" doc:"Environment variables of every sandbox; never secrets."`
	Secrets          []string          `json:"secrets,omitempty" doc:"Names of the secrets that every sandbox finds as files in /run/secrets. A name needs a value in secret_values once; one that is left out is removed."`
	Confinement      Confinement       `json:"confinement,omitzero" doc:"How sandboxes are shut in, beyond what every sandbox is."`
	Labels           map[string]string `json:"labels,omitempty" doc:"Free labels of the environment; kept in the ledger."`
	HostAccess
	Budget       *Budget           `json:"budget,omitempty" doc:"Acquires that could cost more in a calendar month are refused. Default: no limit."`
	WarmPool     *WarmPool         `json:"warm_pool,omitempty" doc:"Sandboxes that wait for an acquire. Default: none."`
	State        *StateSpec        `json:"state,omitempty" doc:"Keeps /data from one generation of a lease to the next. Default: /data ends with its sandbox."`
	InitialState map[string]string `json:"initial_state,omitempty" doc:"Text files, by path relative to /data, with which a sandbox begins that has no saved state."`
	Processes    []ProcessSpec     `json:"processes,omitempty" doc:"Processes that run in every sandbox from the moment it is ready, at most 16. A change is for the generations that follow."`
	Skills       map[string]string `json:"skills,omitempty" doc:"Prompts by skill, written to /data/skills/<skill>/prompt.md at the beginning of each generation."`
	PostMortem   *Duration         `json:"post_mortem,omitempty" doc:"How long a sandbox that failed after it was ready is kept, stopped, to be looked at; 0s removes it at once. At most 720h, and never longer than the service's cleanup TTL. Default 1h."`
	PostStart    []PostStart       `json:"post_start,omitempty" doc:"Commands that are run once in each sandbox, one after the other, before its lease is ready. One that fails fails the lease."`
}

// WithDefaults returns the specification with every default filled in.
func (s EnvironmentSpec) WithDefaults() EnvironmentSpec {
	orDefault(&s.Type, TypeCustom)
	orDefault(&s.Backend, Docker)
	network, sleep, size := NetworkRestricted, SleepPause, defaultResources(s.Backend)
	if s.Backend == Cloudflare { // which has no gateway, and nothing that pauses
		network, sleep = NetworkNone, SleepStop
	}
	orDefault(&s.Network, network)
	orDefault(&s.TTL, DefaultTTL)
	orDefault(&s.MaxLifetime, DefaultMaxLifetime)
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
	s.State = s.State.withDefaults()
	s.PostStart = withPostStartDefaults(s.PostStart)
	if len(s.ExpiryConditions) == 0 {
		s.ExpiryConditions = DefaultExpiryConditions(s.Type)
	}
	return s
}

// KeepFailed is how long a sandbox that failed after it was ready is kept.
func (s EnvironmentSpec) KeepFailed() Duration { return *s.WithDefaults().PostMortem }

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Validate checks a specification whose defaults are filled in. Errors: Invalid, naming each field.
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
	f = append(f, s.Unsupported()...)
	f = append(f, s.Resources.fields()...)
	f = append(f, s.envFields()...)
	f = append(f, s.HostAccess.fields()...)
	f = append(f, s.leaseFields()...)
	f = append(f, s.Confinement.fields()...)
	if s.Egress != nil {
		f = append(f, s.Egress.fields()...)
		if s.Network != NetworkRestricted {
			bad("egress", "needs the network \"restricted\", not %q", s.Network)
		}
	}
	f = append(f, s.processFields()...)
	f = append(f, s.WarmPool.fields()...)
	f = append(f, s.State.fields()...)
	f = append(f, s.seedFields()...)
	f = append(f, s.postStartFields()...)
	if s.Budget != nil && s.Budget.Monthly <= 0 {
		bad("budget.monthly_usd", "must be more than 0; leave the budget out to set no limit")
	}
	return InvalidFields("environment", f)
}

// Unsupported are the fields that ask for what the backend does not do.
func (s EnvironmentSpec) Unsupported() []Field {
	var f []Field
	must := func(holds bool, name, problem string) {
		if !holds {
			f = append(f, Field{name, problem})
		}
	}
	if s.Backend == Cloudflare {
		must(s.Network != NetworkRestricted, "network", "must be none or full on Cloudflare: it has no gateway that a restricted network goes out through")
		must(s.SleepMode != SleepPause, "sleep_mode", "must be stop on Cloudflare, where nothing can be paused: what sleeps keeps /data only")
		must(s.WarmPool == nil, "warm_pool", "must be left out on Cloudflare: a container that sleeps is stopped, and starts no faster than a new one")
		must(len(s.Mounts) == 0, "mounts", "must be left out on Cloudflare: there is no host whose directories could be mounted")
		must(s.Confinement.WithDefaults() == Confinement{}.WithDefaults(), "confinement", "must be left out on Cloudflare, which shuts each sandbox into a machine of its own")
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
	if d := *s.PostMortem; d < 0 || d > MaxPostMortem {
		f = append(f, Field{"post_mortem", "must be between 0s (not kept) and " + MaxPostMortem.String()})
	}
	for i, c := range s.ExpiryConditions {
		f = checkCondition(f, fmt.Sprintf("expiry_conditions[%d]", i), c)
	}
	return f
}

// reservedEnv are the variables that every sandbox gets from the system.
var reservedEnv = []string{"IS_SANDBOXED", "AGENT_DID", "ENVIRONMENT_ID", "ENVIRONMENT_TYPE", "ALLOWED_ROOT_DIRECTORY"}

// EnvironmentStatus says whether an environment gives out leases.
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
	// ID is the name that the user chose, because game servers must know it.
	ID    string `json:"id"`
	Owner string `json:"owner"`
	EnvironmentSpec
	// Instance is the backend instance on which the environment was provisioned.
	Instance string            `json:"instance,omitempty"`
	Status   EnvironmentStatus `json:"status" enum:"open,ended,deleting,destroyed"`
	// Epoch counts reopenings that were asked for by number (Terraform); raising it reopens.
	Epoch int64 `json:"epoch"`
	// EndedBy is the condition that closed the environment, EndedAt when it was accepted.
	EndedBy   string    `json:"ended_by,omitempty"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// RetiredAt is since when no more is kept of a destroyed environment than its name.
	RetiredAt time.Time `json:"retired_at,omitzero"`
	// LastEventID is the ledger's latest event as of this reading: a reader that follows the events after it
	// misses none and is told nothing twice.
	LastEventID int64 `json:"last_event_id" doc:"The ledger's latest event as of this reading: follow after it."`
	// Leases counts the environment's leases by where their sandboxes stand, OpenDrift the open findings about it.
	Leases    LeaseCounts `json:"leases" doc:"The environment's leases whose sandboxes are not deleted, by sandbox_state."`
	OpenDrift int64       `json:"open_drift" doc:"How many findings of drift are open."`
	// BudgetUse is set where there is a budget, Pool where there is a warm pool.
	BudgetUse *BudgetUse  `json:"budget_use,omitempty"`
	Pool      *PoolStatus `json:"pool,omitempty"`
	// Drift are the open findings about what the environment is deployed with, of GetEnvironment alone.
	Drift []DriftFinding `json:"drift,omitempty"`
}

// PutEnvironment asks for an environment to be made or changed.
type PutEnvironment struct {
	ID    string `json:"id"`
	Owner string `json:"owner,omitempty" doc:"Who may change it; default is the caller's token."`
	// Epoch above the stored one reopens an ended environment; below it is a conflict.
	Epoch int64 `json:"epoch,omitempty"`
	EnvironmentSpec
	// SecretValues are the values of secrets that are new or changed, by name. No answer has them.
	SecretValues map[string]Secret `json:"secret_values,omitempty" writeOnly:"true" doc:"Values of secrets that are new or changed, by name. They are kept encrypted and never shown."`
	// CreateOnly makes an existing environment a conflict instead of a change.
	CreateOnly bool `json:"create_only,omitempty"`
	// Tenant is who asks, nil for the operator. The service's face sets it; no request says it.
	Tenant *Tenant `json:"-"`
	// Instance is the backend instance that the environment is to be on; empty means the one that it is on, and for a
	// new environment the one that answers. Only by naming it, an environment moves from one instance to another.
	Instance string `json:"instance,omitempty" doc:"Backend instance to be on. Naming another one than before moves the environment, which needs its leases to be over."`
}

// Validate checks the request after defaults are filled in. Errors: Invalid.
func (p PutEnvironment) Validate() error {
	if f := checkEnvironmentID(nil, "id", p.ID); f != nil {
		return InvalidFields("environment", f)
	}
	if f := p.secretFields(); f != nil {
		return InvalidFields("environment", f)
	}
	return p.EnvironmentSpec.Validate()
}

// DeleteEnvironment asks for an environment and its backend resources to be removed.
type DeleteEnvironment struct {
	ID string `json:"id"`
	// Force ends the leases that are still active; without it they are a conflict.
	Force bool `json:"force,omitempty"`
}
