package docker

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Leftovers implements driver.Cleaner: the ledger's carriers, gateways, networks, volumes and images, the directories
// of its relay, and the relay itself where nothing else is left.
func (e *Executor) Leftovers(ctx context.Context, ledgerID string) ([]driver.Leftover, error) {
	f := labelFilter(map[string]string{labelProvider: providerName, labelLedger: ledgerID})
	carriers, err := e.containersOf(ctx, ledgerID, roleCarrier)
	if err != nil {
		return nil, err
	}
	gateways, err := e.containersOf(ctx, ledgerID, roleGateway)
	if err != nil {
		return nil, err
	}
	networks, err := e.leftNetworks(ctx, ledgerID)
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
	relayed, err := e.relayLeftovers(ctx, ledgerID)
	return slices.Concat(carriers, gateways, networks, volumes, images, relayed), err
}

func (e *Executor) containersOf(ctx context.Context, ledgerID string, r role) ([]driver.Leftover, error) {
	f := labelFilter(map[string]string{labelLedger: ledgerID, labelRole: string(r)})
	found, err := fetch(ctx, e, read("list "+string(r)+"s of ledger", ledgerID), func(ctx context.Context) ([]dockerapi.ContainerSummary, error) {
		return e.api.ContainerList(ctx, dockerapi.ContainerListOptions{All: true, Filters: f})
	})
	var list []driver.Leftover
	for _, c := range found {
		name := c.ID
		if len(c.Names) > 0 {
			name = strings.TrimPrefix(c.Names[0], "/")
		}
		list = append(list, leftover(name, c.Labels, time.Unix(c.Created, 0)))
	}
	return list, err
}

func (e *Executor) leftNetworks(ctx context.Context, ledgerID string) ([]driver.Leftover, error) {
	found, err := e.networksOf(ctx, map[string]string{labelProvider: providerName, labelLedger: ledgerID, labelRole: string(roleNetwork)})
	var list []driver.Leftover
	for _, n := range found {
		list = append(list, leftover(n.Name, n.Labels, n.Created))
	}
	return list, err
}

func (e *Executor) volumesOf(ctx context.Context, ledgerID string, f dockerapi.Filters) ([]driver.Leftover, error) {
	found, err := fetch(ctx, e, read("list volumes of ledger", ledgerID), func(ctx context.Context) (dockerapi.VolumeListResponse, error) {
		return e.api.VolumeList(ctx, dockerapi.VolumeListOptions{Filters: f})
	})
	var list []driver.Leftover
	for _, v := range found.Volumes {
		if !ofLedger(v.Labels) { // it goes with the ledger's last environment
			list = append(list, leftover(v.Name, v.Labels, parseTime(v.CreatedAt)))
		}
	}
	return list, err
}

func (e *Executor) imagesOf(ctx context.Context, ledgerID string, f dockerapi.Filters) ([]driver.Leftover, error) {
	found, err := fetch(ctx, e, read("list images of ledger", ledgerID), func(ctx context.Context) ([]dockerapi.ImageSummary, error) {
		return e.api.ImageList(ctx, dockerapi.ImageListOptions{Filters: f})
	})
	var list []driver.Leftover
	for _, img := range found {
		if ofLedger(img.Labels) {
			continue
		}
		name := img.ID
		if len(img.RepoTags) > 0 {
			name = img.RepoTags[0]
		}
		list = append(list, leftover(name, img.Labels, time.Unix(img.Created, 0)))
	}
	return list, err
}

func leftover(name string, labels map[string]string, created time.Time) driver.Leftover {
	return driver.Leftover{
		Handle: driver.Handle{
			LedgerID: labels[labelLedger], EnvironmentID: labels[labelEnvironment],
			SandboxID: labels[labelSandbox], Instance: labels[labelInstance],
		},
		Kind: driver.LeftoverKind(labels[labelRole]), Name: name, CreatedAt: created.UTC(),
	}
}

// RemoveLeftover implements driver.Cleaner. It waits for nothing: what is in use is a conflict.
func (e *Executor) RemoveLeftover(ctx context.Context, l driver.Leftover) error {
	switch l.Kind {
	case driver.LeftoverRelay, driver.LeftoverChannels, driver.LeftoverRelayImage, driver.LeftoverChannel:
		return e.removeOfRelay(ctx, l)
	}
	if err := checkRef(environmentOf(l.Handle)); err != nil {
		return err
	}
	var err error
	switch l.Kind {
	case driver.LeftoverCarrier, driver.LeftoverGateway:
		err = e.removeLeftContainer(ctx, l)
	case driver.LeftoverWorkspace, driver.LeftoverData, driver.LeftoverLease, driver.LeftoverGuest, driver.LeftoverEgress:
		err = e.removeLeftVolume(ctx, l)
	case driver.LeftoverNetwork:
		err = e.removeLeftNetwork(ctx, l)
	case driver.LeftoverSeed, driver.LeftoverGatewayImage:
		err = e.removeLeftImage(ctx, l)
	default:
		return sandbox.Errorf(sandbox.Invalid, "docker: %s: nothing that this program makes is a %q", l.Name, l.Kind)
	}
	if isCode(err, sandbox.NotFound) {
		return e.confirm(ctx, l.Instance)
	}
	return err
}

// leftoverLabels are what must still be on an object for it to be removed.
func leftoverLabels(l driver.Leftover) map[string]string {
	labels := environmentLabels(environmentOf(l.Handle), role(l.Kind))
	if l.SandboxID != "" {
		labels[labelSandbox] = l.SandboxID
	}
	return labels
}

func (e *Executor) removeLeftContainer(ctx context.Context, l driver.Leftover) error {
	c, err := e.lookUp(ctx, l.Name)
	if err != nil {
		return err
	}
	if err := e.checkLabels("container", l.Name, c.Config.Labels, leftoverLabels(l)); err != nil {
		return err
	}
	return e.removeContainer(ctx, c.ID)
}

func (e *Executor) removeLeftVolume(ctx context.Context, l driver.Leftover) error {
	v, err := fetch(ctx, e, read("look for volume", l.Name), func(ctx context.Context) (dockerapi.Volume, error) {
		return e.api.VolumeInspect(ctx, l.Name)
	})
	if err != nil {
		return err
	}
	if err := e.checkLabels("volume", l.Name, v.Labels, leftoverLabels(l)); err != nil {
		return err
	}
	return e.do(ctx, change("remove volume", l.Name, sandbox.ReasonRemovalFailed), func(ctx context.Context) error {
		return e.api.VolumeRemove(ctx, l.Name, false)
	})
}

func (e *Executor) removeLeftImage(ctx context.Context, l driver.Leftover) error {
	img, err := fetch(ctx, e, read("look for image", l.Name), func(ctx context.Context) (dockerapi.ImageInspect, error) {
		return e.api.ImageInspect(ctx, l.Name)
	})
	if err != nil {
		return err
	}
	var labels map[string]string
	if img.Config != nil {
		labels = img.Config.Labels
	}
	if err := e.checkLabels("image", l.Name, labels, leftoverLabels(l)); err != nil {
		return err
	}
	return e.do(ctx, change("remove image", l.Name, sandbox.ReasonRemovalFailed), func(ctx context.Context) error {
		_, err := e.api.ImageRemove(ctx, l.Name, dockerapi.ImageRemoveOptions{PruneChildren: true})
		return err
	})
}

// removeLeftNetwork removes every network of the name: two programs at once may have made two.
func (e *Executor) removeLeftNetwork(ctx context.Context, l driver.Leftover) error {
	found, err := fetch(ctx, e, read("look for network", l.Name), func(ctx context.Context) ([]dockerapi.NetworkSummary, error) {
		return e.api.NetworkList(ctx, dockerapi.NetworkListOptions{Filters: dockerapi.NewFilters(dockerapi.Filter("name", l.Name))})
	})
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(n dockerapi.NetworkSummary) bool { return n.Name != l.Name }) // the filter takes parts of names
	if len(found) == 0 {
		return e.confirm(ctx, l.Instance)
	}
	for _, n := range found {
		if err := e.checkLabels("network", n.Name, n.Labels, leftoverLabels(l)); err != nil {
			return err
		}
		if err := e.removeNetwork(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
