package cloudflare

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What an environment's Worker is told of its image, in plain text, to be read back: how the environment names it, and
// what was prepared of it.
const (
	variableImage    = "IMAGE"
	variablePrepared = "IMAGE_PREPARED"
)

// Check implements driver.Provisioner. Whether there is such an image only Provision finds out.
func (e *Executor) Check(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) error {
	if err := e.confirm(ctx, ref.Instance); err != nil {
		return err
	}
	var site Site
	if InstanceTypeOf(spec.Resources) == sizeOfDefault || spec.KeepDisk { // the policy it was made with may lack them
		var err error
		if site, err = e.siteOf(ctx, ref); err != nil {
			return err
		}
	}
	return e.check(ref, spec, site)
}

// check is Check of an environment whose site is known; a zero one is of one that is not made.
func (e *Executor) check(ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec, site Site) error {
	// Whatever the specification says, a container that sleeps is stopped.
	spec.Backend, spec.SleepMode = sandbox.Cloudflare, sandbox.SleepStop
	fields := append(spec.Unsupported(), keepDiskFields(e.policyFor(site, spec.Resources), spec)...)
	if err := sandbox.InvalidFields("cloudflare: environment "+ref.EnvironmentID, fields); err != nil {
		return err
	}
	d, err := e.deployment(ref, spec, site)
	if err != nil {
		return err
	}
	return d.Check()
}

// siteOf finds the site of an environment, a zero one where there is none.
func (e *Executor) siteOf(ctx context.Context, ref driver.EnvironmentRef) (Site, error) {
	site, err := e.deployer.Find(ctx, DeploymentName(ref.LedgerID, ref.EnvironmentID))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return Site{}, nil
	}
	return site, err
}

// deployment is what an environment is deployed with, once its image is prepared.
func (e *Executor) deployment(ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec, site Site) (Deployment, error) {
	script, err := Script()
	if err != nil {
		return Deployment{}, err
	}
	name := DeploymentName(ref.LedgerID, ref.EnvironmentID)
	keys, err := e.keysOf(name)
	if err != nil {
		return Deployment{}, err
	}
	var older sandbox.Secret
	if len(keys) > 1 {
		older = keys[1]
	}
	d := Deployment{
		Name: name, Script: script, Image: spec.Image, Resources: spec.Resources, MaxInstances: e.cfg.MaxInstances,
		SigningKey: keys[0], OlderKey: older, RolloutGrace: e.cfg.RolloutGrace, Policy: e.policyFor(site, spec.Resources),
	}
	if d.Policy == PolicyDurableObject {
		d.Images = byName(d.Image)
	}
	return d, nil
}

// prepare is deployment with its image prepared, and whether that had to be sent.
func (e *Executor) prepare(ctx context.Context, ref driver.EnvironmentRef,
	spec sandbox.EnvironmentSpec) (d Deployment, sent bool, err error) {
	if err := e.confirm(ctx, ref.Instance); err != nil {
		return d, false, err
	}
	site, err := e.siteOf(ctx, ref)
	if err != nil {
		return d, false, err
	}
	if err := e.check(ref, spec, site); err != nil {
		return d, false, err
	}
	if d, err = e.deployment(ref, spec, site); err != nil {
		return d, false, err
	}
	if d.Policy == PolicyDurableObject {
		return e.preparePinned(ctx, ref, spec, site, d)
	}
	p, err := e.deployer.Prepare(ctx, d.Name, spec.Image, nil)
	d.use(spec.Image, p.Reference)
	return d, p.Sent, err
}

// preparePinned prepares an image beside those that starts still need. What no sandbox needs leaves the map of images
// with the next upload, and the registry when the next image is sent.
func (e *Executor) preparePinned(
	ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec, site Site, d Deployment,
) (Deployment, bool, error) {
	pinned := e.pinsOf(ctx, ref, site)
	if err := pinned.room(ref.EnvironmentID, spec.Image, site); err != nil {
		return d, false, err
	}
	p, err := e.deployer.Prepare(ctx, d.Name, spec.Image, pinned.keeps)
	if err != nil {
		return d, false, err
	}
	d.use(spec.Image, p.Reference)
	d.Images = pinned.with(p.Reference)
	if len(d.Images) > MaxImages {
		return d, p.Sent, pinned.full(ref.EnvironmentID)
	}
	if len(d.Differences(site)) == 0 { // an upload would only drop images, and resets the Durable Objects
		d.Images = site.Images
	}
	return d, p.Sent, nil
}

// use deploys an environment with its image, as it was prepared.
func (d *Deployment) use(image, prepared string) {
	d.Image = prepared
	d.Variables = map[string]string{variableImage: image, variablePrepared: prepared}
}

// imageOf is the image of a site as its environment names it. Between the change of its Worker and that of its
// application it is the application's.
func imageOf(s Site) string {
	prepared := s.Variables[variablePrepared]
	if named := s.Variables[variableImage]; named != "" && (prepared == s.Image || s.Policy == PolicyDurableObject) {
		return named
	}
	return s.Image
}

// Provision implements driver.Provisioner.
func (e *Executor) Provision(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) error {
	d, _, err := e.prepare(ctx, ref, spec)
	if err != nil {
		return err
	}
	e.forget(d.Name)
	site, err := e.deployer.Deploy(ctx, d)
	if err != nil {
		return err
	}
	w, err := e.learn(site)
	if err != nil {
		return err
	}
	if err := e.awaitAnswer(ctx, w.Worker, ref); err != nil {
		return err
	}
	return e.provisionNetwork(ctx, w.Worker, ref, spec)
}

// Bounds of the wait for a Worker that was just deployed: until all of Cloudflare knows of it takes seconds.
const (
	answerLimit = time.Minute
	answerPause = 500 * time.Millisecond
)

// awaitAnswer returns once a Worker that was deployed answers. Errors: Unavailable.
func (e *Executor) awaitAnswer(ctx context.Context, w *Worker, ref driver.EnvironmentRef) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	for {
		instance, err := w.Instance(ctx)
		if err == nil && instance != ref.Instance {
			return sandbox.Errorf(sandbox.Conflict, "cloudflare: environment %s: its Worker was deployed for account %s, not %s",
				ref.EnvironmentID, instance, ref.Instance)
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(answerPause):
		case <-ctx.Done():
			return sandbox.Errorf(sandbox.Unavailable,
				"cloudflare: environment %s is deployed and does not answer yet: %w (retry)", ref.EnvironmentID, err)
		}
	}
}

// Differences implements driver.Provisioner.
func (e *Executor) Differences(ctx context.Context, ref driver.EnvironmentRef,
	spec sandbox.EnvironmentSpec) ([]driver.Difference, error) {
	if err := e.confirm(ctx, ref.Instance); err != nil {
		return nil, err
	}
	site, err := e.deployer.Find(ctx, DeploymentName(ref.LedgerID, ref.EnvironmentID))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return []driver.Difference{{Setting: "deployment", Wanted: "present", Found: "absent"}}, nil
	}
	if err != nil {
		return nil, err
	}
	d, err := e.deployment(ref, spec, site)
	if err != nil {
		return nil, err
	}
	// To prepare the image might send it: the Worker tells what it was prepared as.
	d.use(spec.Image, cmp.Or(site.Variables[variablePrepared], site.Image))
	if d.Policy == PolicyDurableObject {
		d.Images = e.pinsOf(ctx, ref, site).needed
	}
	all := d.Differences(site)
	if len(all) == 0 && spec.Network == sandbox.NetworkRestricted { // what differs may not answer
		if all, err = e.differentRules(ctx, site, ref, spec); err != nil {
			return nil, err
		}
	}
	return append(all, e.policyKept(site, spec.Resources)...), nil
}

// Repair implements driver.Provisioner: what differs from what was deployed is deployed again.
func (e *Executor) Repair(ctx context.Context, ref driver.EnvironmentRef,
	spec sandbox.EnvironmentSpec) (string, error) {
	d, sent, err := e.prepare(ctx, ref, spec)
	if err != nil {
		return "", err
	}
	var found string
	if sent {
		found = "its image was not in the account's registry"
	}
	site, err := e.deployer.Find(ctx, d.Name)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		found = "nothing of its deployment is there"
	case err != nil:
		return "", err
	default:
		found = strings.Trim(found+"; "+describe(d.Differences(site)), "; ")
	}
	if found == "" {
		return "", nil
	}
	return found, e.Provision(ctx, ref, spec)
}

// describe tells of differences for readers; "" when there are none.
func describe(all []driver.Difference) string {
	parts := make([]string, len(all))
	for i, d := range all {
		parts[i] = fmt.Sprintf("%s is %q and should be %q", d.Setting, d.Found, d.Wanted)
	}
	return strings.Join(parts, "; ")
}

// Deprovision implements driver.Provisioner.
func (e *Executor) Deprovision(ctx context.Context, ref driver.EnvironmentRef) error {
	d, err := e.find(ctx, ref.LedgerID, ref.EnvironmentID, ref.Instance)
	name := DeploymentName(ref.LedgerID, ref.EnvironmentID)
	switch code := sandbox.CodeOf(err); {
	case code == sandbox.NotFound: // what is half made has no sandboxes
	case err != nil:
		return err
	default:
		list, err := d.List(ctx, ref.Instance, ref.LedgerID)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			return sandbox.Errorf(sandbox.Conflict,
				"cloudflare: environment %s still has %d sandboxes, such as %s: kill them first",
				ref.EnvironmentID, len(list), list[0].SandboxID)
		}
	}
	e.forget(name)
	return e.deployer.Delete(ctx, name)
}
