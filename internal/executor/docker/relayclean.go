package docker

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

// relayDependents returns the sandbox directories of a relay and, if the engine has nothing else of the
// ledger, the relay itself. It skips directories of a stopped relay: the next use starts it.
func (e *Executor) relayDependents(ctx context.Context, ledgerID string) ([]driver.Dependent, error) {
	parts, err := e.relayParts(ctx, ledgerID)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	r := relayRef{ledgerID, parts[0].Instance}
	if used, err := e.hasOthers(ctx, r); err != nil || !used {
		return parts, err
	}
	c, err := e.lookUpRelay(ctx, r)
	if sandbox.CodeOf(err) == sandbox.NotFound || err == nil && !c.State.Running {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	err = e.callRelay(ctx, r, "list the channels of ledger "+ledgerID,
		func(ctx context.Context, c *relay.Client) (err error) {
			ids, err = c.List(ctx)
			return err
		})
	if sandbox.CodeOf(err) == sandbox.NotFound { // the ledger's last environment went meanwhile
		return nil, nil
	}
	var list []driver.Dependent
	for _, id := range ids {
		list = append(list, driver.Dependent{Kind: driver.DependentChannel, Name: relay.SandboxDir(id),
			Handle: objects.HandleOf(ledgerID, r.instance, id)})
	}
	return list, err
}

// relayParts lists the objects of a ledger's relay.
func (e *Executor) relayParts(ctx context.Context, ledgerID string) ([]driver.Dependent, error) {
	parts, err := e.engine.ContainersOf(ctx, ledgerID, objects.RoleRelay)
	if err != nil {
		return nil, err
	}
	labels := relayRef{ledgerID: ledgerID}.labels(objects.RoleChannels)
	delete(labels, objects.LabelInstance)
	volumes, err := e.engine.ListVolumes(ctx, "channels of ledger", ledgerID, objects.Filter(labels))
	if err != nil {
		return nil, err
	}
	for _, v := range volumes {
		parts = append(parts, objects.Dependent(v.Name, v.Labels, engine.ParseTime(v.CreatedAt)))
	}
	labels[objects.LabelRole] = string(objects.RoleRelayCode)
	images, err := e.engine.ListImages(ctx, "relay images of ledger", ledgerID, objects.Filter(labels))
	for _, img := range images {
		parts = append(parts, objects.Dependent(strings.Join(img.RepoTags, " "), img.Labels, time.Unix(img.Created, 0)))
	}
	return parts, err
}

// removeOfRelay removes a sandbox's directory, or the relay. Errors: Conflict while the sandbox's container
// exists, or while the engine has anything else of the ledger.
func (e *Executor) removeOfRelay(ctx context.Context, l driver.Dependent) error {
	r := relayOf(l.Handle)
	if err := r.check(); err != nil {
		return err
	}
	if err := e.engine.Confirm(ctx, r.instance); err != nil {
		return err
	}
	if l.Kind != driver.DependentChannel {
		used, err := e.hasOthers(ctx, r)
		if used {
			return sandbox.Errorf(sandbox.Conflict, "docker: %s: the engine still has sandboxes or environments of ledger %s",
				l.Name, l.LedgerID)
		}
		if err != nil {
			return err
		}
		return e.removeRelay(ctx, r)
	}
	if !objects.ValidID(l.SandboxID) {
		return sandbox.Errorf(sandbox.Invalid, "docker: %s: %q is not a valid sandbox id", l.Name, l.SandboxID)
	}
	_, err := e.engine.Container(ctx, objects.SandboxName(l.Handle))
	switch {
	case err == nil:
		return sandbox.Errorf(sandbox.Conflict, "docker: %s: container %s uses it", l.Name, objects.SandboxName(l.Handle))
	case sandbox.CodeOf(err) != sandbox.NotFound:
		return err
	}
	return e.closeChannel(ctx, l.Handle)
}
