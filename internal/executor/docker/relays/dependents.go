package relays

import (
	"context"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Dependents returns the sandbox directories of a relay. If the engine has nothing else of the ledger, it returns the
// relay itself. It skips directories of a stopped relay: the next use starts it.
func (rs *Relays) Dependents(ctx context.Context, ledgerID string) ([]driver.Dependent, error) {
	parts, err := rs.parts(ctx, ledgerID)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	r := ref{ledgerID, parts[0].Instance}
	if used, err := rs.hasOthers(ctx, r); err != nil || !used {
		return parts, err
	}
	c, err := rs.lookUp(ctx, r)
	if sandbox.CodeOf(err) == sandbox.NotFound || err == nil && !c.State.Running {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	err = rs.call(ctx, r, "list the channels of ledger "+ledgerID,
		func(ctx context.Context, c *relay.Client) (err error) {
			ids, err = c.List(ctx)
			return err
		})
	if sandbox.CodeOf(err) == sandbox.NotFound { // the ledger's last environment was removed meanwhile
		return nil, nil
	}
	var list []driver.Dependent
	for _, id := range ids {
		list = append(list, driver.Dependent{Kind: driver.DependentChannel, Name: relay.SandboxDir(id),
			Handle: objects.HandleOf(ledgerID, r.instance, id)})
	}
	return list, err
}

// parts lists the objects of a ledger's relay.
func (rs *Relays) parts(ctx context.Context, ledgerID string) ([]driver.Dependent, error) {
	parts, err := rs.engine.ContainersOf(ctx, ledgerID, objects.RoleRelay)
	if err != nil {
		return nil, err
	}
	labels := ref{ledgerID: ledgerID}.labels(objects.RoleChannels)
	delete(labels, objects.LabelInstance)
	volumes, err := rs.engine.ListVolumes(ctx, "channels of ledger", ledgerID, objects.Filter(labels))
	if err != nil {
		return nil, err
	}
	for _, v := range volumes {
		parts = append(parts, objects.Dependent(v.Name, v.Labels, engine.ParseTime(v.CreatedAt)))
	}
	labels[objects.LabelRole] = string(objects.RoleRelayCode)
	images, err := rs.engine.ListImages(ctx, "relay images of ledger", ledgerID, objects.Filter(labels))
	for _, img := range images {
		parts = append(parts, objects.Dependent(strings.Join(img.RepoTags, " "), img.Labels, time.Unix(img.Created, 0)))
	}
	return parts, err
}

// RemoveDependent removes the relay. Errors: Conflict while the engine has other objects of the ledger.
func (rs *Relays) RemoveDependent(ctx context.Context, l driver.Dependent) error {
	r := refOf(l.Handle)
	if err := rs.confirm(ctx, r); err != nil {
		return err
	}
	used, err := rs.hasOthers(ctx, r)
	if used {
		return sandbox.Errorf(sandbox.Conflict, "docker: %s: the engine still has sandboxes or environments of ledger %s",
			l.Name, l.LedgerID)
	}
	if err != nil {
		return err
	}
	return rs.Remove(ctx, r.ledgerID, r.instance)
}

// confirm checks the ids of a relay and the engine.
func (rs *Relays) confirm(ctx context.Context, r ref) error {
	if err := r.check(); err != nil {
		return err
	}
	return rs.engine.Confirm(ctx, r.instance)
}

// CheckUnused checks that no container uses the directory of a sandbox. Errors: Conflict while the container exists.
func (rs *Relays) CheckUnused(ctx context.Context, l driver.Dependent) error {
	if err := rs.confirm(ctx, refOf(l.Handle)); err != nil {
		return err
	}
	if !objects.ValidID(l.SandboxID) {
		return sandbox.Errorf(sandbox.Invalid, "docker: %s: %q is not a valid sandbox id", l.Name, l.SandboxID)
	}
	_, err := rs.engine.Container(ctx, objects.SandboxName(l.Handle))
	switch {
	case err == nil:
		return sandbox.Errorf(sandbox.Conflict, "docker: %s: container %s uses it", l.Name, objects.SandboxName(l.Handle))
	case sandbox.CodeOf(err) != sandbox.NotFound:
		return err
	}
	return nil
}
