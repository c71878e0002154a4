package sandbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LeaseStatus is the status of a lease. It follows from the wanted and the observed state of its sandbox.
type LeaseStatus string

// The lease statuses.
const (
	// LeasePending: the sandbox is being created.
	LeasePending LeaseStatus = "pending"
	// LeaseActive: the sandbox is ready, awake or asleep.
	LeaseActive LeaseStatus = "active"
	// LeaseExpired: the lease has ended, and the sandbox may still exist.
	LeaseExpired LeaseStatus = "expired"
	// LeaseDestroyed: the backend confirmed that the sandbox is gone.
	LeaseDestroyed LeaseStatus = "destroyed"
)

// LeaseStatuses lists the statuses in the order in which a lease goes through them.
var LeaseStatuses = []LeaseStatus{LeasePending, LeaseActive, LeaseExpired, LeaseDestroyed}

// Phase is the last observed state of a sandbox.
type Phase string

// The phases.
const (
	PhasePending Phase = "pending" // not created, or not known to be
	PhaseAwake   Phase = "awake"
	PhaseAsleep  Phase = "asleep"
	PhaseGone    Phase = "gone" // confirmed by its backend instance
)

// EndedBy is the kind of reason that ended a lease.
type EndedBy string

// The kinds of reasons.
const (
	EndedByCondition   EndedBy = "condition"
	EndedByTTL         EndedBy = "ttl"
	EndedByMaxLifetime EndedBy = "max_lifetime"
	EndedByBudget      EndedBy = "budget"
	EndedByRelease     EndedBy = "release"
	EndedByFailed      EndedBy = "failed"      // never became ready
	EndedByCrashed     EndedBy = "crashed"     // stopped on its own, or ran out of memory
	EndedByVanished    EndedBy = "vanished"    // its backend instance no longer has it
	EndedByEnvironment EndedBy = "environment" // the environment was destroyed
	EndedByAdmin       EndedBy = "admin"
)

// EndedByRules reports whether a lease ended as intended, not through drift or failure.
func (e EndedBy) EndedByRules() bool {
	switch e {
	case EndedByVanished, EndedByCrashed, EndedByFailed, "":
		return false
	default:
		return true
	}
}

// LeaseSettings override settings of the environment for one lease. Nil and empty inherit.
type LeaseSettings struct {
	TTL              *Duration `json:"ttl,omitempty"`
	SleepAfter       *Duration `json:"sleep_after,omitempty"`
	MaxLifetime      *Duration `json:"max_lifetime,omitempty" doc:"Fixed when the lease begins."`
	ExpiryConditions []string  `json:"expiry_conditions,omitempty" doc:"Conditions that end this lease instead of those of the environment. At most 32."`
	// Labels are in addition to those of the environment, see EffectiveLabels.
	Labels map[string]string `json:"labels,omitempty" doc:"Labels in addition to those of the environment, whose values they cannot change. At most 32, without commas."`
}

// Apply returns spec with the lease's settings applied.
func (s LeaseSettings) Apply(spec EnvironmentSpec) EnvironmentSpec {
	if s.TTL != nil {
		spec.TTL = *s.TTL
	}
	if s.SleepAfter != nil {
		spec.SleepAfter = s.SleepAfter
	}
	if s.MaxLifetime != nil {
		spec.MaxLifetime = *s.MaxLifetime
	}
	if len(s.ExpiryConditions) > 0 {
		spec.ExpiryConditions = s.ExpiryConditions
	}
	if len(s.Labels) > 0 {
		spec.Labels = EffectiveLabels(spec.Labels, s.Labels)
	}
	return spec
}

// Lease is the right of one agent to one sandbox in one environment. It describes the current generation.
type Lease struct {
	// ID is "<agent_did>::<environment_id>".
	ID            string `json:"id"`
	AgentDID      string `json:"agent_did"`
	EnvironmentID string `json:"environment_id"`
	// Owner may renew and release the lease. It is an API token or one Terraform object.
	Owner string `json:"owner"`
	// Generation numbers the sandboxes of the lease, from 1.
	Generation int64       `json:"generation"`
	Status     LeaseStatus `json:"status" enum:"pending,active,expired,destroyed"`
	SandboxID  string      `json:"sandbox_id"`
	Phase      Phase       `json:"phase" enum:"pending,awake,asleep,gone"`
	SandboxStatus
	Backend  Backend `json:"backend"`
	Instance string  `json:"instance,omitempty"`
	// ContainerID is the engine's id of the sandbox's container, "" if the service has not seen one.
	ContainerID string `json:"container_id,omitempty" doc:"The engine's id of the sandbox's container, while there is one that this reconciler has seen. Docker only."`
	// WorkspacePath is WorkspaceRoot.
	WorkspacePath string `json:"workspace_path" doc:"Directory in which commands start and the agent works: always /workspace."`

	Image            string      `json:"image"`
	Resources        Resources   `json:"resources"`
	Network          NetworkMode `json:"network"`
	TTL              Duration    `json:"ttl"`
	MaxLifetime      Duration    `json:"max_lifetime"`
	SleepAfter       Duration    `json:"sleep_after"`
	SleepMode        SleepMode   `json:"sleep_mode"`
	ExpiryConditions []string    `json:"expiry_conditions"`
	// Labels are those of the lease and of its environment.
	Labels map[string]string `json:"labels,omitempty" doc:"Labels of the lease and of its environment."`
	// Settings are the lease's own settings, which override those of its environment.
	Settings LeaseSettings `json:"settings,omitzero"`

	LeasedAt time.Time `json:"leased_at"`
	ReadyAt  time.Time `json:"ready_at,omitzero"`
	// StartedAt is when the sandbox was last started or woken, zero unless it is awake.
	StartedAt    time.Time `json:"started_at,omitzero" doc:"When the sandbox was last started or woken, while it is awake."`
	LastActivity time.Time `json:"last_activity"`
	// ExpiresAt is min(last_activity + ttl, leased_at + max_lifetime). Each use moves it.
	ExpiresAt time.Time `json:"expires_at"`
	// Drift lists the open findings about the sandbox: differences between the backend and the ledger.
	Drift []DriftFinding `json:"drift,omitempty"`
	// ObservedAt is when the backend last reported on the sandbox.
	ObservedAt time.Time `json:"observed_at,omitzero"`

	EndedAt   time.Time `json:"ended_at,omitzero"`
	EndedBy   EndedBy   `json:"ended_by,omitempty"`
	EndReason string    `json:"end_reason,omitempty"`
	// KeptUntil is when a sandbox that failed after it was ready is removed. Until then it is kept, stopped,
	// for inspection.
	KeptUntil time.Time `json:"kept_until,omitzero" doc:"When a failed sandbox is removed; until then it is kept, stopped, for a post-mortem. Releasing its generation removes it earlier."`
	// DestroyedAt is when the backend confirmed that the sandbox is gone.
	DestroyedAt time.Time `json:"destroyed_at,omitzero"`
	// Snapshot is the status of the /data snapshot, nil if the environment keeps none.
	Snapshot *LeaseSnapshot `json:"state,omitempty"`
	// Attempts counts failed attempts of the current step. LastError is the text of the last failure.
	Attempts  int64  `json:"attempts,omitempty"`
	LastError string `json:"last_error,omitempty"`

	// Cost is the gross cost of this generation so far, at the backend's prices.
	Cost NanoUSD `json:"cost_usd"`
	// LLM is the use of models by this generation. Its cost is not part of Cost.
	LLM LLMUse `json:"llm,omitzero" doc:"What model calls have used, beside cost_usd."`
	// Companions are the sandbox's companions, by name.
	Companions []CompanionStatus `json:"companions,omitempty" doc:"Companions of the sandbox, by name."`
	// LastSequence is the sequence of the sandbox's latest event.
	LastSequence int64 `json:"last_sequence"`
	// LastEventID is the ledger's latest event when this was read. A reader that follows the events after it
	// misses none and gets none twice.
	LastEventID int64 `json:"last_event_id" doc:"The ledger's latest event when this was read: follow events after it."`
	// PurgedAt is when the details of a destroyed lease were purged. Its owner, generation, end and cost stay.
	PurgedAt time.Time `json:"retired_at,omitzero"`
}

// Acquire asks for an agent's lease in an environment.
type Acquire struct {
	AgentDID      string        `json:"agent_did"`
	EnvironmentID string        `json:"environment_id"`
	Owner         string        `json:"owner,omitempty" doc:"Default: the caller's token."`
	Settings      LeaseSettings `json:"settings,omitzero"`
	// NoWait returns the lease as soon as it is accepted, pending if its sandbox is not ready. It only affects
	// the answer: the same lease is acquired with and without it.
	NoWait bool `json:"-"`
	// Choice is set for a run: it replaces settings of the environment. With MayExceed, it may exceed them.
	Choice    SandboxChoice `json:"-"`
	MayExceed bool          `json:"-"`
	// Tenant is the caller, nil for the operator. The front end sets it; it is not part of the request's JSON.
	Tenant *Tenant `json:"-"`
}

// Validate checks the request without the ledger. Errors: Invalid, naming each field.
func (a Acquire) Validate() error { return InvalidFields("lease", a.fields()) }

func (a Acquire) fields() []Field {
	f := checkAgentDID(nil, "agent_did", a.AgentDID)
	f = checkEnvironmentID(f, "environment_id", a.EnvironmentID)
	return append(f, a.Settings.fields()...)
}

func (s LeaseSettings) fields() []Field {
	fields := s.Apply(EnvironmentSpec{}.WithDefaults()).leaseFields()
	fields = append(fields, labelFields("labels", s.Labels)...)
	for i := range fields {
		fields[i].Name = "settings." + fields[i].Name
	}
	return fields
}

// Acquired is the answer to Acquire.
type Acquired struct {
	Lease Lease `json:"lease"`
	// IsNew is true for exactly one of the callers that acquire the same generation.
	IsNew bool `json:"is_new"`
}

// LeaseRef names a lease in a request.
type LeaseRef struct {
	ID string `json:"id"`
	// Generation is a fence: if it is not the current one, the request is refused (Conflict,
	// ReasonOtherGeneration). Zero means the current one.
	Generation int64 `json:"generation,omitempty"`
	// Owner must be the lease's owner for methods that say so. Empty skips the check.
	Owner string `json:"owner,omitempty"`
}

func (r LeaseRef) String() string {
	if r.Generation == 0 {
		return r.ID
	}
	return fmt.Sprintf("%s generation %d", r.ID, r.Generation)
}

// Renew extends a lease. With Settings, it also changes the lease's settings.
type Renew struct {
	LeaseRef
	// Settings replace the lease's own settings if not nil. MaxLifetime cannot change.
	Settings *LeaseSettings `json:"settings,omitempty"`
}

// Validate checks the request without the ledger. Errors: Invalid.
func (r Renew) Validate() error {
	if r.Settings == nil {
		return nil
	}
	return InvalidFields("lease settings", r.Settings.fields())
}

// LeaseCounts counts leases by the state of their sandboxes. Deleted ones are not counted.
type LeaseCounts struct {
	Pending  int64 `json:"pending"`
	Ready    int64 `json:"ready"`
	Asleep   int64 `json:"asleep"`
	Stopped  int64 `json:"stopped"`
	Failed   int64 `json:"failed"`
	Deleting int64 `json:"deleting"`
}

// Live returns the number of usable leases.
func (c LeaseCounts) Live() int64 { return c.Pending + c.Ready + c.Asleep + c.Stopped }

// Plus returns the sum of c and o.
func (c LeaseCounts) Plus(o LeaseCounts) LeaseCounts {
	return LeaseCounts{
		c.Pending + o.Pending, c.Ready + o.Ready, c.Asleep + o.Asleep, c.Stopped + o.Stopped, c.Failed + o.Failed,
		c.Deleting + o.Deleting,
	}
}

// LeaseSort is the order of a list of leases. A - before it reverses the order.
type LeaseSort string

// The orders. Equal leases are ordered by id.
const (
	SortByID          LeaseSort = "id"
	SortByEnvironment LeaseSort = "environment"
	SortByLeased      LeaseSort = "leased"   // the oldest first
	SortByActivity    LeaseSort = "activity" // the longest unused first
	SortByExpiry      LeaseSort = "expiry"   // the next to expire first
)

// LeaseSorts lists all orders.
var LeaseSorts = []LeaseSort{SortByID, SortByEnvironment, SortByLeased, SortByActivity, SortByExpiry}

// Reversed returns the order without a -, and whether it had one. "" is SortByID.
func (s LeaseSort) Reversed() (LeaseSort, bool) {
	by, reversed := strings.CutPrefix(string(s), "-")
	if by == "" && !reversed {
		return SortByID, false
	}
	return LeaseSort(by), reversed
}

// LeaseFilter selects leases; empty fields select all.
type LeaseFilter struct {
	EnvironmentID string
	AgentDID      string
	Status        LeaseStatus
	Labels        LabelSelector
	// Search selects leases whose id, of agent and environment, contains this text in any case.
	Search string
	// Sort is the order. "" is SortByID.
	Sort LeaseSort
	// After is Next of the last lease of the previous page. In an order by time, a lease that has moved since may be
	// missing or listed twice.
	After string
	// Limit is the page size, 1 to 1000; zero means 1000.
	Limit int
	// Observe first inspects the sandboxes on their backends, and records drift.
	Observe bool
}

// Validate checks a filter. Errors: Invalid.
func (f LeaseFilter) Validate() error {
	fields := f.Labels.fields()
	if f.Status != "" && !slices.Contains(LeaseStatuses, f.Status) {
		fields = append(fields,
			Field{Name: "status", Problem: fmt.Sprintf("must be one of %v, not %q", LeaseStatuses, f.Status)})
	}
	if by, _ := f.Sort.Reversed(); !slices.Contains(LeaseSorts, by) {
		fields = append(fields, Field{Name: "sort",
			Problem: fmt.Sprintf("must be one of %v, with or without a - before it, not %q", LeaseSorts, f.Sort)})
	}
	return InvalidFields("the lease filter", checkLimit(fields, f.Limit, MaxPage))
}

// Next returns the After of the page that follows a lease. In an order by time it names the lease's time too, because
// the lease may have moved before that page is read.
func (f LeaseFilter) Next(last Lease) string {
	var at time.Time
	switch by, _ := f.Sort.Reversed(); by {
	case SortByLeased:
		at = last.LeasedAt
	case SortByActivity:
		at = last.LastActivity
	case SortByExpiry: // without what runs now, which does not count in the order
		at = last.LastActivity.Add(last.TTL.D())
		if end := last.LeasedAt.Add(last.MaxLifetime.D()); end.Before(at) {
			at = end
		}
	default:
		return last.ID
	}
	return strconv.FormatInt(at.UnixMicro(), 10) + "/" + last.ID
}

// Last returns the lease that After names, and its time if After has one.
func (f LeaseFilter) Last() (leaseID string, at time.Time, isTimed bool) {
	micros, id, _ := strings.Cut(f.After, "/")
	n, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || id == "" {
		return f.After, time.Time{}, false
	}
	return id, time.UnixMicro(n).UTC(), true
}

// MaxPage is the largest page size of all lists.
const MaxPage = 1000

// checkLimit checks the page size of a filter; zero is its default.
func checkLimit(f []Field, limit, most int) []Field {
	if limit < 0 || limit > most {
		f = append(f, Field{Name: "limit", Problem: fmt.Sprintf("must be between 1 and %d", most)})
	}
	return f
}

// checkState checks that the state of a filter exists; "" selects all.
func checkState[S ~string](f []Field, state S, known []S) []Field {
	if state != "" && !slices.Contains(known, state) {
		f = append(f, Field{Name: "state", Problem: fmt.Sprintf("must be one of %v, not %q", known, state)})
	}
	return f
}

// SandboxState is the state of a sandbox. Its latest event that leads to a state determines it. Lease.Status is
// the status of the lease, Phase what the backend last reported.
type SandboxState string

// The states of a sandbox, for all backends.
const (
	// SandboxPending: it is being created.
	SandboxPending SandboxState = "pending"
	// SandboxReady: it accepts commands.
	SandboxReady SandboxState = "ready"
	// SandboxAsleep: it is paused together with its processes. Its next use wakes it.
	SandboxAsleep SandboxState = "asleep"
	// SandboxStopped: its processes have ended and its files are kept. Its next use starts it.
	SandboxStopped SandboxState = "stopped"
	// SandboxFailed: it failed. It is kept for a post-mortem, or its removal is about to begin.
	SandboxFailed SandboxState = "failed"
	// SandboxDeleting: its lease has ended and its removal is in progress.
	SandboxDeleting SandboxState = "deleting"
	// SandboxDeleted: its backend confirmed that it is completely removed.
	SandboxDeleted SandboxState = "deleted"
)

// led maps events to the states that they lead to.
var led = map[EventType]SandboxState{
	EventAccepted:        SandboxPending,
	EventReady:           SandboxReady,
	EventAwake:           SandboxReady,
	EventAsleep:          SandboxAsleep,
	EventStopped:         SandboxStopped,
	EventFailed:          SandboxFailed,
	EventDeleteRequested: SandboxDeleting,
	EventDeleted:         SandboxDeleted,
}

// Ends reports whether only failed, deleting and deleted can follow s.
func (s SandboxState) Ends() bool {
	return s == SandboxFailed || s == SandboxDeleting || s == SandboxDeleted
}

// After returns the state that follows s after an event. Replaying all events of a sandbox yields its state.
func (s SandboxState) After(t EventType) SandboxState {
	next, leads := led[t]
	if !leads || s.Ends() && !next.Ends() {
		return s
	}
	return next
}

// StopReason says why a sandbox is asleep or stopped.
type StopReason string

// The reasons.
const (
	StopIdle     StopReason = "idle_ttl"  // idle for sleep_after
	StopRequest  StopReason = "request"   // by a caller
	StopPool     StopReason = "warm_pool" // it waits for a lease
	StopLastSave StopReason = "last_save" // its /data is being saved before it is removed
	StopOutside  StopReason = "outside"   // changed on the backend, outside of this service
	StopCrashed  StopReason = "crashed"   // it stopped on its own and will restart
	// StopPostMortem: it failed and is kept for a post-mortem. Its state is failed.
	StopPostMortem StopReason = "post_mortem"
)

// SandboxStatus is the state of a sandbox, the time of its last change, and the cause.
type SandboxStatus struct {
	SandboxState SandboxState `json:"sandbox_state" enum:"pending,ready,asleep,stopped,failed,deleting,deleted" doc:"State of the sandbox. status is the status of the lease."`
	// StateChangedAt is when SandboxState last changed.
	StateChangedAt time.Time `json:"state_changed_at,omitzero" doc:"When sandbox_state last changed."`
	// StopReason is set while the sandbox is asleep or stopped.
	StopReason StopReason `json:"stop_reason,omitempty" doc:"Why the sandbox is asleep or stopped: idle_ttl, request, warm_pool, last_save, outside or crashed."`
	// ErrorCode and ErrorMessage say why a sandbox failed. If it stopped, they say why until it has run for a while again.
	ErrorCode    Reason `json:"error_code,omitempty" doc:"Why the sandbox failed or stopped on its own, as a code."`
	ErrorMessage string `json:"error_message,omitempty" doc:"Why the sandbox failed or stopped on its own, as text."`
}

// State is the state of a sandbox as its backend reports it.
type State string

// The states.
const (
	StateCreated State = "created" // created, never started
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateStopped State = "stopped"
	// StateRemoving: the removal has begun.
	StateRemoving State = "removing"
)

// LeaseHealth says whether a lease's sandbox is usable.
type LeaseHealth struct {
	LeaseID    string      `json:"lease_id"`
	Generation int64       `json:"generation"`
	SandboxID  string      `json:"sandbox_id"`
	Status     LeaseStatus `json:"status" enum:"pending,active,expired,destroyed"`
	Phase      Phase       `json:"phase" enum:"pending,awake,asleep,gone"`
	// Healthy: it accepts commands, or it sleeps as intended and its backend has it.
	Healthy bool `json:"healthy"`
	// Problem says why it is not healthy.
	Problem string `json:"problem,omitempty"`
	// BackendReachable: its backend instance answered.
	BackendReachable bool `json:"backend_reachable"`
	// State is the state that the backend reports, "" if it was not asked or does not have the sandbox.
	State     State     `json:"state,omitempty"`
	CheckedAt time.Time `json:"checked_at"`
}
