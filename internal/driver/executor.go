package driver

import (
	"context"
	"io"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Executor drives one backend instance. Its methods are safe for concurrent use, honour ctx, and are idempotent except
// for Exec.
//
// All errors carry a Code. Every method may return Unavailable or UnknownOutcome. Unavailable means that the instance
// is unreachable, or that another instance than the handle's answered; nothing is known to have changed. UnknownOutcome
// means that the request was sent but the answer was lost. Only the instance that the handle names can return NotFound.
type Executor interface {
	Backend() sandbox.Backend
	// Instance returns the id of the backend instance that answers now. Errors: Unavailable.
	Instance(ctx context.Context) (string, error)
	Capabilities() Capabilities
	Provisioner
	Lifecycle
	Runner
	ProcessRunner
	FileAccess
	SecretWriter
	Exporter
	Observer
	Cleaner
	Auditor
	EgressLogger
	io.Closer
}

// Capabilities says what a backend can do.
type Capabilities struct {
	// Pause: SleepPause keeps processes and memory.
	Pause bool
	// PIDLimit and DiskLimit: the limits are enforced.
	PIDLimit, DiskLimit bool
	// CPUTime: Usage reports CPU seconds.
	CPUTime bool
	// Exec: Runner works. Test doubles of a backend may lack it.
	Exec bool
	// FullNetwork: a sandbox may have its own network (NetworkFull).
	FullNetwork bool
	// Gateway: restricted networks use a gateway per environment, which Repair revives.
	Gateway bool
	// WarmPool: Assign works, so sandboxes may wait for their leases.
	WarmPool bool
	// Confined: this program confines the sandbox as Confinement says. Otherwise the backend does, and secrets may be on a
	// disk that is deleted with the sandbox.
	Confined bool
	// Channel: commands reach process 1 over a channel. Sandbox code can neither stop nor trace the process
	// that starts them.
	Channel bool
	// Verifier: Exec accepts AsVerifier in sandboxes with a separate user.
	Verifier bool
	// Disk: a stopped sandbox keeps its files. Otherwise it keeps only /data.
	Disk bool
	// KeepsDisk: SandboxSpec.KeepDisk works on this backend, which lacks Disk.
	KeepsDisk bool
	// TakesImages: Provision transfers the environment's image to the backend, within ImageLimit.
	TakesImages bool
	// Metered: the executor is a Meter.
	Metered bool
	// Records: Boots returns all boots, until a week after a sandbox was killed.
	Records bool
	// KeepsTime: the backend itself puts an unused sandbox to sleep and ends it by the latest Limits, even
	// without this program. It waits a little longer than they say, so that this program acts first.
	KeepsTime bool
	// Companions: the executor is a CompanionHost.
	Companions bool
	// Readings: List returns readings of usage, so that a look at all sandboxes asks none of them.
	Readings bool
}

// Limits say how long a sandbox may stay unused.
type Limits struct {
	// TTL is the time until the sandbox ends. SleepAfter is the time until it sleeps; 0 means never.
	TTL, SleepAfter sandbox.Duration
}

// ImageLimit limits the transfer of an image to a backend, and its pull by the backend. A retry continues an
// interrupted transfer.
const ImageLimit = 30 * time.Minute

// EnvironmentRef names an environment's resources on a backend instance.
type EnvironmentRef struct {
	LedgerID      string
	EnvironmentID string
	Instance      string
}

// Provisioner creates and removes the resources that the sandboxes of one environment share.
type Provisioner interface {
	// Check rejects settings that Provision would reject. It changes nothing. Errors: as for Provision; Invalid, naming
	// each field.
	Check(ctx context.Context, ref EnvironmentRef, spec sandbox.EnvironmentSpec) error
	// Provision creates the resources or finds them. Errors: NotFound with ReasonImageNotFound; Failed; Conflict if an
	// object with that name is not ours.
	Provision(ctx context.Context, ref EnvironmentRef, spec sandbox.EnvironmentSpec) error
	// Repair restores the provisioned resources. It returns the problem that it found, or "". It leaves working resources
	// alone. If it returns an error, the problem persists. Errors: as for Provision.
	Repair(ctx context.Context, ref EnvironmentRef, spec sandbox.EnvironmentSpec) (found string, err error)
	// Differences returns the settings that differ from what Provision sets. It changes nothing. It returns none if the
	// environment has no resource that another program could change. Errors: as for Provision.
	Differences(ctx context.Context, ref EnvironmentRef, spec sandbox.EnvironmentSpec) ([]Difference, error)
	// Deprovision removes the resources. Absent resources are success. Errors: Conflict while sandboxes use them.
	Deprovision(ctx context.Context, ref EnvironmentRef) error
}

// Difference is a provisioned setting that differs from the wanted one. The wanted and the found value are for display.
type Difference struct {
	Setting, Wanted, Found string
	// Kept: Provision does not change it.
	Kept bool
}

// SandboxSpec is everything that a backend needs to create a sandbox.
type SandboxSpec struct {
	Handle
	// LeaseID, AgentDID and Config are empty, and Generation 0, for a sandbox that waits in a warm pool.
	LeaseID         string
	Generation      int64
	AgentDID        string
	EnvironmentType sandbox.EnvironmentType
	Image           string
	Resources       sandbox.Resources
	Network         sandbox.NetworkMode
	// Egress has the rules of a restricted network. Other modes ignore it.
	Egress sandbox.Egress
	// LLM are the protocols of the environment's LLM routes, by name.
	LLM       map[string]sandbox.LLMAPI
	SleepMode sandbox.SleepMode
	// KeepDisk keeps the disk during sleep, on a backend with Capabilities.KeepsDisk. Observation.Disk has its state.
	KeepDisk bool
	// The zero values of Confinement are its defaults.
	Confinement sandbox.Confinement
	// Mount sources must not contain symlinks.
	Mounts []sandbox.Mount
	// Labels are the lease's labels, for a backend whose objects have labels.
	Labels map[string]string
	// Companions are created with the sandbox. Their defaults are filled in.
	Companions sandbox.Companions
	// Env is set in every process, in addition to the reserved variables.
	Env map[string]string
	// Deadline is leased_at + max_lifetime by the ledger's clock. At that time the sandbox ends itself, even without a
	// reconciler.
	Deadline time.Time
	// AsOf is the ledger's time when the spec was written. A backend whose clock differs computes the
	// remaining time from it. Zero means that the ledger uses this machine's clock.
	AsOf time.Time
	// Limits and ExpiryConditions are the lease's, for a backend that keeps time or records itself. Touch sends changed
	// limits.
	Limits
	ExpiryConditions []string
	// Config becomes /workspace/config.json before the first command.
	Config []byte
	// Version is the reconciler's version.
	Version string
}

// SystemVariables are the variables that the system sets in every process of a sandbox.
func (s SandboxSpec) SystemVariables() map[string]string {
	return map[string]string{
		"IS_SANDBOXED":           "true",
		"SANDBOX_VERSION":        s.Version,
		"AGENT_DID":              s.AgentDID,
		"ENVIRONMENT_ID":         s.EnvironmentID,
		"ENVIRONMENT_TYPE":       string(s.EnvironmentType),
		"ALLOWED_ROOT_DIRECTORY": sandbox.WorkspaceRoot,
	}
}

// UsesGateway reports whether the sandbox uses its environment's gateway.
func (s SandboxSpec) UsesGateway() bool {
	return s.Network == sandbox.NetworkRestricted || len(s.LLM) > 0
}

// Handle names one sandbox on one backend instance, or one of its companions.
type Handle struct {
	LedgerID      string
	EnvironmentID string
	SandboxID     string
	Instance      string
	// Companion is "" for the sandbox itself.
	Companion string
}

// Lifecycle creates sandboxes, puts them to sleep, wakes them and ends them.
type Lifecycle interface {
	// Spawn creates the sandbox and returns when it accepts commands. It is idempotent by sandbox id: a second call finds
	// the first one's sandbox. Errors: NotFound with ReasonImageNotFound; CapacityExceeded; Conflict if an object that is
	// not ours has the name; Failed if the sandbox did not start (Kill removes the rest).
	Spawn(ctx context.Context, spec SandboxSpec) error
	// Sleep puts the sandbox to sleep. A sleeping sandbox is success. Errors: NotFound, Failed.
	Sleep(ctx context.Context, h Handle, mode sandbox.SleepMode) error
	// Assign gives an awake sandbox of a warm pool (created from a spec without an agent) to a lease. It sets the spec's
	// agent and config, and the spec's deadline if that is earlier than the current one. They are in force when it
	// returns, and survive a stop. Assigning again to the same lease is success. Errors: NotFound; Failed; Conflict with
	// ReasonInvalidState if the sandbox is asleep, was not created for a pool, or belongs to another lease.
	Assign(ctx context.Context, spec SandboxSpec) error
	// Wake makes the sandbox accept commands again. An awake sandbox is success. started reports, even with an error, that
	// this call started a stopped sandbox, so that its CPU time counts from zero. It is false if the sandbox was paused.
	// It may be false if an earlier call started the sandbox and its answer was lost, and on a backend that numbers boots,
	// because Boots reports the start. Errors: NotFound, with ReasonPartMissing if only part of the sandbox exists, such
	// as a container without its network (it is not created again); Failed.
	Wake(ctx context.Context, h Handle) (started bool, err error)
	// Touch tells the backend that the sandbox was just used, sends its limits, and returns its state. It starts nothing.
	// A backend that does not keep time only inspects. Errors: NotFound.
	Touch(ctx context.Context, h Handle, l Limits) (Observation, error)
	// Kill ends the sandbox and removes everything that belongs to it alone: processes, files, volumes, sockets. It
	// returns nil only when all of that is gone. An absent sandbox is success.
	Kill(ctx context.Context, h Handle) error
}

// Runner runs commands and moves files in an awake sandbox.
type Runner interface {
	// Exec runs a normalized request. A command that fails is a result, not an error. If ctx ends first or the connection
	// breaks, the command and everything that it started end too. A detached command continues, and survives the death of
	// this process. Errors: NotFound; Conflict with ReasonInvalidState if the sandbox is asleep, with ReasonOtherSettings
	// if it has already run a command with that id, or with ReasonVerifierRuns; Invalid; UnknownOutcome.
	Exec(ctx context.Context, h Handle, r sandbox.ExecRequest) (sandbox.ExecResult, error)
	// Follow replays a command's output, continues until the command ends, and returns its result. If ctx ends, Follow
	// ends but the command does not. Until it is stopped, a sandbox keeps the first 16 MiB of each stream, for running
	// commands and the most recently ended ones. Truncated says that there was more. Errors: NotFound, with
	// ReasonExecNotFound if the sandbox does not, or no longer, know the command; Failed with ReasonExecFailed if the
	// command ended in an unknown way; Conflict with ReasonInvalidState; UnknownOutcome (follow again).
	Follow(ctx context.Context, h Handle, r sandbox.Replay) (sandbox.ExecResult, error)
	// EndExec ends a command and everything that it started. user is the command's user, "" for the sandbox's own. A
	// command that has ended or never existed is success. Errors: NotFound; Conflict with ReasonInvalidState; Failed.
	EndExec(ctx context.Context, h Handle, id, user string) error
	// CopyTo unpacks a tar stream under a directory in Roots. If needed, it creates the directory, owned by the sandbox's
	// user. It rejects entries and links that point outside of the directory (Invalid). It may return before a Read of the
	// stream does; see Unpack.
	CopyTo(ctx context.Context, h Handle, dir string, tar io.Reader) error
	// CopyFrom returns a file or directory as a tar stream with names relative to the parent of path. There are no hard
	// links: every entry of a file has its content, so that a reader may pick entries. Errors: NotFound with
	// ReasonFileNotFound; Invalid.
	CopyFrom(ctx context.Context, h Handle, path string) (io.ReadCloser, error)
}

// Observation is what a backend reports about one sandbox.
type Observation struct {
	Handle
	// LeaseID, AgentDID, Generation and Deadline have their values at the sandbox's creation. They are zero if the backend
	// does not know them.
	LeaseID    string
	AgentDID   string
	Generation int64
	Deadline   time.Time
	State      sandbox.State
	Image      string // the reference or id from the spec that created the sandbox
	Resources  sandbox.Resources
	ExitCode   int
	OOMKilled  bool
	CreatedAt  time.Time
	StartedAt  time.Time
	StoppedAt  time.Time
	// Boot is the number of its latest boot, 0 if the backend does not count boots.
	Boot int64
	// Hangs: the instance answers, but not about this sandbox. Only the handle, the owner, State and CreatedAt are known.
	Hangs bool
	// Companions are the sandbox's existing companions, by name.
	Companions map[string]CompanionObservation
	// Reading is the latest reading of its usage. Only List on a backend with Capabilities.Readings sets it.
	Reading Reading
	// Rest is why its backend stopped it: StopIdle (the backend's own decision) or StopRequest (a request). It is "" if
	// the sandbox runs, stopped in another way, or stopped for an unknown reason.
	Rest sandbox.StopReason
	// Disk is nil for a sandbox without SandboxSpec.KeepDisk.
	Disk *sandbox.KeptDisk
}

// Boot is a backend's record of a sandbox from one start to the next stop.
type Boot struct {
	// Number counts the boots of a sandbox from 1 without gaps; 0 if the backend does not count boots.
	Number    int64
	StartedAt time.Time
	// StoppedAt is zero while it runs. A paused sandbox runs.
	StoppedAt time.Time
	// RemovedAt is when the sandbox was removed. It is zero if the sandbox exists or the time is unknown.
	RemovedAt time.Time
	// CPUTime is the CPU time recorded for the boot.
	CPUTime time.Duration
	// Size is the size that the boot had, if it may differ from that of the sandbox's creation; otherwise zero. A change
	// of the environment's size applies to later boots on some backends.
	Size sandbox.Resources
}

// Usage is what a sandbox has used.
type Usage struct {
	CPUTime     time.Duration // since it last started
	MemoryBytes int64
	PIDs        int64
}

// Reading is a reading of usage that a backend keeps.
type Reading struct {
	Usage
	Boot int64     // the boot whose usage it is
	At   time.Time // zero if there is no reading
}

// Observer inspects sandboxes without starting or waking anything.
type Observer interface {
	// Inspect returns one sandbox. Errors: NotFound.
	Inspect(ctx context.Context, h Handle) (Observation, error)
	// List returns every sandbox on this instance with the ledger's label. It includes a sandbox that hangs
	// (Observation.Hangs), which delays it by seconds. If some environments do not answer, it returns the sandboxes of the
	// others and a *PartialError. Nothing is then known about the missing ones.
	List(ctx context.Context, ledgerID string) ([]Observation, error)
	// ListEnvironment is List for the sandboxes of one environment. It asks about no others.
	ListEnvironment(ctx context.Context, ref EnvironmentRef) ([]Observation, error)
	// Usage samples a running or paused sandbox. Errors: NotFound; Conflict if it is stopped.
	Usage(ctx context.Context, h Handle) (Usage, error)
	// Boots returns when a sandbox ran, in order. With Capabilities.Records it returns every recorded start and stop,
	// including those while this program was down. Otherwise it returns only the latest boot. The sandbox must exist, or
	// the backend must still remember its end; then RemovedAt is set. StartedAt is zero if the backend forgot it. Errors:
	// NotFound if nothing is, or is still, known.
	Boots(ctx context.Context, h Handle) ([]Boot, error)
	// Watch calls changed with the id of each of the ledger's sandboxes whose state changes. When ctx ends or the
	// connection breaks, it returns the reason. It calls ready once the watch is established: a List after that misses
	// nothing. Calls are hints: the receiver must inspect the sandbox. An environment that does not answer does not end
	// the watch. Watch reports its changes once it answers.
	Watch(ctx context.Context, ledgerID string, ready func(), changed func(sandboxID string)) error
}

// SecretWriter writes secrets into sandboxes.
type SecretWriter interface {
	// PutSecrets replaces the content of SecretsDir in an awake sandbox. It writes each secret atomically. It is
	// idempotent. Secrets are in memory: stopping a sandbox removes them. Errors: NotFound; Conflict with
	// ReasonInvalidState if the sandbox is asleep; Failed.
	PutSecrets(ctx context.Context, h Handle, secrets map[string]sandbox.Secret) error
}

// Exporter reads the data that a sandbox keeps.
type Exporter interface {
	// Export returns a tar stream of the sandbox's /data with names relative to /data. The sandbox may be
	// awake, paused or stopped.
	//
	// The archive is consistent, because no code of the sandbox runs during the read. An awake sandbox is frozen until the
	// stream is read to its end or closed. Until then other calls for this sandbox may wait or find it paused. If another
	// caller wakes the sandbox before the end, the stream ends with Conflict. A caller that dies leaves the sandbox
	// frozen; Wake thaws it.
	//
	// ctx bounds the stream. An incomplete stream ends with an error other than io.EOF. Close returns the error of thawing
	// the sandbox. Errors: NotFound, Failed.
	Export(ctx context.Context, h Handle) (io.ReadCloser, error)
}

// Auditor inspects the actual confinement of sandboxes, not the requested one.
type Auditor interface {
	// Audit checks every sandbox with the ledger's label on this instance, and the gateways and relays, against all
	// applicable rules. It starts and changes nothing.
	Audit(ctx context.Context, ledgerID string) ([]sandbox.AuditCheck, error)
}

// EgressLogger reads the log of what restricted sandboxes try to reach. It starts and wakes nothing.
type EgressLogger interface {
	// EgressLogs returns the environments of a ledger that have a log on this instance. If some do not answer, it returns
	// the others and an error.
	EgressLogs(ctx context.Context, ledgerID string) ([]EnvironmentRef, error)
	// EgressLog returns a page of the oldest lines after a position. The page is empty if there are none yet. Errors:
	// Unavailable while the program that keeps the log is down.
	EgressLog(ctx context.Context, ref EnvironmentRef, after sandbox.GatewayPosition) ([]sandbox.EgressRecord, error)
}
