package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Scope is one right of a token.
type Scope string

// The scopes. A token has at least one.
const (
	// ScopeRead reads what the ledger holds: environments, leases, events, costs, drift, recordings. It wakes
	// no sandbox.
	ScopeRead Scope = "read"
	// ScopeLease acquires, uses and ends leases. It includes ScopeRead.
	ScopeLease Scope = "lease"
	// ScopeConditions sends conditions and nothing else. It is meant for game servers.
	ScopeConditions Scope = "conditions"
	// ScopeAdmin includes all other scopes and manages environments. If the token is not limited to
	// environments, it also manages tokens, webhook secrets, snapshots and what backends hold.
	ScopeAdmin Scope = "admin"
)

// Scopes returns all scopes.
func Scopes() []Scope { return []Scope{ScopeRead, ScopeLease, ScopeConditions, ScopeAdmin} }

// Holds reports whether a token with scope s may do what requires the scope needed.
func (s Scope) Holds(needed Scope) bool {
	return s == needed || s == ScopeAdmin || s == ScopeLease && needed == ScopeRead
}

// Token describes a bearer token. The token's text is not stored.
type Token struct {
	// ID identifies this token. Rotation keeps the name and issues a new ID.
	ID string `json:"id"`
	// Name identifies the token's holder. It owns what the token creates, and events record it.
	Name   string  `json:"name"`
	Scopes []Scope `json:"scopes" nullable:"false"`
	// Environments are path.Match patterns of the environments that the token may touch. Empty means all environments, and
	// objects that belong to none.
	Environments []string `json:"environments,omitempty"`
	// Ceiling bounds what a token with Environments may request.
	Ceiling   Ceiling   `json:"ceiling,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: never
	// LastUsedAt is accurate to one minute.
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
	RevokedBy  string    `json:"revoked_by,omitempty"`
}

// Live reports whether the token is valid at now.
func (t Token) Live(now time.Time) bool {
	return t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || now.Before(t.ExpiresAt))
}

// CreateToken asks for a new token.
type CreateToken struct {
	Name         string   `json:"name" doc:"Name of the token's holder: 1 to 63 letters, digits, '.', '_' and '-'."`
	Scopes       []Scope  `json:"scopes" nullable:"false" doc:"read, lease, conditions, admin. lease includes read; admin includes all."`
	Environments []string `json:"environments,omitzero" minItems:"1" doc:"Patterns, such as catan-*, of the environments that the token may touch. An empty list is an error. Default: all environments, and what belongs to none."`
	Ceiling      Ceiling  `json:"ceiling,omitzero" doc:"Raises the safe default limits of a token that is limited to environments."`
	// ExpiresAt is when the token expires; zero means never.
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"When the token expires. Default: never."`
}

// TokenIDPrefix starts the id of every token. No token name may start with it.
const TokenIDPrefix = "tok_" // #nosec G101 -- not a credential

// IsTokenName reports whether name is a valid token name.
func IsTokenName(name string) bool {
	return tokenName().MatchString(name) && !strings.HasPrefix(name, TokenIDPrefix)
}

// IsEnvironmentPattern reports whether pattern is a valid pattern of environment ids, such as catan-*.
func IsEnvironmentPattern(pattern string) bool {
	_, err := path.Match(pattern, "")
	return err == nil && pattern != ""
}

var tokenName = pattern(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Validate checks everything that does not need the ledger. Errors: Invalid.
func (c CreateToken) Validate(now time.Time) error {
	var fields []Field
	wrong := func(name, format string, args ...any) {
		fields = append(fields, Field{Name: name, Problem: fmt.Sprintf(format, args...)})
	}
	if !IsTokenName(c.Name) {
		wrong("name", "must be 1 to 63 letters, digits, '.', '_' and '-', and not begin with %s", TokenIDPrefix)
	}
	if len(c.Scopes) == 0 {
		wrong("scopes", "must name at least one of %v", Scopes())
	}
	for _, s := range c.Scopes {
		if !slices.Contains(Scopes(), s) {
			wrong("scopes", "%q must be one of %v", s, Scopes())
		}
	}
	if c.Environments != nil && len(c.Environments) == 0 {
		wrong("environments", "must not be empty; leave it out for all environments")
	}
	for _, pattern := range c.Environments {
		if !IsEnvironmentPattern(pattern) {
			wrong("environments", "%q is not a pattern of environment ids such as catan-*", pattern)
		}
	}
	fields = append(fields, ceilingFields(c.Ceiling, c.Environments)...)
	if !c.ExpiresAt.IsZero() && !c.ExpiresAt.After(now) {
		wrong("expires_at", "must be in the future")
	}
	return InvalidFields("token", fields)
}

// Unlimited reports whether the patterns match every environment: the list is empty, or contains "*".
func Unlimited(patterns []string) bool { return len(patterns) == 0 || slices.Contains(patterns, "*") }

// ceilingFields returns the problems of a ceiling for a token with these environments.
func ceilingFields(c Ceiling, environments []string) []Field {
	if !c.IsZero() && Unlimited(environments) {
		return []Field{{"ceiling", "requires a token with environments: a token without them has no limits"}}
	}
	return c.fields()
}

// CheckCeiling rejects a ceiling that a token with these environments cannot have. Errors: Invalid.
func CheckCeiling(c Ceiling, environments []string) error {
	return InvalidFields("token", ceilingFields(c, environments))
}

// RotateToken asks for a successor of a token, with the same name, scopes and environments.
type RotateToken struct {
	Name string
	// Ceiling is the ceiling of the new token; nil keeps the previous one.
	Ceiling *Ceiling
	// Overlap is how long the existing tokens of the name stay valid; zero revokes them at once.
	Overlap Duration
}

// CreatedToken is a new token. Only this answer contains its text.
type CreatedToken struct {
	Token
	Text Secret `json:"token"`
}

// TokenChange is the data of the token.* events.
type TokenChange struct {
	ID           string    `json:"id"`
	Name         string    `json:"name"`
	Scopes       []Scope   `json:"scopes"`
	Environments []string  `json:"environments,omitempty"`
	Ceiling      Ceiling   `json:"ceiling,omitzero"`
	ExpiresAt    time.Time `json:"expires_at,omitzero"`
}

// Ceiling bounds what a tenant may request. No other type defines such bounds. An omitted field has a bound that is
// safe without an operator's decision. For a size this is FormerDefaultResources, or basic on Cloudflare.
type Ceiling struct {
	Network        NetworkMode `json:"network,omitempty" enum:"none,restricted,full" doc:"Widest network mode. Default restricted."`
	Root           bool        `json:"root,omitempty" doc:"Sandboxes may run as root. Default false."`
	Seccomp        bool        `json:"seccomp,omitempty" doc:"Environments may set their own seccomp profile. Default false."`
	WritableMounts bool        `json:"writable_mounts,omitempty" doc:"Environments may mount host directories writable, if the service allows the directory. Default false."`
	Runtimes       []string    `json:"runtimes,omitempty" doc:"Container runtimes that environments may name. Default: none, so that only the engine's default runtime is used."`
	MemoryMB       int64       `json:"memory_mb,omitempty" minimum:"0" doc:"Largest memory_mb. Default: 4096, on Cloudflare that of basic."`
	CPUMillis      int64       `json:"cpu_millis,omitempty" minimum:"0" doc:"Largest cpu_millis. Default: 2000, on Cloudflare that of basic."`
	PIDs           int64       `json:"pids_limit,omitempty" minimum:"0" doc:"Largest pids_limit. Default: 256, on Cloudflare that of basic."`
	DiskMB         int64       `json:"disk_mb,omitempty" minimum:"0" doc:"Largest disk_mb. Default: 10240, on Cloudflare that of basic."`
	TmpMB          int64       `json:"tmp_mb,omitempty" minimum:"0" doc:"Largest tmp_mb. Default 512."`
	RunMB          int64       `json:"run_mb,omitempty" minimum:"0" doc:"Largest run_mb. Default 16."`
	OpenFiles      int64       `json:"open_files,omitempty" minimum:"0" doc:"Largest open_files. Default 16384."`
	SnapshotMB     int64       `json:"state_mb,omitempty" minimum:"0" doc:"Largest state.size_limit_mb. Default 256."`
	Environments   int64       `json:"environments,omitempty" minimum:"0" doc:"Largest number of environments that match the token's patterns. Default: no limit."`
	Leases         int64       `json:"leases,omitempty" minimum:"0" doc:"Largest number of leases that an environment may have at once, and of sandboxes in its warm pool. Default: no limit."`
}

// networks lists the modes from the narrowest to the widest.
var networks = []NetworkMode{NetworkNone, NetworkRestricted, NetworkFull}

// IsZero reports whether only the default bounds apply.
func (c Ceiling) IsZero() bool { return reflect.ValueOf(c).IsZero() }

// numbers returns the numeric bounds by JSON name.
func (c Ceiling) numbers() map[string]int64 {
	return map[string]int64{
		"memory_mb":    c.MemoryMB,
		"cpu_millis":   c.CPUMillis,
		"pids_limit":   c.PIDs,
		"disk_mb":      c.DiskMB,
		"tmp_mb":       c.TmpMB,
		"run_mb":       c.RunMB,
		"open_files":   c.OpenFiles,
		"state_mb":     c.SnapshotMB,
		"environments": c.Environments,
		"leases":       c.Leases,
	}
}

// fields returns the problems of a ceiling.
func (c Ceiling) fields() (f []Field) {
	if c.Network != "" && !slices.Contains(networks, c.Network) {
		f = append(f, Field{"ceiling.network", fmt.Sprintf("must be none, restricted or full, not %q", c.Network)})
	}
	for _, name := range c.Runtimes {
		if !runtimeName().MatchString(name) {
			f = append(f, Field{"ceiling.runtimes", fmt.Sprintf("%q is not a valid runtime name", name)})
		}
	}
	numbers := c.numbers()
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if numbers[name] < 0 {
			f = append(f, Field{"ceiling." + name, "must not be negative"})
		}
	}
	return f
}

// withDefaults fills in the bounds of sizes and network. Counts have no default bound.
func (c Ceiling) withDefaults(b Backend) Ceiling {
	size := defaultResources(b)
	if b == Docker {
		size = FormerDefaultResources
	}
	orDefault(&c.Network, NetworkRestricted)
	orDefault(&c.MemoryMB, size.MemoryMB)
	orDefault(&c.CPUMillis, size.CPUMillis)
	orDefault(&c.PIDs, size.PIDs)
	orDefault(&c.DiskMB, size.DiskMB)
	orDefault(&c.TmpMB, defaultTmpMB)
	orDefault(&c.RunMB, defaultRunMB)
	orDefault(&c.OpenFiles, defaultOpenFiles)
	orDefault(&c.SnapshotMB, DefaultSnapshotLimitMB)
	return c
}

// Check rejects an environment that exceeds the tenant's ceiling. Its defaults must be filled in. A nil tenant
// is the operator, who has no ceiling. Errors: Forbidden with ReasonCeilingExceeded, naming each field.
func (t *Tenant) Check(s EnvironmentSpec) error {
	if t == nil {
		return nil
	}
	return t.refuse("environment", t.Ceiling.exceeded(s))
}

// CheckEnvironments rejects one more environment if the allowed number exists. Errors: as Check.
func (t *Tenant) CheckEnvironments(there int64) error {
	if t == nil || t.Ceiling.Environments == 0 || there < t.Ceiling.Environments {
		return nil
	}
	return t.refuse("environment",
		[]Field{{"id", fmt.Sprintf("the token's patterns already match %s, and its ceiling is %d (environments)",
			counted(there, "environment", "environments"), t.Ceiling.Environments)}})
}

// counted returns a number with its noun.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// CheckLeases rejects one more lease in an environment with the allowed number. Errors: as Check.
func (t *Tenant) CheckLeases(there int64) error {
	if t == nil || t.Ceiling.Leases == 0 || there < t.Ceiling.Leases {
		return nil
	}
	return t.refuse("lease", []Field{{"environment_id",
		fmt.Sprintf("the environment has %s whose sandboxes are not deleted, and the token's ceiling is %d (leases)",
			counted(there, "lease", "leases"), t.Ceiling.Leases)}})
}

func (t *Tenant) refuse(what string, fields []Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &Error{Code: Forbidden, Reason: ReasonCeilingExceeded, Fields: fields, Message: fmt.Sprintf(
		"token %s is limited to the environments %s and this %s exceeds its ceiling: request less, or ask "+
			"the operator to raise the ceiling (token rotate %s --ceiling name=value)",
		t.Name, strings.Join(t.Environments, ", "), what, t.Name)}
}

// exceeded returns the fields of an environment that exceed the ceiling.
func (c Ceiling) exceeded(s EnvironmentSpec) (f []Field) {
	c = c.withDefaults(s.Backend)
	above := func(isAbove bool, field, ceiling, problem string, args ...any) {
		if isAbove {
			f = append(f, Field{field, fmt.Sprintf(problem, args...) + " (ceiling " + ceiling + ")"})
		}
	}
	most := func(field, ceiling string, asked, most int64) {
		above(asked > most, field, ceiling, "must be at most %d, not %d", most, asked)
	}
	uid, gid, named := s.Confinement.ids()
	above(c.Network == NetworkNone && len(s.LLM) > 0, "llm", "network",
		"must not be set with the ceiling %s: a route reaches its upstream", c.Network)
	above(slices.Index(networks, s.Network) > slices.Index(networks, c.Network), "network", "network",
		"must be at most %s, not %s", c.Network, s.Network)
	above(!c.Root && s.Confinement.AllowRoot, "confinement.allow_root", "root", "must not be set")
	above(!c.Root && named && (uid == 0 || gid == 0), "confinement.user", "root", "must not be root")
	above(!c.Seccomp && s.Confinement.SeccompProfile != "", "confinement.seccomp_profile", "seccomp", "must not be set")
	above(s.Confinement.Runtime != "" && !slices.Contains(c.Runtimes, s.Confinement.Runtime), "confinement.runtime",
		"runtimes", "must not be set, or must be one of %q", c.Runtimes)
	for i, m := range s.Mounts {
		above(m.Writable && !c.WritableMounts, fmt.Sprintf("mounts[%d].writable", i), "writable_mounts", "must be false")
	}
	size := s.Size() // includes companions
	most("resources.memory_mb", "memory_mb", size.MemoryMB, c.MemoryMB)
	above(size.CPUMillis > c.CPUMillis, "resources.cpu_millis", "cpu_millis",
		"must be at most %d thousandths of a core, not %d", c.CPUMillis, size.CPUMillis)
	most("resources.pids_limit", "pids_limit", size.PIDs, c.PIDs)
	most("resources.disk_mb", "disk_mb", size.DiskMB, c.DiskMB)
	most("confinement.tmp_mb", "tmp_mb", s.Confinement.TmpMB, c.TmpMB)
	most("confinement.run_mb", "run_mb", s.Confinement.RunMB, c.RunMB)
	most("confinement.open_files", "open_files", s.Confinement.OpenFiles, c.OpenFiles)
	if s.Snapshot != nil {
		most("state.size_limit_mb", "state_mb", s.Snapshot.SizeLimitMB, c.SnapshotMB)
	}
	if s.WarmPool != nil && c.Leases > 0 {
		most("warm_pool.size", "leases", s.WarmPool.Size, c.Leases)
		most("warm_pool.max_size", "leases", s.WarmPool.MaxSize, c.Leases)
	}
	return f
}

// Tenant is a caller whose token is limited to environments. Operators' tokens have no limit: a nil Tenant.
type Tenant struct {
	// Name is the token's name.
	Name string
	// Environments are the token's patterns; see Token.
	Environments []string
	Ceiling      Ceiling
}

// MatchesEnvironment reports whether one of the path.Match patterns matches an environment's id.
func MatchesEnvironment(patterns []string, environmentID string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, environmentID)
		return ok && err == nil
	})
}

// SnapshotNamespace says which leases share the snapshots of agents (ScopeAgent). It holds the sorted patterns
// of the leasing token and is empty for the operator. So every token of a namespace may touch each environment
// whose snapshots are in it. A token that may touch fewer or other environments has another namespace.
type SnapshotNamespace []string

// SnapshotNamespace returns the namespace of the tenant's leases.
func (t *Tenant) SnapshotNamespace() SnapshotNamespace {
	if t == nil {
		return nil
	}
	sorted := slices.Clone(t.Environments)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// Allows reports whether tokens of the namespace may touch an environment.
func (n SnapshotNamespace) Allows(environmentID string) bool {
	return len(n) == 0 || MatchesEnvironment(n, environmentID)
}

// key names the snapshot of an agent in the namespace. No DID contains "@".
func (n SnapshotNamespace) key(agentDID string) string {
	if len(n) == 0 {
		return agentDID
	}
	escaped := make([]string, len(n))
	for i, pattern := range n {
		escaped[i] = escapeComma.Replace(pattern)
	}
	patterns := strings.Join(escaped, ",")
	if len(patterns) > maxNamespaceText {
		sum := sha256.Sum256([]byte(patterns))
		patterns = "sha256:" + hex.EncodeToString(sum[:])
	}
	return agentDID + "@" + patterns
}

// escapeComma makes a pattern with a comma distinct from two patterns.
var escapeComma = strings.NewReplacer("%", "%25", ",", "%2C")

// maxNamespaceText limits the patterns in a key, because databases index it. Longer ones are replaced by their
// hash.
const maxNamespaceText = 512

// Actor is the caller that requested a change. Events record it. The zero Actor is the service itself.
type Actor struct {
	// Name is "token:<name>", "oidc:<user>" or "secret:<id>" for HTTP callers. Otherwise it names the program that works
	// on the ledger directly.
	Name string
	// Address is the caller's network address, "" if the request came over no network.
	Address string
}

type actorKey struct{}

// WithActor returns a context whose changes are made on behalf of a. Events record the actor.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf returns the actor of the context.
func ActorOf(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a
}
