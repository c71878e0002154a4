package driver

import (
	"context"
	"io"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Executor drives one backend instance. Its methods are safe for concurrent use, honour ctx, and
// may be called twice for the same thing without harm, Exec excepted.
//
// All errors carry a Code. Every method may return Unavailable (the instance cannot be reached, or
// another instance answers than the handle names: nothing is known to have changed) and
// UnknownOutcome (the request was sent, its answer was lost). NotFound is only ever the word of the
// instance that the handle names.
type Executor interface {
	Backend() sandbox.Backend
	// Instance returns the id of the backend instance that answers now. Errors: Unavailable.
	Instance(ctx context.Context) (string, error)
	Capabilities() Capabilities
	Provisioner
	Lifecycle
	Runner
	ProcessRunner
	Filer
	SecretBearer
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
	// FullNetwork: a sandbox may have a network of its own (NetworkFull).
	FullNetwork bool
	// WarmPool: Assign works, and so sandboxes may wait for their leases.
	WarmPool bool
	// Confined: what shuts a sandbox in is this program's, as Confinement says. Elsewhere it is the backend's
	// own, and secrets may lie on a disk that ends with the sandbox.
	Confined bool
	// Channel: commands reach process 1 over a channel. Code of the sandbox can neither stop nor trace what starts them.
	Channel bool
	// Verifier: Exec takes AsVerifier, in sandboxes whose user is their own.
	Verifier bool
	// Disk: a sandbox that was stopped finds its files as they were. Without, all but /data is gone.
	Disk bool
	// TakesImages: Provision brings the environment's image to the backend, for up to ImageLimit.
	TakesImages bool
	// Metered: the executor is a Meter.
	Metered bool
	// Records: Incarnations has all of them, of a sandbox that was killed for a week still.
	Records bool
	// KeepsTime: an unused sandbox rests, and ends, by the latest Limits that it got, also when
	// this program is away. It waits a little longer than they say, so that this program comes first.
	KeepsTime bool
}

// Limits are for how long a sandbox may go unused.
type Limits struct {
	// TTL is until it ends. SleepAfter is until it rests; 0 is never.
	TTL, SleepAfter sandbox.Duration
}

// ImageLimit bounds how long it may take to bring an image to a backend. What broke off goes on when it is repeated.
const ImageLimit = 30 * time.Minute

// EnvironmentRef names what an environment has on a backend instance.
type EnvironmentRef struct {
	LedgerID      string
	EnvironmentID string
	Instance      string
}

// Provisioner makes and removes what the sandboxes of one environment share.
type Provisioner interface {
	// Check refuses settings that Provision would refuse, and changes nothing. Errors: as Provision, and
	// Invalid, naming each field.
	Check(ctx context.Context, ref EnvironmentRef, spec sandbox.EnvironmentSpec) error
	// Provision makes it, or finds it made. Errors: NotFound with ReasonImageNotFound, Failed, Conflict
	// when an object of that name is not ours.
	Provision(ctx context.Context, ref EnvironmentRef, spec sandbox.EnvironmentSpec) error
	// Mend sees to it that what was provisioned works as it did, and returns what it found wrong, "" when
	// that was nothing. It disturbs nothing that works. Errors: as Provision; what was found wrong is so still.
	Mend(ctx context.Context, ref EnvironmentRef, spec sandbox.EnvironmentSpec) (found string, err error)
	// Differences returns the settings of what was provisioned that are not as Provision makes them, and changes
	// nothing; none where nothing was made that others could change. Errors: as Provision.
	Differences(ctx context.Context, ref EnvironmentRef, spec sandbox.EnvironmentSpec) ([]Difference, error)
	// Deprovision removes it; absent is success. Errors: Conflict while sandboxes use it.
	Deprovision(ctx context.Context, ref EnvironmentRef) error
}

// Difference is a setting of what was provisioned that is not as it should be. What was wanted and what was found
// are for readers.
type Difference struct{ Setting, Wanted, Found string }

// SandboxSpec is everything a backend needs to make a sandbox.
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
	// Egress is what a restricted network lets out, and is not used by other modes.
	Egress    sandbox.Egress
	SleepMode sandbox.SleepMode
	// Confinement's zero values are its defaults.
	Confinement sandbox.Confinement
	// Mount sources must not contain symlinks.
	Mounts []sandbox.Mount
	// Env is set in every process, beside the variables that the system reserves.
	Env map[string]string
	// Deadline is leased_at + max_lifetime by the ledger's clock: the sandbox ends itself then, without a reconciler.
	Deadline time.Time
	// AsOf is the ledger's time when this was written: a backend whose clock differs counts what is left from it.
	// Zero means that the ledger's clock is this machine's.
	AsOf time.Time
	// Limits and ExpiryConditions are those of the lease, for a backend that keeps time or records of its own.
	// Renew tells of other limits.
	Limits
	ExpiryConditions []string
	// Config is written to /workspace/config.json before the first command.
	Config []byte
}

// Handle names one sandbox on one backend instance.
type Handle struct {
	LedgerID      string
	EnvironmentID string
	SandboxID     string
	Instance      string
}

// Lifecycle makes, rests and ends sandboxes.
type Lifecycle interface {
	// Spawn makes the sandbox and returns when it takes commands. It is idempotent on the sandbox
	// id: a second call finds the first one's sandbox. Errors: NotFound with ReasonImageNotFound,
	// CapacityExceeded, Conflict (the name is taken by something that is not ours), Failed (it was
	// made and did not come up; what is left is for Kill).
	Spawn(ctx context.Context, spec SandboxSpec) error
	// Sleep puts it to rest. Asleep is success. Errors: NotFound, Failed.
	Sleep(ctx context.Context, h Handle, mode sandbox.SleepMode) error
	// Assign tells a sandbox that is awake and was made for a warm pool (a spec without an agent) whose it is from now on: the
	// spec's agent and config, and its deadline where that is earlier than the one it was made with. When it returns, they
	// are in force, and stay so after a stop. Assigning again, to the same lease, is success. Errors: NotFound, Failed,
	// Conflict with ReasonInvalidState when the sandbox is asleep, was not made for a pool or is another lease's.
	Assign(ctx context.Context, spec SandboxSpec) error
	// Wake makes it take commands again. Awake is success. Errors: NotFound, with ReasonPartMissing when only
	// a part of it is there, such as a container without its network, which is not made again; Failed.
	Wake(ctx context.Context, h Handle) error
	// Renew tells a sandbox that it was used just now, and its limits, and returns how it stands since. It starts
	// nothing. A backend that does not keep time only looks. Errors: NotFound.
	Renew(ctx context.Context, h Handle, l Limits) (Observation, error)
	// Kill ends it and removes everything that belonged to it alone: processes, files, volumes,
	// sockets. It returns nil only when all of that is gone; absent is success.
	Kill(ctx context.Context, h Handle) error
}

// Runner works inside a sandbox that is awake.
type Runner interface {
	// Exec runs a normalized request. A command that fails is a result, not an error. When ctx ends
	// first, or the connection breaks, the command and all it started are ended too, unless it is
	// detached. When this process dies, it goes on. Errors: NotFound, Conflict with ReasonInvalidState
	// (asleep), ReasonOtherSettings (the sandbox has run a command of that id) or ReasonVerifierRuns, Invalid, UnknownOutcome.
	Exec(ctx context.Context, h Handle, r sandbox.ExecRequest) (sandbox.ExecResult, error)
	// Follow replays a command's output, goes on to the command's end and returns its result; it ends
	// with ctx, and the command does not. A sandbox keeps the first 16 MiB of each stream of commands
	// that run and of those that have ended last, until it is stopped; Truncated says that there was
	// more. Errors: NotFound, with ReasonExecNotFound when the sandbox knows no such command (any more);
	// Failed with ReasonExecFailed when the command ended in an unknown way; Conflict with
	// ReasonInvalidState; UnknownOutcome (follow again).
	Follow(ctx context.Context, h Handle, r sandbox.Replay) (sandbox.ExecResult, error)
	// EndExec ends a command that was run by a user ("" for the sandbox's own), and all it started.
	// One that has ended, or never was, is success. Errors: NotFound, Conflict with ReasonInvalidState, Failed.
	EndExec(ctx context.Context, h Handle, id, user string) error
	// CopyTo unpacks a tar stream under an existing or new directory of Roots, owned by the
	// sandbox's user. Entries and links that lead outside of it are refused (Invalid).
	CopyTo(ctx context.Context, h Handle, dir string, tar io.Reader) error
	// CopyFrom returns a file or directory as a tar stream, whose names are relative to the
	// parent of path. Errors: NotFound with ReasonFileNotFound, Invalid.
	CopyFrom(ctx context.Context, h Handle, path string) (io.ReadCloser, error)
}

// Observation is what a backend says about one sandbox.
type Observation struct {
	Handle
	// LeaseID, AgentDID, Generation and Deadline are those that the sandbox was made with, zero where
	// the backend does not know them.
	LeaseID    string
	AgentDID   string
	Generation int64
	Deadline   time.Time
	State      sandbox.State
	Image      string // the reference or id that the sandbox was made from, as the spec had it
	Resources  sandbox.Resources
	ExitCode   int
	OOMKilled  bool
	CreatedAt  time.Time
	StartedAt  time.Time
	StoppedAt  time.Time
	// Incarnation is the number of its last start, 0 where its backend does not count them.
	Incarnation int64
	// Hangs: the instance answers, but not about this sandbox. Only the handle, whose it is, State and CreatedAt are known.
	Hangs bool
	// Rest is why its backend has stopped it: StopIdle, by itself; StopRequest, because it was told to. It is ""
	// for one that runs, that stopped otherwise, or for an unknown reason.
	Rest sandbox.StopReason
}

// Incarnation is what a backend has recorded of a sandbox from one start to the stop after it.
type Incarnation struct {
	// Number counts the starts of a sandbox, from 1 and without gaps; 0 where its backend does not count them.
	Number    int64
	StartedAt time.Time
	// StoppedAt is zero while it runs. A paused sandbox runs.
	StoppedAt time.Time
	// RemovedAt is when the sandbox was removed, zero while it is there and where that is not known.
	RemovedAt time.Time
	// CPUTime is what it used, as far as that was recorded.
	CPUTime time.Duration
}

// Usage is what a sandbox has used.
type Usage struct {
	CPUTime     time.Duration // since it last started
	MemoryBytes int64
	PIDs        int64
}

// Observer looks without touching: nothing is started or woken.
type Observer interface {
	// Inspect looks at one sandbox. Errors: NotFound.
	Inspect(ctx context.Context, h Handle) (Observation, error)
	// List returns every sandbox on this instance that carries the ledger's label. One that hangs delays it by
	// seconds, and is in it (Observation.Hangs). Where some environments do not answer it returns the sandboxes of
	// the others and a *PartialError: nothing is known of what is missing then.
	List(ctx context.Context, ledgerID string) ([]Observation, error)
	// Usage samples one sandbox that runs or is paused. Errors: NotFound, Conflict when it is stopped.
	Usage(ctx context.Context, h Handle) (Usage, error)
	// Incarnations returns when a sandbox ran, in order: where Capabilities.Records, as it was recorded at
	// each start and stop, also while this program was away; elsewhere the last time alone, of a sandbox that is there or, with
	// RemovedAt, of one whose end the backend still remembers. StartedAt is zero where that is forgotten.
	// Errors: NotFound when nothing is known of it (any more).
	Incarnations(ctx context.Context, h Handle) ([]Incarnation, error)
	// Watch calls changed with the id of each of the ledger's sandboxes whose state changes, until
	// ctx ends or the connection breaks; then it returns why. ready is called once the watch is
	// established: a List after it misses nothing. Hints only: the receiver looks for itself. An environment that
	// does not answer ends no watch: what has changed there is reported once it answers.
	Watch(ctx context.Context, ledgerID string, ready func(), changed func(sandboxID string)) error
}
