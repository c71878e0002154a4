// Package fake is a backend in memory, for tests of the layers above an executor. It fulfils the lifecycle and observer
// parts of the contract (executortest), and fails on demand. Its commands are "echo", "cat", "pwd", "printenv <name>",
// "exit <n> <words to write to stderr>", and "sleep <duration> <words to write then>". Its shell is in shell.go.
package fake

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Op names a method of an executor, for faults.
type Op string

// The operations with faults.
const (
	OpInstance         Op = "instance"
	OpCheck            Op = "check"
	OpProvision        Op = "provision"
	OpRepair           Op = "repair"
	OpDiffer           Op = "differ"
	OpDeprovision      Op = "deprovision"
	OpSpawn            Op = "spawn"
	OpSleep            Op = "sleep"
	OpAssign           Op = "assign"
	OpWake             Op = "wake"
	OpTouch            Op = "touch"
	OpKill             Op = "kill"
	OpExec             Op = "exec"
	OpFollow           Op = "follow"
	OpEndExec          Op = "end_exec"
	OpRunProcess       Op = "run_process"
	OpAwaitPort        Op = "await_port"
	OpConnect          Op = "connect"
	OpInspect          Op = "inspect"
	OpList             Op = "list"
	OpExport           Op = "export"
	OpReadDisk         Op = "read_disk"
	OpThaw             Op = "thaw" // the thaw after an export
	OpUsage            Op = "usage"
	OpBoots            Op = "boots" // when a sandbox ran
	OpDependents       Op = "dependents"
	OpRemove           Op = "remove"
	OpAudit            Op = "audit"
	OpPutSecrets       Op = "put_secrets"
	OpEgressLogs       Op = "egress_logs"
	OpEgressLog        Op = "egress_log"
	OpServeLLM         Op = "serve_llm"
	OpServeCredentials Op = "serve_credentials"
	OpLLMCalls         Op = "llm_calls"
	OpMeter            Op = "meter"
	OpWatch            Op = "watch"
	OpWitness          Op = "witness"
	OpLeaveWitness     Op = "leave_witness"
)

// Ops returns all operations.
func Ops() []Op {
	return []Op{
		OpInstance, OpCheck, OpProvision, OpRepair, OpDiffer, OpDeprovision, OpSpawn, OpSleep, OpAssign, OpWake, OpTouch,
		OpKill, OpExec, OpFollow, OpEndExec, OpRunProcess, OpAwaitPort, OpConnect, OpInspect,
		OpList, OpExport, OpReadDisk, OpThaw, OpUsage, OpBoots,
		OpDependents, OpRemove, OpAudit, OpPutSecrets, OpEgressLogs, OpEgressLog, OpServeLLM, OpServeCredentials,
		OpLLMCalls, OpMeter, OpWatch,
		OpWitness, OpLeaveWitness,
	}
}

// Executor is a backend in memory. The zero value is not ready; use New.
type Executor struct {
	*machine
	fileAccess
	runner
	gateways

	// mu guards what follows.
	spawned  map[string]int
	broken   map[driver.EnvironmentRef]string // what Repair finds
	changed  map[driver.EnvironmentRef][]driver.Difference
	metered  []driver.Metered // for each environment alone; nil if it meters none
	together *driver.MeteredGroup
	// readings means that List returns the usage at the last TakeReadings.
	readings bool
}

// machine is the state that all parts of a backend share, including the faults of calls.
type machine struct {
	now func() time.Time

	late       sync.WaitGroup // reads that outlive their calls
	mu         sync.Mutex     // guards what follows
	instance   string
	containers map[string]*container
	muted      map[string]error // why environments do not answer
	faults     map[Op]func(ctx context.Context) error
	watchers   map[*watch]struct{}
	installed  map[driver.EnvironmentRef]bool
	objects    map[string]driver.Dependent // all objects except sandboxes, by name
	// witnesses are the ledgers' numbers on the instance; expected are the numbers that this program knows.
	witnesses, expected map[string]int64
	disk                *sandbox.KeptDisk // nil: it keeps no disks
	// records means that starts are counted and recorded, even those of removed sandboxes.
	records bool
	removed map[string]*record // empty unless records or remembers
	// remembers means that it reports the last boot of a removed sandbox.
	remembers bool
	// grace is how much longer than their limits sandboxes may stay unused; negative: the backend does not keep time.
	grace time.Duration
}

type container struct {
	spec driver.SandboxSpec
	obs  driver.Observation
	// pooled means that it belongs to no lease yet.
	pooled  bool
	files   map[string]file
	cpu     time.Duration
	secrets map[string]sandbox.Secret // lost when it is stopped
	// commands are the commands since its last start, by id.
	commands map[string]*command
	// changed is closed and replaced when the output or the ports of a command change.
	changed chan struct{}
	// hung is not nil while the backend hangs on calls about it.
	hung chan struct{}
	// weakened is the finding of an audit.
	weakened string
	record   record
	reading  driver.Reading
	// limits apply since usedAt.
	limits driver.Limits
	usedAt time.Time
}

type watch struct {
	changed func(string)
	broken  chan error
}

var _ driver.Executor = (*Executor)(nil)

// New returns a backend instance with the given id. A nil now means time.Now.
func New(instance string, now func() time.Time) *Executor {
	if now == nil {
		now = time.Now
	}
	m := &machine{
		now: now, instance: instance, containers: make(map[string]*container), muted: make(map[string]error),
		faults: make(map[Op]func(context.Context) error), watchers: make(map[*watch]struct{}),
		installed: make(map[driver.EnvironmentRef]bool), objects: make(map[string]driver.Dependent),
		witnesses: make(map[string]int64), expected: make(map[string]int64),
		removed: make(map[string]*record), grace: -1,
	}
	return &Executor{
		machine: m, fileAccess: fileAccess{m}, runner: runner{m}, gateways: newGateways(m),
		spawned: make(map[string]int), broken: make(map[driver.EnvironmentRef]string),
		changed: make(map[driver.EnvironmentRef][]driver.Difference),
	}
}

// Backend implements driver.Executor.
func (x *Executor) Backend() sandbox.Backend { return sandbox.Docker }

// Capabilities implements driver.Executor.
func (x *Executor) Capabilities() driver.Capabilities {
	x.mu.Lock()
	defer x.mu.Unlock()
	return driver.Capabilities{
		Pause:     true,
		CPUTime:   true,
		WarmPool:  true,
		Verifier:  true,
		Gateway:   true,
		Disk:      true,
		Records:   x.records,
		KeepsTime: x.grace >= 0,
		Metered:   x.metered != nil || x.together != nil,
		Readings:  x.readings,
		KeepsDisk: x.disk != nil,
	}
}

// Close implements driver.Executor.
func (x *Executor) Close() error {
	x.late.Wait()
	return nil
}

// Instance implements driver.Executor.
func (x *Executor) Instance(ctx context.Context) (string, error) {
	if err := x.fault(ctx, OpInstance); err != nil {
		return "", err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.instance, nil
}

// Check implements driver.Executor. It only fails on demand.
func (x *Executor) Check(ctx context.Context, ref driver.EnvironmentRef, _ sandbox.EnvironmentSpec) error {
	err := x.enter(ctx, OpCheck, ref.Instance)
	if err == nil {
		x.mu.Unlock()
	}
	return err
}

// Provision implements driver.Executor.
func (x *Executor) Provision(ctx context.Context, ref driver.EnvironmentRef, _ sandbox.EnvironmentSpec) error {
	if err := x.enter(ctx, OpProvision, ref.Instance); err != nil {
		return err
	}
	defer x.mu.Unlock()
	x.installed[ref] = true
	delete(x.changed, ref)
	x.keep(environmentHandle(ref), driver.DependentGuest, driver.DependentTemplate)
	return nil
}

// Alter makes Differences return these differences until the next Provision.
func (x *Executor) Alter(ref driver.EnvironmentRef, all ...driver.Difference) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changed[ref] = all
}

// Differences implements driver.Executor. It returns the differences of Alter.
func (x *Executor) Differences(ctx context.Context, ref driver.EnvironmentRef,
	_ sandbox.EnvironmentSpec) ([]driver.Difference, error) {
	if err := x.enter(ctx, OpDiffer, ref.Instance); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	return x.changed[ref], nil
}

// Repair implements driver.Executor. It repairs what Break broke.
func (x *Executor) Repair(ctx context.Context, ref driver.EnvironmentRef, _ sandbox.EnvironmentSpec) (string, error) {
	failed := x.enter(ctx, OpRepair, ref.Instance)
	if failed == nil {
		defer x.mu.Unlock()
		found := x.broken[ref]
		delete(x.broken, ref)
		return found, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.broken[ref], failed
}

// Deprovision implements driver.Executor.
func (x *Executor) Deprovision(ctx context.Context, ref driver.EnvironmentRef) error {
	if err := x.enter(ctx, OpDeprovision, ref.Instance); err != nil {
		return err
	}
	defer x.mu.Unlock()
	for _, b := range x.containers {
		if b.spec.LedgerID == ref.LedgerID && b.spec.EnvironmentID == ref.EnvironmentID {
			return sandbox.Errorf(sandbox.Conflict, "environment %s still has sandbox %s", ref.EnvironmentID, b.spec.SandboxID)
		}
	}
	delete(x.installed, ref)
	delete(x.brokers, ref)
	x.drop(environmentHandle(ref))
	return nil
}

// Spawn implements driver.Executor.
func (x *Executor) Spawn(ctx context.Context, spec driver.SandboxSpec) error {
	if err := x.enter(ctx, OpSpawn, spec.Instance); err != nil {
		return err
	}
	if _, ok := x.containers[spec.SandboxID]; !ok {
		x.spawned[spec.SandboxID]++
		x.containers[spec.SandboxID] = newContainer(spec, x.now())
		x.keep(spec.Handle, driver.DependentWorkspace, driver.DependentData)
		if spec.AgentDID == "" {
			x.containers[spec.SandboxID].pooled = true
			x.keep(spec.Handle, driver.DependentLease)
		}
	}
	x.mu.Unlock()
	x.tell(spec.SandboxID)
	return nil
}

func newContainer(spec driver.SandboxSpec, now time.Time) *container {
	b := &container{
		spec:     spec,
		limits:   spec.Limits,
		usedAt:   now,
		files:    map[string]file{configFile: plain(spec.Config)},
		commands: make(map[string]*command),
		changed:  make(chan struct{}),
		obs: driver.Observation{Handle: spec.Handle, LeaseID: spec.LeaseID, AgentDID: spec.AgentDID,
			Generation: spec.Generation, Deadline: spec.Deadline.Truncate(time.Microsecond).UTC(),
			State: sandbox.StateRunning, Image: spec.Image, Resources: spec.Resources, CreatedAt: now, StartedAt: now},
	}
	b.record.start(now)
	return b
}

// Sleep implements driver.Executor.
func (x *Executor) Sleep(ctx context.Context, h driver.Handle, mode sandbox.SleepMode) error {
	to := sandbox.StatePaused
	if mode == sandbox.SleepStop {
		to = sandbox.StateStopped
	}
	_, err := x.change(ctx, OpSleep, h, to)
	return err
}

// Assign implements driver.Executor.
func (x *Executor) Assign(ctx context.Context, spec driver.SandboxSpec) error {
	if err := x.enter(ctx, OpAssign, spec.Instance); err != nil {
		return err
	}
	defer x.mu.Unlock()
	b, ok := x.containers[spec.SandboxID]
	switch {
	case !ok:
		return notFound(spec.Handle)
	case !b.pooled:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s was not made for a pool", spec.SandboxID).
			WithReason(sandbox.ReasonInvalidState)
	case b.obs.State != sandbox.StateRunning:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is %s", spec.SandboxID, b.obs.State).
			WithReason(sandbox.ReasonInvalidState)
	case b.spec.AgentDID != "" && (b.spec.LeaseID != spec.LeaseID || b.spec.Generation != spec.Generation):
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is assigned to %s", spec.SandboxID, b.spec.LeaseID).
			WithReason(sandbox.ReasonInvalidState)
	}
	if b.spec.Deadline.Before(spec.Deadline) {
		spec.Deadline = b.spec.Deadline
	}
	b.spec = spec
	b.files[configFile] = plain(spec.Config)
	return nil
}

// Wake implements driver.Executor.
func (x *Executor) Wake(ctx context.Context, h driver.Handle) (started bool, err error) {
	return x.change(ctx, OpWake, h, sandbox.StateRunning)
}

// change changes the state of a sandbox, and reports whether that started it.
func (x *machine) change(ctx context.Context, op Op, h driver.Handle, to sandbox.State) (started bool, err error) {
	if err := x.enterBox(ctx, op, h); err != nil {
		return false, err
	}
	b, ok := x.containers[h.SandboxID]
	if !ok {
		x.mu.Unlock()
		return false, notFound(h)
	}
	now := x.now()
	if started = b.obs.State == sandbox.StateStopped && to == sandbox.StateRunning; started {
		if x.isOver(b, now) {
			x.mu.Unlock()
			return false, sandbox.Errorf(sandbox.Failed, "sandbox %s has ended by its own limits", h.SandboxID).
				WithReason(sandbox.ReasonStartFailed)
		}
		b.cpu, b.obs.StartedAt = 0, now
	}
	if to == sandbox.StateRunning {
		b.usedAt, b.obs.Rest = now, ""
	}
	if to == sandbox.StateStopped && b.obs.State != to && x.grace >= 0 {
		b.obs.Rest = sandbox.StopRequest
	}
	if to != sandbox.StatePaused || b.obs.State != sandbox.StateStopped { // nothing is left to pause
		b.obs.State = to
	}
	if to == sandbox.StateStopped {
		b.secrets = nil
		b.forget(now)
	}
	b.record.follow(&b.obs, now)
	x.mu.Unlock()
	x.tell(h.SandboxID)
	return started, nil
}

// Kill implements driver.Executor.
func (x *Executor) Kill(ctx context.Context, h driver.Handle) error {
	if err := x.enterBox(ctx, OpKill, h); err != nil {
		return err
	}
	x.remove(h.SandboxID)
	x.drop(h)
	x.mu.Unlock()
	x.tell(h.SandboxID)
	return nil
}

// remove removes a sandbox and ends everything in it.
func (x *machine) remove(id string) {
	if b, ok := x.containers[id]; ok {
		b.forget(x.now())
		if x.records || x.remembers {
			r := b.record // a copy, because a pointer into the container would keep it
			r.stop(x.now())
			if !x.records {
				r.last().RemovedAt = x.now()
			}
			x.removed[id] = &r
		}
	}
	delete(x.containers, id)
}

// Inspect implements driver.Executor.
func (x *Executor) Inspect(ctx context.Context, h driver.Handle) (driver.Observation, error) {
	if err := x.enterBox(ctx, OpInspect, h); err != nil {
		return driver.Observation{}, err
	}
	defer x.mu.Unlock()
	b, ok := x.containers[h.SandboxID]
	if !ok {
		return driver.Observation{}, notFound(h)
	}
	return x.observed(b), nil
}

// List implements driver.Executor.
func (x *Executor) List(ctx context.Context, ledgerID string) ([]driver.Observation, error) {
	return x.list(ctx, func(h driver.Handle) bool { return h.LedgerID == ledgerID })
}

// ListEnvironment implements driver.Executor.
func (x *Executor) ListEnvironment(ctx context.Context, ref driver.EnvironmentRef) ([]driver.Observation, error) {
	return x.list(ctx, func(h driver.Handle) bool {
		return h.LedgerID == ref.LedgerID && h.EnvironmentID == ref.EnvironmentID
	})
}

func (x *Executor) list(ctx context.Context, has func(driver.Handle) bool) ([]driver.Observation, error) {
	if err := x.enter(ctx, OpList, ""); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	var all []driver.Observation
	for _, b := range x.containers {
		if has(b.spec.Handle) {
			o := x.observed(b)
			o.Reading = b.reading
			if b.hung != nil {
				o = driver.Observation{
					Handle:     o.Handle,
					LeaseID:    o.LeaseID,
					AgentDID:   o.AgentDID,
					Generation: o.Generation,
					State:      o.State,
					CreatedAt:  o.CreatedAt,
					Hangs:      true,
				}
			}
			if x.muted[o.EnvironmentID] == nil {
				all = append(all, o)
			}
		}
	}
	if len(x.muted) > 0 {
		return all, &sandbox.PartialError{Missing: maps.Clone(x.muted), NameOf: func(id string) string { return id }}
	}
	return all, nil
}

// Mute makes an environment answer with an error. nil ends that.
func (x *Executor) Mute(environmentID string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		delete(x.muted, environmentID)
		return
	}
	x.muted[environmentID] = err
}

// Usage implements driver.Executor. A sandbox has used the CPU time that Burn added.
func (x *Executor) Usage(ctx context.Context, h driver.Handle) (driver.Usage, error) {
	if err := x.enterBox(ctx, OpUsage, h); err != nil {
		return driver.Usage{}, err
	}
	defer x.mu.Unlock()
	b, ok := x.containers[h.SandboxID]
	if !ok {
		return driver.Usage{}, notFound(h)
	}
	if b.obs.State == sandbox.StateStopped {
		return driver.Usage{}, sandbox.Errorf(sandbox.Conflict, "sandbox %s is stopped", h.SandboxID).
			WithReason(sandbox.ReasonInvalidState)
	}
	return b.usage(), nil
}

func (b *container) usage() driver.Usage {
	return driver.Usage{CPUTime: b.cpu, PIDs: 1, MemoryBytes: 1 << 20}
}

// Watch implements driver.Executor.
func (x *Executor) Watch(ctx context.Context, _ string, ready func(), changed func(string)) error {
	if err := x.fault(ctx, OpWatch); err != nil {
		return err
	}
	w := &watch{changed: changed, broken: make(chan error, 1)}
	x.mu.Lock()
	x.watchers[w] = struct{}{}
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		delete(x.watchers, w)
		x.mu.Unlock()
	}()
	ready()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-w.broken:
		return err
	}
}

// tell sends every watcher a hint about a sandbox.
func (x *machine) tell(id string) {
	x.mu.Lock()
	ws := make([]*watch, 0, len(x.watchers))
	for w := range x.watchers {
		ws = append(ws, w)
	}
	x.mu.Unlock()
	for _, w := range ws {
		w.changed(id)
	}
}

// enter locks mu, unless a fault fails the call or another instance answers.
func (x *machine) enter(ctx context.Context, op Op, instance string) error {
	if err := x.fault(ctx, op); err != nil {
		return err
	}
	x.mu.Lock()
	err := x.confirm(instance)
	if err == nil && instance != "" {
		err = x.recognize()
	}
	if err != nil {
		x.mu.Unlock()
		return err
	}
	x.keepTime()
	return nil
}

// enterBox is enter for calls about one sandbox, which may hang.
func (x *machine) enterBox(ctx context.Context, op Op, h driver.Handle) error {
	x.mu.Lock()
	var hung chan struct{}
	if b, ok := x.containers[h.SandboxID]; ok {
		hung = b.hung
	}
	muted := x.muted[h.EnvironmentID]
	x.mu.Unlock()
	if muted != nil {
		return sandbox.Errorf(sandbox.Unavailable, "%s: sandbox %s: %w", op, h.SandboxID, muted)
	}
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return sandbox.Errorf(sandbox.Unavailable, "%s: sandbox %s hangs: %w", op, h.SandboxID, ctx.Err())
		}
	}
	return x.enter(ctx, op, h.Instance)
}

func (x *machine) fault(ctx context.Context, op Op) error {
	x.mu.Lock()
	f := x.faults[op]
	x.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx)
}

func notFound(h driver.Handle) error {
	return sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", h.SandboxID).
		WithReason(sandbox.ReasonSandboxNotFound)
}
