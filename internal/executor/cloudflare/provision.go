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
	spec.Backend, spec.SleepMode = sandbox.Cloudflare, sandbox.SleepStop // whatever it says: a container that sleeps is stopped
	if err := sandbox.InvalidFields("cloudflare: environment "+ref.EnvironmentID, spec.Unsupported()); err != nil {
		return err
	}
	d, err := e.deployment(ref, spec)
	if err != nil {
		return err
	}
	return d.Check()
}

// deployment is what an environment is deployed with, once its image is prepared.
func (e *Executor) deployment(ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) (Deployment, error) {
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
	return Deployment{
		Name: name, Script: script, Image: spec.Image, Resources: spec.Resources, MaxInstances: e.cfg.MaxInstances,
		SigningKey: keys[0], OlderKey: older, RolloutGrace: e.cfg.RolloutGrace,
	}, nil
}

// prepare is deployment with its image prepared, and whether that had to be sent.
func (e *Executor) prepare(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) (d Deployment, sent bool, err error) {
	if err := e.Check(ctx, ref, spec); err != nil {
		return d, false, err
	}
	if d, err = e.deployment(ref, spec); err != nil {
		return d, false, err
	}
	p, err := e.deployer.Prepare(ctx, d.Name, spec.Image)
	d.Image = p.Reference
	d.Variables = map[string]string{variableImage: spec.Image, variablePrepared: p.Reference}
	return d, p.Sent, err
}

// imageOf is the image of a site as its environment names it. Between the change of its Worker and that of its
// application it is the application's.
func imageOf(s Site) string {
	if named := s.Variables[variableImage]; named != "" && s.Variables[variablePrepared] == s.Image {
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
	return e.awaitAnswer(ctx, w.Worker, ref)
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
			return sandbox.Errorf(sandbox.Conflict, "cloudflare: environment %s: its Worker was deployed for account %s, not %s", ref.EnvironmentID, instance, ref.Instance)
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(answerPause):
		case <-ctx.Done():
			return sandbox.Errorf(sandbox.Unavailable, "cloudflare: environment %s is deployed and does not answer yet: %w (retry)", ref.EnvironmentID, err)
		}
	}
}

// Differences implements driver.Provisioner.
func (e *Executor) Differences(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) ([]driver.Difference, error) {
	if err := e.confirm(ctx, ref.Instance); err != nil {
		return nil, err
	}
	d, err := e.deployment(ref, spec)
	if err != nil {
		return nil, err
	}
	site, err := e.deployer.Find(ctx, d.Name)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return []driver.Difference{{Setting: "deployment", Wanted: "present", Found: "absent"}}, nil
	}
	if err != nil {
		return nil, err
	}
	// To prepare the image might send it: the Worker tells what it was prepared as.
	d.Image = cmp.Or(site.Variables[variablePrepared], site.Image)
	d.Variables = map[string]string{variableImage: spec.Image, variablePrepared: d.Image}
	return d.Differences(site), nil
}

// Mend implements driver.Provisioner: what differs from what was deployed is deployed again.
func (e *Executor) Mend(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) (string, error) {
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
			return sandbox.Errorf(sandbox.Conflict, "cloudflare: environment %s still has %d sandboxes, such as %s: kill them first", ref.EnvironmentID, len(list), list[0].SandboxID)
		}
	}
	e.forget(name)
	return e.deployer.Delete(ctx, name)
}
