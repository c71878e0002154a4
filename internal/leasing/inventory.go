package leasing

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// creationGrace is how old something must be, by its own creation time and by when it was first
// seen, before it can be a stray: its creator may not have recorded it yet.
const creationGrace = 2 * time.Minute

// inventory is what an instance has with our ledger's label, beside what the ledger knows of it.
type inventory struct {
	engine   *Engine
	x        *backend
	instance string
	began    ledger.Time // before anything was listed

	listed []driver.Observation
	// partial says which environments did not answer: nothing is known of what they have. nil: all did.
	partial *sandbox.PartialError
	objects []driver.Leftover
	// unlisted says why objects could not be listed: then nothing is destroyed.
	unlisted error

	open  []ledger.DriftFinding // all that is open on the instance
	known map[string]bool       // the sandboxes of rows that are not confirmed gone
	has   map[string]bool       // those, and the sandboxes that are listed
	uses  map[string]bool       // the environments of both
	// unread says why not all rows were read: then nothing is destroyed.
	unread error
}

// takeInventory lists what the instance has. Rows are read after that, by eachPage: what was listed
// has had its row then, so that a sandbox made meanwhile is not taken for an orphan.
func (e *Engine) takeInventory(ctx context.Context, b sandbox.Backend) (*inventory, error) {
	x, err := e.backendFor(b)
	if err != nil {
		return nil, err
	}
	v := &inventory{engine: e, x: x, unread: errUnread, began: ledger.At(e.now()),
		known: make(map[string]bool), has: make(map[string]bool), uses: make(map[string]bool)}
	if v.instance, err = x.reach(ctx); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	if err := x.recognize(bounded, v.instance); err != nil { // it may have lost the witness since
		return nil, err
	}
	if v.listed, err = x.List(bounded, e.store.ID()); err != nil && !errors.As(err, &v.partial) {
		return nil, err
	}
	v.objects, v.unlisted = x.Leftovers(bounded, e.store.ID())
	err = e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		v.open, err = tx.Findings().OpenDrift(v.instance)
		return err
	})
	for _, o := range v.listed {
		v.has[o.SandboxID], v.uses[o.EnvironmentID] = true, true
	}
	return v, err
}

// unanswered returns why an environment did not answer, nil for one that did.
func (v *inventory) unanswered(environmentID string) error {
	if v.partial == nil {
		return nil
	}
	return v.partial.Of(environmentID)
}

// answered leaves out the sandboxes of environments that did not answer: what is unknown is neither right nor gone.
func (v *inventory) answered(rows []ledger.Sandbox) []ledger.Sandbox {
	return slices.DeleteFunc(rows, func(s ledger.Sandbox) bool { return v.unanswered(s.EnvironmentID) != nil })
}

// failure names the environments that did not answer, nil where all did.
func (v *inventory) failure() error {
	if v.partial == nil {
		return nil
	}
	return v.partial
}

// surveyPage bounds the rows that a survey holds in memory, and those that it changes at once.
const surveyPage = 500

var errUnread = sandbox.Errorf(sandbox.Internal, "leasing: the rows were not read before a sweep")

// eachPage visits the rows of the instance that are not confirmed gone, a page at a time, without those of which
// nothing was listed. An error
// of visit ends nothing.
func (v *inventory) eachPage(ctx context.Context, visit func(rows []ledger.Sandbox) error) error {
	var failed error
	for after := ""; ; {
		var rows []ledger.Sandbox
		v.unread = v.engine.store.Read(ctx, func(tx *ledger.Tx) (err error) {
			rows, err = tx.InstanceSandboxes(v.instance, after, surveyPage)
			return err
		})
		if v.unread != nil {
			return failed // sweep returns v.unread
		}
		for i := range rows {
			v.known[rows[i].ID], v.has[rows[i].ID], v.uses[rows[i].EnvironmentID] = true, true, true
		}
		last := len(rows) < surveyPage
		if !last {
			after = rows[len(rows)-1].ID
		}
		failed = errors.Join(failed, visit(v.answered(rows)))
		if last {
			return failed
		}
	}
}

// stray is something on an instance that may be wanted by no row.
type stray struct {
	// seen is what is recorded of it; its looks and times are those of the ledger.
	seen      ledger.DriftFinding
	createdAt time.Time
	kind      driver.LeftoverKind // "" for a sandbox
	// ofKnown: it is what the sandboxes of an environment shared that the ledger has a row of.
	ofKnown bool
	remove  func(ctx context.Context) error
}

// strays returns what no row of the inventory wants.
func (v *inventory) strays(tx *ledger.Tx) ([]stray, error) {
	var found []stray
	for _, o := range v.listed {
		if !v.known[o.SandboxID] {
			found = append(found, v.orphan(o))
		}
	}
	for _, l := range v.objects {
		inUse := v.has[l.SandboxID] || l.SandboxID == "" && v.uses[l.EnvironmentID] || v.unanswered(l.EnvironmentID) != nil
		if !inUse {
			found = append(found, v.leftover(l))
		}
	}
	strays := found[:0]
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
		strays = append(strays, s)
	}
	return strays, nil
}

// wanted reports whether the ledger wants something now, or did when it was listed. What is too
// young, or was made on another instance, cannot be judged and counts as wanted.
func (v *inventory) wanted(tx *ledger.Tx, s stray) (bool, error) {
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

// orphan describes a sandbox as a stray. It is looked at once more before it is killed.
func (v *inventory) orphan(o driver.Observation) stray {
	return stray{
		seen: ledger.DriftFinding{
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

func (v *inventory) leftover(l driver.Leftover) stray {
	return stray{
		seen: ledger.DriftFinding{
			Kind: sandbox.DriftLeftover, SandboxID: l.SandboxID, EnvironmentID: l.EnvironmentID,
			Instance: l.Instance, Field: leftoverField(l), Expected: "absent", Observed: "present",
		},
		createdAt: l.CreatedAt, kind: l.Kind,
		remove: func(ctx context.Context) error { return v.x.RemoveLeftover(ctx, l) },
	}
}

// leftoverField tells the left-overs of one sandbox or environment apart.
func leftoverField(l driver.Leftover) string { return string(l.Kind) + " " + l.Name }

// present reports whether what a finding is about was listed.
func (v *inventory) present(f ledger.DriftFinding) bool {
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
