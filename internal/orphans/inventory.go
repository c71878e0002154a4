// Package orphans destroys orphans. It lists everything on an instance that has the ledger's label, compares
// the list with the rows, records a finding for each object that no row wants, and destroys the object at the
// second look. It also repairs what the sandboxes of an environment share.
package orphans

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// creationGrace is the age, by creation time and by first sighting, below which an object is never an orphan:
// its creator may not have recorded it yet.
const creationGrace = 2 * time.Minute

// callTimeout limits the listing of an instance, and each removal.
const callTimeout = 60 * time.Second

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct {
	store *ledger.Store
	log   *slog.Logger
	// refused logs once that a ledger without any sandboxes destroys nothing.
	refused sync.Once
}

// New returns a Service.
func New(store *ledger.Store, log *slog.Logger) *Service { return &Service{store: store, log: log} }

// Inventory is what an instance holds under the ledger's label, and what the ledger knows of it. For one
// goroutine.
type Inventory struct {
	service  *Service
	x        driver.Executor
	instance string
	began    micro.Time // before anything was listed

	listed []driver.Observation
	// partial says which environments did not answer; nothing is known about their objects. nil: all
	// answered.
	partial *sandbox.PartialError
	objects []driver.Dependent
	// unlisted says why objects could not be listed. Then nothing is destroyed.
	unlisted error

	open  []drift.Finding // the open findings of the instance
	known map[string]bool // the sandboxes of rows that are not confirmed gone
	has   map[string]bool // those in known, and the listed sandboxes
	uses  map[string]bool // the environments of both
	// unread says why not all rows were read. Then nothing is destroyed.
	unread error
}

// Take lists what the connected instance holds. EachPage reads the rows afterwards: every listed object then
// has its row, so that a sandbox created meanwhile is not an orphan. An environment that does not answer is
// no error: see Failure.
func (s *Service) Take(ctx context.Context, x driver.Executor, instance string) (*Inventory, error) {
	v := &Inventory{service: s, x: x, instance: instance, unread: errUnread, began: micro.At(s.store.Now()),
		known: make(map[string]bool), has: make(map[string]bool), uses: make(map[string]bool)}
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var err error
	if v.listed, err = x.List(bounded, s.store.ID()); err != nil && !errors.As(err, &v.partial) {
		return nil, err
	}
	v.objects, v.unlisted = x.Dependents(bounded, s.store.ID())
	err = s.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		v.open, err = drift.In(tx).Open(v.instance)
		return err
	})
	for _, o := range v.listed {
		v.has[o.SandboxID], v.uses[o.EnvironmentID] = true, true
	}
	return v, err
}

// Instance returns the id of the instance.
func (v *Inventory) Instance() string { return v.instance }

// Listed returns the instance's sandboxes with the ledger's label.
func (v *Inventory) Listed() []driver.Observation { return v.listed }

// Open returns the findings about the instance that were open at the time of the listing.
func (v *Inventory) Open() []drift.Finding { return v.open }

// unanswered returns why an environment did not answer, nil if it did.
func (v *Inventory) unanswered(environmentID string) error {
	if v.partial == nil {
		return nil
	}
	return v.partial.Of(environmentID)
}

// answered omits sandboxes of environments that did not answer: their state is unknown.
func (v *Inventory) answered(rows []ledger.Sandbox) []ledger.Sandbox {
	return slices.DeleteFunc(rows, func(s ledger.Sandbox) bool { return v.unanswered(s.EnvironmentID) != nil })
}

// Failure names the environments that did not answer, nil if all did.
func (v *Inventory) Failure() error {
	if v.partial == nil {
		return nil
	}
	return v.partial
}

// page limits the rows held in memory.
const page = 500

var errUnread = sandbox.Errorf(sandbox.Internal, "orphans: Collect was called before EachPage had read the rows")

// EachPage visits the rows of the instance that are not confirmed gone, a page at a time, without those of
// environments that did not answer. It continues after an error of visit and returns these errors. Collect
// returns read errors.
func (v *Inventory) EachPage(ctx context.Context, visit func(rows []ledger.Sandbox) error) error {
	var failed error
	for after := ""; ; {
		var rows []ledger.Sandbox
		v.unread = v.service.store.Read(ctx, func(tx *ledger.Tx) (err error) {
			rows, err = tx.InstanceSandboxes(v.instance, after, page)
			return err
		})
		if v.unread != nil {
			return failed // Collect returns v.unread
		}
		for i := range rows {
			v.known[rows[i].ID], v.has[rows[i].ID], v.uses[rows[i].EnvironmentID] = true, true, true
		}
		last := len(rows) < page
		if !last {
			after = rows[len(rows)-1].ID
		}
		failed = errors.Join(failed, visit(v.answered(rows)))
		if last {
			return failed
		}
	}
}

// orphan is an object on an instance that may be an orphan: a sandbox, or a leftover of one.
type orphan struct {
	// seen is the finding as recorded. The ledger keeps its count of looks and its times.
	seen      drift.Finding
	createdAt time.Time
	kind      driver.DependentKind // "" for a sandbox
	// ofKnown: the sandboxes of an environment that has a row shared it.
	ofKnown bool
	remove  func(ctx context.Context) error
}

// orphans returns the objects that no row wants.
func (v *Inventory) orphans(tx *ledger.Tx) ([]orphan, error) {
	var found []orphan
	for _, o := range v.listed {
		if !v.known[o.SandboxID] {
			found = append(found, v.sandbox(o))
		}
	}
	for _, l := range v.objects {
		inUse := v.has[l.SandboxID] || l.SandboxID == "" && v.uses[l.EnvironmentID] || v.unanswered(l.EnvironmentID) != nil
		if !inUse {
			found = append(found, v.leftover(l))
		}
	}
	unwanted := found[:0]
	for _, s := range found {
		wanted, err := v.wanted(tx, s)
		if err != nil {
			return nil, err
		}
		if wanted {
			continue
		}
		if s.seen.SandboxID == "" {
			row, err := tx.Environment(s.seen.EnvironmentID)
			if err != nil {
				return nil, err
			}
			s.ofKnown = row != nil
		}
		unwanted = append(unwanted, s)
	}
	return unwanted, nil
}

// wanted reports whether the ledger wants an object now, or did at the time of the listing. An object that is
// too young, or was created on another instance, counts as wanted.
func (v *Inventory) wanted(tx *ledger.Tx, s orphan) (bool, error) {
	if s.seen.Instance != v.instance || s.createdAt.Add(creationGrace).After(tx.Now.Time()) {
		return true, nil
	}
	if id := s.seen.SandboxID; id != "" {
		row, err := tx.Sandbox(id)
		return row != nil && (row.Phase != sandbox.PhaseGone || row.Ending.DestroyedAt >= v.began), err
	}
	row, err := tx.Environment(s.seen.EnvironmentID)
	if err != nil || row == nil {
		return false, err
	}
	ended := row.Status == sandbox.EnvironmentDestroyed || row.Status == sandbox.EnvironmentDeleting
	return !ended && row.Instance == v.instance || row.UpdatedAt >= v.began, nil
}

// sandbox describes a sandbox as an orphan. It is inspected again before it is killed.
func (v *Inventory) sandbox(o driver.Observation) orphan {
	return orphan{
		seen: drift.Finding{
			Kind: sandbox.DriftOrphan, SandboxID: o.SandboxID, LeaseID: o.LeaseID, EnvironmentID: o.EnvironmentID,
			Instance: o.Instance, Expected: "absent", Observed: string(o.State),
		},
		createdAt: o.CreatedAt,
		remove: func(ctx context.Context) error {
			_, err := v.x.Inspect(ctx, o.Handle)
			if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
				return err
			}
			return v.x.Kill(ctx, o.Handle)
		},
	}
}

func (v *Inventory) leftover(l driver.Dependent) orphan {
	return orphan{
		seen: drift.Finding{
			Kind: sandbox.DriftLeftover, SandboxID: l.SandboxID, EnvironmentID: l.EnvironmentID,
			Instance: l.Instance, Field: leftoverField(l), Expected: "absent", Observed: "present",
		},
		createdAt: l.CreatedAt, kind: l.Kind,
		remove: func(ctx context.Context) error { return v.x.RemoveDependent(ctx, l) },
	}
}

// leftoverField distinguishes the leftovers of one sandbox or environment.
func leftoverField(l driver.Dependent) string { return string(l.Kind) + " " + l.Name }

// present reports whether the object of a finding was listed.
func (v *Inventory) present(f drift.Finding) bool {
	for _, o := range v.listed {
		if f.Kind == sandbox.DriftOrphan && o.SandboxID == f.SandboxID {
			return true
		}
	}
	for _, l := range v.objects {
		if f.Kind == sandbox.DriftLeftover && l.SandboxID == f.SandboxID && leftoverField(l) == f.Field {
			return true
		}
	}
	return false
}
