package cloudflaretest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Deployer deploys to this machine: each deployment is a Server of its own. It keeps its state in memory.
type Deployer struct {
	// Front starts a proxy before a Worker, and returns its address and a function to end it; nil means no proxy.
	Front func(url string) (front string, end func())
	// Outside is Config.Outside of each Server.
	Outside string

	t       testing.TB
	account string

	mu    sync.Mutex // guards sites, and lets one deployment be made at a time
	sites map[string]*site
}

type site struct {
	cloudflare.Site
	server *Server
	end    func()
}

var _ cloudflare.Deployer = (*Deployer)(nil)

// NewDeployer returns an account whose deployments end with the test.
func NewDeployer(t testing.TB) *Deployer {
	return &Deployer{t: t, account: "account-" + sandbox.RandomIDs(8), sites: map[string]*site{}}
}

// Reference gives an image of the local engine the form of a registry's image, with a digest that means nothing here.
func Reference(image string) string { return image + "@sha256:" + strings.Repeat("0", 64) }

// Account implements cloudflare.Deployer.
func (d *Deployer) Account(context.Context) (string, error) { return d.account, nil }

// Prepare implements cloudflare.Deployer: images already have the guest.
func (d *Deployer) Prepare(
	_ context.Context, _, image string, _ func(digest string) bool,
) (cloudflare.Prepared, error) {
	return cloudflare.Prepared{Reference: image}, nil
}

// Deploy implements cloudflare.Deployer. It replaces an existing deployment and keeps nothing of it.
func (d *Deployer) Deploy(ctx context.Context, dep cloudflare.Deployment) (cloudflare.Site, error) {
	if err := dep.Check(); err != nil {
		return cloudflare.Site{}, err
	}
	image, _, _ := strings.Cut(dep.Image, "@")
	if _, err := dockertest.Engine(d.t).ImageInspect(ctx, image); cerrdefs.IsNotFound(err) {
		return cloudflare.Site{}, sandbox.Errorf(sandbox.NotFound, "there is no image %s", image).
			WithReason(sandbox.ReasonImageNotFound)
	} else if err != nil {
		return cloudflare.Site{}, sandbox.Errorf(sandbox.Unavailable, "look for image %s: %w", image, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if have, ok := d.sites[dep.Name]; ok {
		if len(dep.Differences(have.Site)) == 0 {
			return have.Site, nil
		}
		have.end()
	}
	server := Start(d.t, Config{
		Image: image, Script: string(dep.Script), Key: dep.SigningKey, OlderKey: dep.OlderKey,
		Instance: d.account, Outside: d.Outside,
	})
	made := &site{server: server, end: server.Stop, Site: cloudflare.Site{
		Name:             dep.Name,
		URL:              server.URL,
		ScriptDigest:     cloudflare.ScriptDigest(dep.Script),
		SigningKeyDigest: dep.KeysDigest(),
		Variables:        dep.Variables,
		Image:            dep.Image,
		Resources:        dep.Resources,
		MaxInstances:     dep.MaxInstances,
		RolloutGrace:     dep.RolloutGrace,
	}}
	if d.Front != nil {
		front, end := d.Front(server.URL)
		made.URL, made.end = front, func() {
			end()
			server.Stop()
		}
	}
	d.sites[dep.Name] = made
	return made.Site, nil
}

// Query asks the database of a deployment.
func (d *Deployer) Query(name, statement string) []map[string]any {
	d.t.Helper()
	d.mu.Lock()
	s, ok := d.sites[name]
	d.mu.Unlock()
	if !ok {
		d.t.Fatalf("there is no deployment %s", name)
	}
	return s.server.Query(statement)
}

// Route implements cloudflare.Deployer: all deployments have a route.
func (d *Deployer) Route(ctx context.Context, name string) (cloudflare.Site, error) {
	return d.Find(ctx, name)
}

// Find implements cloudflare.Deployer.
func (d *Deployer) Find(_ context.Context, name string) (cloudflare.Site, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := d.sites[name]; ok {
		return s.Site, nil
	}
	return cloudflare.Site{}, sandbox.Errorf(sandbox.NotFound, "there is no deployment %s", name)
}

// List implements cloudflare.Deployer.
func (d *Deployer) List(_ context.Context, ledgerID string) ([]cloudflare.Site, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []cloudflare.Site
	for name, s := range d.sites {
		if strings.HasPrefix(name, cloudflare.DeploymentPrefix(ledgerID)) {
			all = append(all, s.Site)
		}
	}
	return all, nil
}

// Doubt implements cloudflare.Deployer: nothing is cached here.
func (d *Deployer) Doubt(string) {}

// Metered implements cloudflare.Deployer: nothing is metered here.
func (d *Deployer) Metered(
	context.Context, []string, time.Time, time.Time,
) (map[string][]driver.Metered, error) {
	return nil, sandbox.Errorf(sandbox.Forbidden, "this machine meters nothing")
}

// RemoveImages implements cloudflare.Deployer: there are none.
func (d *Deployer) RemoveImages(context.Context, string) error { return nil }

// Delete implements cloudflare.Deployer.
func (d *Deployer) Delete(_ context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := d.sites[name]; ok {
		s.end()
		delete(d.sites, name)
	}
	return nil
}
