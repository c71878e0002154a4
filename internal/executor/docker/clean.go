package docker

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Dependents implements driver.Cleaner: the ledger's populators, gateways, networks, volumes and images, the
// directories of its relay, and the relay itself if nothing else is left.
func (e *Executor) Dependents(ctx context.Context, ledgerID string) ([]driver.Dependent, error) {
	f := objects.Filter(map[string]string{objects.LabelProvider: objects.ProviderName, objects.LabelLedger: ledgerID})
	populators, err := e.engine.ContainersOf(ctx, ledgerID, objects.RolePopulator)
	if err != nil {
		return nil, err
	}
	companions, err := e.engine.ContainersOf(ctx, ledgerID, objects.RoleCompanion)
	if err != nil {
		return nil, err
	}
	gateways, err := e.engine.ContainersOf(ctx, ledgerID, objects.RoleGateway)
	if err != nil {
		return nil, err
	}
	networks, err := e.dependentNetworks(ctx, ledgerID)
	if err != nil {
		return nil, err
	}
	volumes, err := e.volumesOf(ctx, ledgerID, f)
	if err != nil {
		return nil, err
	}
	images, err := e.imagesOf(ctx, ledgerID, f)
	if err != nil {
		return nil, err
	}
	relayed, err := e.relays.Dependents(ctx, ledgerID)
	return slices.Concat(companions, populators, gateways, networks, volumes, images, relayed), err
}

func (e *Executor) dependentNetworks(ctx context.Context, ledgerID string) ([]driver.Dependent, error) {
	found, err := e.networks.List(ctx,
		map[string]string{objects.LabelProvider: objects.ProviderName, objects.LabelLedger: ledgerID, objects.LabelRole: string(objects.RoleNetwork)})
	var list []driver.Dependent
	for _, n := range found {
		list = append(list, objects.Dependent(n.Name, n.Labels, n.Created))
	}
	return list, err
}

func (e *Executor) volumesOf(ctx context.Context, ledgerID string, f dockerapi.Filters) ([]driver.Dependent, error) {
	found, err := e.engine.ListVolumes(ctx, "volumes of ledger", ledgerID, f)
	var list []driver.Dependent
	for _, v := range found {
		if !objects.OfLedger(v.Labels) { // removed with the ledger's last environment
			list = append(list, objects.Dependent(v.Name, v.Labels, engine.ParseTime(v.CreatedAt)))
		}
	}
	return list, err
}

func (e *Executor) imagesOf(ctx context.Context, ledgerID string, f dockerapi.Filters) ([]driver.Dependent, error) {
	found, err := e.engine.ListImages(ctx, "images of ledger", ledgerID, f)
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

// RemoveDependent implements driver.Cleaner. It does not wait: an object in use is a Conflict.
func (e *Executor) RemoveDependent(ctx context.Context, l driver.Dependent) error {
	switch l.Kind {
	case driver.DependentRelay, driver.DependentChannels, driver.DependentRelayImage:
		return e.relays.RemoveDependent(ctx, l)
	case driver.DependentChannel:
		if err := e.relays.CheckUnused(ctx, l); err != nil {
			return err
		}
		e.channels.Leave(l.Handle)
		return e.relays.CloseChannel(ctx, l.Handle)
	}
	if err := objects.CheckRef(objects.EnvironmentOf(l.Handle)); err != nil {
		return err
	}
	var err error
	switch l.Kind {
	case driver.DependentPopulator, driver.DependentGateway, driver.DependentCompanion:
		err = e.removeDependentContainer(ctx, l)
	case driver.DependentWorkspace, driver.DependentData, driver.DependentLease, driver.DependentGuest,
		driver.DependentEgress:
		err = e.removeDependentVolume(ctx, l)
	case driver.DependentNetwork:
		err = e.removeDependentNetwork(ctx, l)
	case driver.DependentTemplate, driver.DependentGatewayImage:
		err = e.removeDependentImage(ctx, l)
	default:
		return sandbox.Errorf(sandbox.Invalid, "docker: %s: unknown kind of object %q", l.Name, l.Kind)
	}
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return e.engine.Confirm(ctx, l.Instance)
	}
	return err
}

func (e *Executor) removeDependentContainer(ctx context.Context, l driver.Dependent) error {
	c, err := e.engine.Container(ctx, l.Name)
	if err != nil {
		return err
	}
	if err := e.engine.CheckLabels("container", l.Name, c.Config.Labels, objects.DependentLabels(l)); err != nil {
		return err
	}
	return e.engine.RemoveContainer(ctx, c.ID)
}

func (e *Executor) removeDependentVolume(ctx context.Context, l driver.Dependent) error {
	if _, err := e.engine.Volume(ctx, l.Name, objects.DependentLabels(l)); err != nil {
		return err
	}
	return e.engine.TryRemoveVolume(ctx, l.Name)
}

func (e *Executor) removeDependentImage(ctx context.Context, l driver.Dependent) error {
	img, err := e.engine.Image(ctx, l.Name)
	if err != nil {
		return err
	}
	if err := e.engine.CheckLabels("image", l.Name, engine.LabelsOf(img), objects.DependentLabels(l)); err != nil {
		return err
	}
	return e.engine.Do(ctx, engine.Change("remove image", l.Name, sandbox.ReasonRemovalFailed), func(ctx context.Context) error {
		_, err := e.engine.API.ImageRemove(ctx, l.Name, dockerapi.ImageRemoveOptions{PruneChildren: true})
		return err
	})
}

// removeDependentNetwork removes every network of the name: two concurrent programs may have created two.
func (e *Executor) removeDependentNetwork(ctx context.Context, l driver.Dependent) error {
	found, err := engine.Fetch(ctx, e.engine, engine.Read("find network", l.Name),
		func(ctx context.Context) ([]dockerapi.NetworkSummary, error) {
			return e.engine.API.NetworkList(ctx,
				dockerapi.NetworkListOptions{Filters: dockerapi.NewFilters(dockerapi.Filter("name", l.Name))})
		})
	if err != nil {
		return err
	}
	// The filter also matches parts of names.
	found = slices.DeleteFunc(found, func(n dockerapi.NetworkSummary) bool { return n.Name != l.Name })
	if len(found) == 0 {
		return e.engine.Confirm(ctx, l.Instance)
	}
	for _, n := range found {
		if err := e.engine.CheckLabels("network", n.Name, n.Labels, objects.DependentLabels(l)); err != nil {
			return err
		}
		if err := e.networks.TryRemove(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
