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

// Variables of an environment's Worker about its image, in plain text, to be read back: the name that the environment
// uses, and the prepared image.
const (
	variableImage    = "IMAGE"
	variablePrepared = "IMAGE_PREPARED"
)

// Check implements driver.Provisioner. Whether there is such an image only Provision finds out.
func (e *Executor) Check(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) error {
	if err := e.confirm(ctx, ref.Instance); err != nil {
		return err
	}
	p := place{name: DeploymentName(ref.LedgerID, ref.EnvironmentID)}
	if InstanceTypeOf(spec.Resources) == sizeOfDefault || spec.KeepDisk { // the policy it was made with may lack them
		var err error
		if p, err = e.placeFor(ctx, ref, spec.Resources); err != nil {
			return err
		}
	}
	return e.check(ref, spec, p)
}

// check is Check of an environment whose place is known.
func (e *Executor) check(ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec, p place) error {
	// Whatever the specification says, a container that sleeps is stopped.
	spec.Backend, spec.SleepMode = sandbox.Cloudflare, sandbox.SleepStop
	fields := append(spec.Unsupported(), keepDiskFields(e.policyAt(p, spec.Resources), spec)...)
	if err := sandbox.InvalidFields("cloudflare: environment "+ref.EnvironmentID, fields); err != nil {
		return err
	}
	d, err := e.deployment(spec, p)
	if err != nil {
		return err
	}
	return d.Check()
}

// deployment is what an environment is deployed with, once its image is prepared.
func (e *Executor) deployment(spec sandbox.EnvironmentSpec, p place) (Deployment, error) {
	script, err := Script()
	if err != nil {
		return Deployment{}, err
	}
	keys, err := e.keysOf(p.name)
	if err != nil {
		return Deployment{}, err
	}
	var older sandbox.Secret
	if len(keys) > 1 {
		older = keys[1]
	}
	d := Deployment{
		Name: p.name, Script: script, Image: spec.Image, Resources: spec.Resources, MaxInstances: e.cfg.MaxInstances,
		SigningKey: keys[0], OlderKey: older, RolloutGrace: RolloutGrace, Policy: e.policyAt(p, spec.Resources),
	}
	if d.Policy == PolicyDurableObject {
		d.Images = byName(d.Image)
	}
	return d, nil
}

// prepare is where an environment is to be, deployment with its image prepared, and whether that had to be sent.
func (e *Executor) prepare(ctx context.Context, ref driver.EnvironmentRef,
	spec sandbox.EnvironmentSpec) (p place, d Deployment, sent bool, err error) {
	if err := e.confirm(ctx, ref.Instance); err != nil {
		return p, d, false, err
	}
	if p, err = e.placeFor(ctx, ref, spec.Resources); err != nil {
		return p, d, false, err
	}
	if err := e.check(ref, spec, p); err != nil {
		return p, d, false, err
	}
	if d, err = e.deployment(spec, p); err != nil {
		return p, d, false, err
	}
	var pinned pins
	var keeps func(digest string) bool
	if d.Policy == PolicyDurableObject {
		pinned = e.pinsOf(ctx, ref, p)
		if err := pinned.room(ref.EnvironmentID, spec.Image); err != nil {
			return p, d, false, err
		}
		keeps = pinned.keeps
	}
	prepared, err := e.deployer.Prepare(ctx, DeploymentName(ref.LedgerID, ref.EnvironmentID), spec.Image, keeps)
	if err != nil {
		return p, d, false, err
	}
	d.use(p, spec.Image, prepared.Reference)
	if d.Policy == PolicyDurableObject {
		err = d.pin(p, pinned, ref.EnvironmentID)
	}
	return p, d, prepared.Sent, err
}

// pin gives a deployment the images that starts need beside its own. What no sandbox needs leaves the map of images
// with the next upload, and the registry when the next image is sent. Errors: CapacityExceeded.
func (d *Deployment) pin(p place, pinned pins, environmentID string, others ...string) error {
	d.Images = pinned.with(append(others, d.Image)...)
	if len(d.Images) > MaxImages {
		return pinned.full(environmentID)
	}
	if len(d.Differences(p.site)) == 0 { // an upload would only drop images, and resets the Durable Objects
		d.Images = p.site.Images
	}
	return nil
}

// use deploys an environment with its image, as it was prepared. A shared Worker has the images of all in its database.
func (d *Deployment) use(p place, image, prepared string) {
	d.Image = prepared
	if !p.shared {
		d.Variables = map[string]string{variableImage: image, variablePrepared: prepared}
	}
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
	p, d, _, err := e.prepare(ctx, ref, spec)
	if err != nil {
		return err
	}
	e.forget(DeploymentName(ref.LedgerID, ref.EnvironmentID))
	w, err := e.deploy(ctx, ref, spec.Image, p, d)
	if err != nil {
		return err
	}
	return e.provisionNetwork(ctx, w, ref, spec)
}

// deploy deploys an environment to its place, and returns the line to its Worker once that answers.
func (e *Executor) deploy(
	ctx context.Context, ref driver.EnvironmentRef, image string, p place, d Deployment,
) (*Worker, error) {
	if p.shared {
		return e.share(ctx, ref, image, d)
	}
	site, err := e.deployer.Deploy(ctx, d)
	if err != nil {
		return nil, err
	}
	made, err := e.learn(site)
	if err != nil {
		return nil, err
	}
	return made.Worker, e.awaitAnswer(ctx, made.Worker, ref)
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
	p, err := e.locate(ctx, ref, false)
	if err != nil {
		return nil, err
	}
	env, there := p.of(ref.EnvironmentID)
	d, err := e.deployment(spec, p)
	if err != nil {
		return nil, err
	}
	// To prepare the image might send it: the Worker tells what it was prepared as.
	d.use(p, spec.Image, cmp.Or(env.Prepared, p.site.Image))
	if d.Policy == PolicyDurableObject {
		d.Images = e.pinsOf(ctx, ref, p).needed
	}
	all, err := differencesAt(p, there, spec, env, d)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 && spec.Network == sandbox.NetworkRestricted { // what differs may not answer
		if all, err = e.differentRules(ctx, p, ref, spec); err != nil {
			return nil, err
		}
	}
	if !there {
		return all, nil
	}
	return append(all, e.policyKept(p, spec.Resources)...), nil
}

// differencesAt compares a deployment with its place. An environment that shares one may differ in its image, too.
func differencesAt(
	p place, there bool, spec sandbox.EnvironmentSpec, env Environment, d Deployment,
) ([]driver.Difference, error) {
	absent := []driver.Difference{{Setting: "deployment", Wanted: "present", Found: "absent"}}
	if p.site.Name == "" {
		return absent, nil
	}
	all := d.Differences(p.site)
	switch {
	case there && p.shared && env.Image != spec.Image:
		all = append(all, driver.Difference{Setting: "image", Wanted: spec.Image, Found: env.Image})
	case there, len(all) > 0:
	case p.unanswered != nil:
		return nil, unavailable(p.unanswered)
	default:
		return absent, nil
	}
	return all, nil
}

// Repair implements driver.Provisioner: what differs from what was deployed is deployed again.
func (e *Executor) Repair(ctx context.Context, ref driver.EnvironmentRef,
	spec sandbox.EnvironmentSpec) (string, error) {
	p, d, sent, err := e.prepare(ctx, ref, spec)
	if err != nil {
		return "", err
	}
	var found []string
	if sent {
		found = append(found, "its image was not in the account's registry")
	}
	env, there := p.of(ref.EnvironmentID)
	if p.site.Name == "" {
		found = append(found[:0], "nothing of its deployment is there")
	} else if all, err := differencesAt(p, there, spec, env, d); err != nil {
		return "", err
	} else if len(all) > 0 {
		found = append(found, describe(all))
	}
	if len(found) == 0 {
		return "", nil
	}
	return strings.Join(found, "; "), e.Provision(ctx, ref, spec)
}

// describe describes differences for readers; "" if there are none.
func describe(all []driver.Difference) string {
	parts := make([]string, len(all))
	for i, d := range all {
		parts[i] = fmt.Sprintf("%s is %q and should be %q", d.Setting, d.Found, d.Wanted)
	}
	return strings.Join(parts, "; ")
}

// Deprovision implements driver.Provisioner.
func (e *Executor) Deprovision(ctx context.Context, ref driver.EnvironmentRef) error {
	if err := e.confirm(ctx, ref.Instance); err != nil {
		return err
	}
	p, err := e.locate(ctx, ref, true)
	if err != nil {
		return err
	}
	if p.shared {
		return e.leave(ctx, ref, p)
	}
	if p.site.URL != "" { // what is half made has no sandboxes
		w, err := e.line(p.site)
		if err != nil {
			return err
		}
		list, err := w.List(ctx, ref.Instance, ref.LedgerID)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			return sandbox.Errorf(sandbox.Conflict,
				"cloudflare: environment %s still has %d sandboxes, such as %s: kill them first",
				ref.EnvironmentID, len(list), list[0].SandboxID)
		}
	}
	e.forget(p.name)
	return e.deployer.Delete(ctx, p.name)
}
