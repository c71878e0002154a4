package fake

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Dependents implements driver.Executor.
func (x *Executor) Dependents(ctx context.Context, ledgerID string) ([]driver.Dependent, error) {
	if err := x.enter(ctx, OpDependents, ""); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	var all []driver.Dependent
	for _, o := range x.objects {
		if o.LedgerID == ledgerID {
			all = append(all, o)
		}
	}
	return all, nil
}

// RemoveDependent implements driver.Executor.
func (x *Executor) RemoveDependent(ctx context.Context, l driver.Dependent) error {
	if err := x.enter(ctx, OpRemove, l.Instance); err != nil {
		return err
	}
	defer x.mu.Unlock()
	have, ok := x.objects[l.Name]
	if !ok {
		return nil
	}
	if have.Handle != l.Handle || have.Kind != l.Kind {
		return sandbox.Errorf(sandbox.Conflict, "%s is something else's now", l.Name)
	}
	if x.used(have) {
		return sandbox.Errorf(sandbox.Conflict, "%s is in use", l.Name)
	}
	delete(x.objects, l.Name)
	return nil
}

// used reports whether a sandbox uses an object. The caller must hold mu.
func (x *machine) used(o driver.Dependent) bool {
	for _, b := range x.containers {
		if b.spec.Handle == o.Handle ||
			o.SandboxID == "" && b.spec.LedgerID == o.LedgerID && b.spec.EnvironmentID == o.EnvironmentID {
			return true
		}
	}
	return false
}

func environmentHandle(ref driver.EnvironmentRef) driver.Handle {
	return driver.Handle{LedgerID: ref.LedgerID, EnvironmentID: ref.EnvironmentID, Instance: ref.Instance}
}

// keep creates missing objects of h. The caller must hold mu.
func (x *machine) keep(h driver.Handle, kinds ...driver.DependentKind) {
	for _, k := range kinds {
		name := h.LedgerID + "-" + h.EnvironmentID + "-" + h.SandboxID + "-" + string(k)
		if _, ok := x.objects[name]; !ok {
			x.objects[name] = driver.Dependent{Handle: h, Kind: k, Name: name, CreatedAt: x.now()}
		}
	}
}

// drop removes the objects of h. The caller must hold mu.
func (x *machine) drop(h driver.Handle) {
	for name, o := range x.objects {
		if o.Handle == h {
			delete(x.objects, name)
		}
	}
}
