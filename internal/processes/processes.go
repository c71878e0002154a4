package processes

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// killPause is the pause before a process is killed again: it may still be starting.
const killPause = time.Second

// maxProcessNames limits the kept processes of a sandbox. A new one replaces the one that ended first.
const maxProcessNames = 2 * sandbox.MaxProcesses

// Config configures a Service. All fields are required.
type Config struct {
	Core  *lifecycle.Core
	Store *ledger.Store
	IDs   sandbox.IDs
	Log   *slog.Logger
}

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct {
	Config

	mu      sync.Mutex          // guards the map below
	holders map[string]struct{} // the claims of the processes that this program follows

	connections connections
}

var (
	_ lifecycle.Preparer = (*Service)(nil)
	_ lifecycle.Settler  = (*Service)(nil)
	_ lifecycle.Finisher = (*Service)(nil)
	_ lifecycle.Stopper  = (*Service)(nil)
	_ lifecycle.Ender    = (*Service)(nil)
	_ lifecycle.Extender = (*Service)(nil)
)

// New returns a Service.
func New(c Config) *Service {
	return &Service{
		Config: c, holders: make(map[string]struct{}),
		connections: connections{open: make(map[string]int)},
	}
}

// StartProcess implements service.Processes.
func (v *Service) StartProcess(ctx context.Context, r sandbox.LeaseRef,
	spec sandbox.ProcessSpec) (sandbox.Process, error) {
	spec, err := spec.Normalize(sandbox.AnyRules())
	if err != nil {
		return sandbox.Process{}, err
	}
	var run *processRun
	var view sandbox.Process
	u, err := v.Core.BeginUse(ctx, r, lifecycle.ClaimTTL, func(tx *ledger.Tx, s *ledger.Sandbox, _ string) error {
		run = nil
		p, err := newProcess(tx, s, spec)
		if err == nil && p.State == sandbox.ProcessPending && p.DueAt <= tx.Now {
			run, err = v.holdProcess(tx, s, p)
		}
		if err == nil {
			view = p.Domain()
		}
		return err
	})
	if err != nil {
		return sandbox.Process{}, err
	}
	if run != nil {
		run.begin()
	}
	u.Unseen = true // a process does not count as use of its sandbox
	return view, u.Leave(ctx, true, nil)
}

// newProcess returns a new process, or the running one with the same settings.
func newProcess(tx *ledger.Tx, s *ledger.Sandbox, spec sandbox.ProcessSpec) (*execs.Process, error) {
	spec, err := spec.Normalize(s.Rules())
	if err != nil {
		return nil, err
	}
	all, err := execs.In(tx).Processes(s.ID)
	if err != nil {
		return nil, err
	}
	declared, live := false, 0
	for i := range all {
		p := &all[i]
		if p.State.Live() {
			live++
		}
		if p.Name != spec.Name {
			continue
		}
		differs := spec.Differs(p.Domain())
		if p.State.Live() && p.KillAt != 0 {
			return nil, sandbox.Errorf(sandbox.Conflict, "lease %s: process %s is being killed: start it once it has ended",
				s.Lease(), p.Name).WithReason(sandbox.ReasonInvalidState)
		}
		if p.State.Live() {
			return p, otherProcess(p, differs)
		}
		declared = bool(p.Declared) && differs == nil
	}
	if live >= sandbox.MaxProcesses {
		return nil, sandbox.Errorf(sandbox.CapacityExceeded,
			"lease %s: start process %s: its sandbox has %d processes already, which is all that it may have: kill one first",
			s.Lease(), spec.Name, live)
	}
	return execs.NewProcess(s, spec, declared, tx.Now), makeRoom(tx, all, spec.Name)
}

// otherProcess is the error of starting a process under the name of a running one with other settings.
func otherProcess(p *execs.Process, differs []sandbox.Field) error {
	if differs == nil {
		return nil
	}
	return &sandbox.Error{Code: sandbox.Conflict, Reason: sandbox.ReasonOtherSettings, Fields: differs,
		Message: fmt.Sprintf("lease %s: process %s is %s with other settings: kill it first, or choose another name",
			p.LeaseID, p.Name, p.State)}
}

// makeRoom removes the process that ended first, if there are too many to keep another one.
func makeRoom(tx *ledger.Tx, all []execs.Process, name string) error {
	if len(all) < maxProcessNames || slices.ContainsFunc(all, func(p execs.Process) bool { return p.Name == name }) {
		return nil
	}
	var first *execs.Process
	for i := range all {
		if p := &all[i]; !p.State.Live() && (first == nil || p.ExitedAt < first.ExitedAt) {
			first = p
		}
	}
	return execs.In(tx).RemoveProcess(first) // one has ended, because sandbox.MaxProcesses is smaller
}

// processOf returns a process of a lease's current generation, with its sandbox.
func processOf(tx *ledger.Tx, r sandbox.ProcessRef) (*execs.Process, *ledger.Sandbox, error) {
	s, _, err := lifecycle.CurrentOf(tx, r.LeaseRef.ID)
	if err == nil {
		err = lifecycle.CheckRef(s, r.LeaseRef)
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := execs.In(tx).Process(s.ID, r.Name)
	if err == nil && p == nil {
		err = sandbox.Errorf(sandbox.NotFound, "lease %s has no process %s in generation %d: list its processes",
			r.LeaseRef.ID, r.Name, s.Generation).WithReason(sandbox.ReasonProcessNotFound)
	}
	return p, s, err
}

func (v *Service) readProcessRow(ctx context.Context,
	r sandbox.ProcessRef) (p *execs.Process, s *ledger.Sandbox, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		p, s, err = processOf(tx, r)
		return err
	})
	return p, s, err
}

// GetProcess implements service.Processes.
func (v *Service) GetProcess(ctx context.Context, r sandbox.ProcessRef) (sandbox.Process, error) {
	p, _, err := v.readProcessRow(ctx, r)
	if err != nil {
		return sandbox.Process{}, err
	}
	return p.Domain(), nil
}

// ListProcesses implements service.Processes.
func (v *Service) ListProcesses(ctx context.Context, leaseID string) (list []sandbox.Process, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		s, _, err := lifecycle.CurrentOf(tx, leaseID)
		if err != nil {
			return err
		}
		rows, err := execs.In(tx).Processes(s.ID)
		for i := range rows {
			list = append(list, rows[i].Domain())
		}
		return err
	})
	return list, err
}

// KillProcess implements service.Processes. It wakes a sleeping sandbox, in which the process is paused. If the caller
// leaves, a reconciler ends the process.
func (v *Service) KillProcess(ctx context.Context, r sandbox.ProcessRef) (sandbox.Process, error) {
	p, err := v.requestEnd(ctx, r)
	if err != nil || !p.State.Live() {
		return domainOf(p), err
	}
	u, err := v.Core.BeginUse(ctx, r.LeaseRef, lifecycle.ClaimTTL, nil)
	if err != nil {
		return sandbox.Process{}, err
	}
	defer func() { _ = u.Leave(ctx, false, nil) }() // on failure it runs out
	for {
		changed := v.Store.Changed()
		p, s, err := v.readProcessRow(ctx, r)
		if err != nil || !p.State.Live() || p.KillAt == 0 { // another start may have replaced it
			return domainOf(p), err
		}
		if err := v.Core.EndRun(ctx, s, runOf(p)); err != nil {
			return sandbox.Process{}, err
		}
		if _, err := v.tend(ctx, s.ID); err != nil { // it may have no follower
			return sandbox.Process{}, err
		}
		if err := v.Core.Pause(ctx, changed, micro.At(v.Store.Now().Add(killPause))); err != nil {
			return sandbox.Process{}, err
		}
	}
}

func domainOf(p *execs.Process) sandbox.Process {
	if p == nil {
		return sandbox.Process{}
	}
	return p.Domain()
}

// requestEnd records that a process must end. A process that does not run ends immediately.
func (v *Service) requestEnd(ctx context.Context, r sandbox.ProcessRef) (p *execs.Process, err error) {
	err = v.Store.Write(ctx, func(tx *ledger.Tx) error {
		var s *ledger.Sandbox
		if p, s, err = processOf(tx, r); err != nil || !p.State.Live() || p.KillAt != 0 {
			return err
		}
		p.KillAt = tx.Now
		if p.State == sandbox.ProcessRunning {
			return execs.In(tx).SaveProcess(p)
		}
		endProcess(p, sandbox.ProcessKilled)
		err := tx.UpdateRow(s, func(s *ledger.Sandbox) error {
			return tx.AppendSandboxEvent(s, sandbox.EventProcessKilled, map[string]any{"name": p.Name, "start": p.Starts})
		})
		if err != nil {
			return err
		}
		return execs.In(tx).SaveProcess(p)
	})
	return p, err
}

func runOf(p *execs.Process) lifecycle.Run {
	return lifecycle.Run{
		ID: p.Run, SandboxID: p.SandboxID, User: p.RunAs,
		About: slog.Group("", lifecycle.AboutLease(p.LeaseID, p.SandboxID), slog.String("process", p.Name)),
	}
}
