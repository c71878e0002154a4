package cloudflare

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Plain-text variables of an environment's Worker. The first two record its image, to be read back: the environment's
// name for it, and the prepared image. The Worker records variableSize with each start that chooses no size.
const (
	variableImage    = "IMAGE"
	variablePrepared = "IMAGE_PREPARED"
	variableSize     = "SIZE"
)

// Check implements driver.Provisioner. Only Provision finds out whether the image exists.
func (e *Executor) Check(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) error {
	if err := e.confirm(ctx, ref.Instance); err != nil {
		return err
	}
	p := place{name: DeploymentName(ref.LedgerID, ref.EnvironmentID)}
	if InstanceTypeOf(spec.Resources) == sizeOfDefault || spec.KeepDisk { // its policy may not support them
		var err error
		if p, err = e.placeFor(ctx, ref, spec.Resources); err != nil {
			return err
		}
	}
	return e.check(ref, spec, p)
}

// check is Check for a known place.
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

// deployment returns the deployment of an environment, before its image is prepared.
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

// prepare returns the place of an environment, its deployment with the prepared image, and whether the image had to be
// pushed.
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

// pin gives a deployment the images that starts need beside its own. Images that no sandbox needs leave the map of
// images with the next upload, and the registry when the next image is pushed. Errors: CapacityExceeded.
func (d *Deployment) pin(p place, pinned pins, environmentID string, others ...string) error {
	d.Images = pinned.with(append(others, d.Image)...)
	if len(d.Images) > MaxImages {
		return pinned.full(environmentID)
	}
	if len(d.Differences(p.site)) == 0 { // an upload would only drop images, and reset Durable Objects
		d.Images = p.site.Images
	}
	return nil
}

// use sets the image of a deployment, and the variables that record it. A shared Worker records images in its database.
func (d *Deployment) use(p place, image, prepared string) {
	d.Image = prepared
	if p.shared {
		return
	}
	d.Variables = map[string]string{variableImage: image, variablePrepared: prepared}
	if d.Policy != PolicyDurableObject {
		d.Variables[variableSize] = encodeSize(d.Resources)
	}
}

// startSize is the value of variableSize: the parts of a size that Cloudflare knows.
type startSize struct {
	MemoryMB  int64 `json:"memory_mb"`
	CPUMillis int64 `json:"cpu_millis"`
	DiskMB    int64 `json:"disk_mb"`
}

func encodeSize(r sandbox.Resources) string {
	b, _ := json.Marshal(startSize{r.MemoryMB, r.CPUMillis, r.DiskMB}) // it has numbers only
	return string(b)
}

// decodeSize returns zero Resources for "" and for what no deployment sets.
func decodeSize(text string) sandbox.Resources {
	var s startSize
	if json.Unmarshal([]byte(text), &s) != nil {
		return sandbox.Resources{}
	}
	return sandbox.Resources{MemoryMB: s.MemoryMB, CPUMillis: s.CPUMillis, DiskMB: s.DiskMB}
}

// imageOf returns the environment's name for a site's image. Between the changes of its Worker and of its application,
// it returns the application's image.
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

// deploy deploys an environment to its place, and returns a client of its Worker once the Worker answers.
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

// Bounds of the wait for a Worker that was just deployed: it takes seconds to be reachable everywhere.
const (
	answerLimit = time.Minute
	answerPause = 500 * time.Millisecond
)

// awaitAnswer waits until a deployed Worker answers. Errors: Unavailable.
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
	// Preparing the image might push it, so this uses the prepared image that the Worker reports.
	d.use(p, spec.Image, cmp.Or(env.Prepared, p.site.Image))
	if d.Policy == PolicyDurableObject {
		d.Images = e.pinsOf(ctx, ref, p).needed
	}
	all, err := differencesAt(p, there, spec, env, d)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 && spec.Network == sandbox.NetworkRestricted { // a Worker that differs may not answer
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

// Repair implements driver.Provisioner: it deploys the environment again if anything differs.
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
		found = append(found[:0], "its deployment does not exist")
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
	if p.site.URL != "" { // an incomplete deployment has no sandboxes
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
