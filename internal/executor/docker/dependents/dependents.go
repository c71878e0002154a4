// Package dependents finds and removes what sandboxes and environments of a ledger left on an engine.
package dependents

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/channels"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/networks"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/relays"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Cleaner implements driver.Cleaner.
type Cleaner struct {
	engine   *engine.Engine
	networks *networks.Networks
	relays   *relays.Relays
	channels *channels.Channels
}

var _ driver.Cleaner = (*Cleaner)(nil)

// New returns the cleaner of an engine.
func New(e *engine.Engine, nets *networks.Networks, rels *relays.Relays, chans *channels.Channels) *Cleaner {
	return &Cleaner{engine: e, networks: nets, relays: rels, channels: chans}
}

// Dependents implements driver.Cleaner: the ledger's populators, gateways, networks, volumes and images, the
// directories of its relay, and the relay itself if nothing else is left.
func (cl *Cleaner) Dependents(ctx context.Context, ledgerID string) ([]driver.Dependent, error) {
	f := objects.Filter(map[string]string{objects.LabelProvider: objects.ProviderName, objects.LabelLedger: ledgerID})
	populators, err := cl.engine.ContainersOf(ctx, ledgerID, objects.RolePopulator)
	if err != nil {
		return nil, err
	}
	companions, err := cl.engine.ContainersOf(ctx, ledgerID, objects.RoleCompanion)
	if err != nil {
		return nil, err
	}
	gateways, err := cl.engine.ContainersOf(ctx, ledgerID, objects.RoleGateway)
	if err != nil {
		return nil, err
	}
	networks, err := cl.networksOf(ctx, ledgerID)
	if err != nil {
		return nil, err
	}
	volumes, err := cl.volumesOf(ctx, ledgerID, f)
	if err != nil {
		return nil, err
	}
	images, err := cl.imagesOf(ctx, ledgerID, f)
	if err != nil {
		return nil, err
	}
	relayed, err := cl.relays.Dependents(ctx, ledgerID)
	return slices.Concat(companions, populators, gateways, networks, volumes, images, relayed), err
}

func (cl *Cleaner) networksOf(ctx context.Context, ledgerID string) ([]driver.Dependent, error) {
	found, err := cl.networks.List(ctx, map[string]string{objects.LabelProvider: objects.ProviderName,
		objects.LabelLedger: ledgerID, objects.LabelRole: string(objects.RoleNetwork)})
	var list []driver.Dependent
	for _, n := range found {
		list = append(list, objects.Dependent(n.Name, n.Labels, n.Created))
	}
	return list, err
}

func (cl *Cleaner) volumesOf(ctx context.Context, ledgerID string, f dockerapi.Filters) ([]driver.Dependent, error) {
	found, err := cl.engine.ListVolumes(ctx, "volumes of ledger", ledgerID, f)
	var list []driver.Dependent
	for _, v := range found {
		if !objects.OfLedger(v.Labels) { // removed with the ledger's last environment
			list = append(list, objects.Dependent(v.Name, v.Labels, engine.ParseTime(v.CreatedAt)))
		}
	}
	return list, err
}

func (cl *Cleaner) imagesOf(ctx context.Context, ledgerID string, f dockerapi.Filters) ([]driver.Dependent, error) {
	found, err := cl.engine.ListImages(ctx, "images of ledger", ledgerID, f)
	var list []driver.Dependent
	for _, img := range found {
		if objects.OfLedger(img.Labels) {
			continue
		}
		name := img.ID
		if len(img.RepoTags) > 0 {
			name = img.RepoTags[0]
		}
		list = append(list, objects.Dependent(name, img.Labels, time.Unix(img.Created, 0)))
	}
	return list, err
}

// RemoveDependent implements driver.Cleaner. It does not wait. Errors: Conflict while the object is in use.
func (cl *Cleaner) RemoveDependent(ctx context.Context, l driver.Dependent) error {
	switch l.Kind {
	case driver.DependentRelay, driver.DependentChannels, driver.DependentRelayImage:
		return cl.relays.RemoveDependent(ctx, l)
	case driver.DependentChannel:
		if err := cl.relays.CheckUnused(ctx, l); err != nil {
			return err
		}
		cl.channels.Leave(l.Handle)
		return cl.relays.CloseChannel(ctx, l.Handle)
	}
	if err := objects.CheckRef(objects.EnvironmentOf(l.Handle)); err != nil {
		return err
	}
	var err error
	switch l.Kind {
	case driver.DependentPopulator, driver.DependentGateway, driver.DependentCompanion:
		err = cl.removeContainer(ctx, l)
	case driver.DependentWorkspace, driver.DependentData, driver.DependentLease, driver.DependentImageVolume,
		driver.DependentGuest, driver.DependentEgress:
		err = cl.removeVolume(ctx, l)
	case driver.DependentNetwork:
		err = cl.removeNetworks(ctx, l)
	case driver.DependentTemplate, driver.DependentGatewayImage:
		err = cl.removeImage(ctx, l)
	default:
		return sandbox.Errorf(sandbox.Invalid, "docker: %s: unknown kind of object %q", l.Name, l.Kind)
	}
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return cl.engine.Confirm(ctx, l.Instance)
	}
	return err
}

func (cl *Cleaner) removeContainer(ctx context.Context, l driver.Dependent) error {
	c, err := cl.engine.Container(ctx, l.Name)
	if err != nil {
		return err
	}
	if err := cl.engine.CheckLabels("container", l.Name, c.Config.Labels, objects.DependentLabels(l)); err != nil {
		return err
	}
	return cl.engine.RemoveContainer(ctx, c.ID)
}

func (cl *Cleaner) removeVolume(ctx context.Context, l driver.Dependent) error {
	if _, err := cl.engine.Volume(ctx, l.Name, objects.DependentLabels(l)); err != nil {
		return err
	}
	return cl.engine.TryRemoveVolume(ctx, l.Name)
}

func (cl *Cleaner) removeImage(ctx context.Context, l driver.Dependent) error {
	img, err := cl.engine.Image(ctx, l.Name)
	if err != nil {
		return err
	}
	if err := cl.engine.CheckLabels("image", l.Name, engine.LabelsOf(img), objects.DependentLabels(l)); err != nil {
		return err
	}
	r := engine.Change("remove image", l.Name, sandbox.ReasonRemovalFailed)
	return cl.engine.Do(ctx, r, func(ctx context.Context) error {
		_, err := cl.engine.API.ImageRemove(ctx, l.Name, dockerapi.ImageRemoveOptions{PruneChildren: true})
		return err
	})
}

// removeNetworks removes every network with the name: two concurrent programs may have created two.
func (cl *Cleaner) removeNetworks(ctx context.Context, l driver.Dependent) error {
	found, err := engine.Fetch(ctx, cl.engine, engine.Read("find network", l.Name),
		func(ctx context.Context) ([]dockerapi.NetworkSummary, error) {
			return cl.engine.API.NetworkList(ctx,
				dockerapi.NetworkListOptions{Filters: dockerapi.NewFilters(dockerapi.Filter("name", l.Name))})
		})
	if err != nil {
		return err
	}
	// The filter also matches parts of names.
	found = slices.DeleteFunc(found, func(n dockerapi.NetworkSummary) bool { return n.Name != l.Name })
	if len(found) == 0 {
		return cl.engine.Confirm(ctx, l.Instance)
	}
	for _, n := range found {
		if err := cl.engine.CheckLabels("network", n.Name, n.Labels, objects.DependentLabels(l)); err != nil {
			return err
		}
		if err := cl.networks.TryRemove(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
