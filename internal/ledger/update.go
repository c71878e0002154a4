package ledger

import (
	"reflect"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A row changes within Update, which reads it, changes it and stores it once. So code that changes a row cannot forget
// to store it. A helper that changes a sandbox gets it from Update.

// Update changes a sandbox: it reads the row, calls change and stores what change has changed. When change fails,
// nothing is stored. Errors: NotFound; Internal for a change of a purged sandbox, and for an update within an update of
// the same sandbox.
func (tx *Tx) Update(id string, change func(s *Sandbox) error) error {
	s, err := tx.KnownSandbox(id)
	if err != nil {
		return err
	}
	return tx.UpdateRow(s, change)
}

// UpdateRow is Update for a row that this transaction has read or created.
func (tx *Tx) UpdateRow(s *Sandbox, change func(s *Sandbox) error) error {
	if slices.Contains(tx.updating, s.ID) {
		return sandbox.Errorf(sandbox.Internal, "sandbox %s is updated within an update of itself", s.ID)
	}
	tx.updating = append(tx.updating, s.ID)
	defer func() { tx.updating = tx.updating[:len(tx.updating)-1] }()
	if s.Tombstone != nil {
		return changeNothing(s, change)
	}
	if err := change(s); err != nil {
		return err
	}
	return storage.Save(tx, s)
}

// UpdateRows is UpdateRow for several rows, one after the other.
func (tx *Tx) UpdateRows(rows []Sandbox, change func(s *Sandbox) error) error {
	for i := range rows {
		if err := tx.UpdateRow(&rows[i], change); err != nil {
			return err
		}
	}
	return nil
}

// changeNothing refuses a change of a purged sandbox: storing it would bring it back.
func changeNothing(s *Sandbox, change func(s *Sandbox) error) error {
	was := *s
	if err := change(s); err != nil || reflect.DeepEqual(was, *s) {
		return err
	}
	return sandbox.Errorf(sandbox.Internal, "sandbox %s is purged and cannot change", s.ID)
}

// isUpdated reports whether a row may change: within an update, or before it is stored for the first time.
func (tx *Tx) isUpdated(s *Sandbox) bool {
	return !storage.IsKnown(tx, s) || slices.Contains(tx.updating, s.ID)
}

// UpdateEnvironment changes an environment, as Update changes a sandbox. Errors: NotFound.
func (tx *Tx) UpdateEnvironment(id string, change func(e *Environment) error) error {
	e, err := tx.KnownEnvironment(id)
	if err != nil {
		return err
	}
	return tx.UpdateEnvironmentRow(e, change)
}

// UpdateEnvironmentRow is UpdateEnvironment for a row that this transaction has read.
func (tx *Tx) UpdateEnvironmentRow(e *Environment, change func(e *Environment) error) error {
	if err := change(e); err != nil {
		return err
	}
	e.UpdatedAt = tx.Now
	return storage.Save(tx, e)
}
