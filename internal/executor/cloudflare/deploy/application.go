package deploy

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// application is a container application, in the form of Cloudflare's API.
type application struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Version int64  `json:"version"` // counts changes, from 1

	SchedulingPolicy   string          `json:"scheduling_policy"`
	Configuration      configuration   `json:"configuration"`
	MaxInstances       int             `json:"max_instances"`
	DurableObjects     *durableObjects `json:"durable_objects"`
	RolloutGracePeriod int64           `json:"rollout_active_grace_period"` // in seconds
}

type durableObjects struct {
	NamespaceID string `json:"namespace_id"`
}

func (a application) namespace() string {
	if a.DurableObjects == nil {
		return ""
	}
	return a.DurableObjects.NamespaceID
}

func (a application) grace() time.Duration { return time.Duration(a.RolloutGracePeriod) * time.Second }

// policy returns the application's policy. An application without one is older than the second policy.
func (a application) policy() cloudflare.SchedulingPolicy {
	return cmp.Or(cloudflare.SchedulingPolicy(a.SchedulingPolicy), cloudflare.PolicyDefault)
}

// describe sets the fields of site that an application determines.
func (a application) describe(site *cloudflare.Site) {
	site.ApplicationID, site.Policy = a.ID, a.policy()
	if a.policy() == cloudflare.PolicyDefault {
		site.Image, site.Resources = a.Configuration.Image, a.Configuration.resources()
		site.MaxInstances, site.RolloutGrace = a.MaxInstances, a.grace()
	}
}

// configuration is the image and the size of containers. The size has a name or figures.
type configuration struct {
	Image        string  `json:"image"`
	InstanceType string  `json:"instance_type,omitempty"`
	VCPU         float64 `json:"vcpu,omitempty"`
	MemoryMiB    int64   `json:"memory_mib,omitempty"`
	Disk         *disk   `json:"disk,omitempty"`
}

type disk struct {
	SizeMB int64 `json:"size_mb"`
}

func configurationOf(want cloudflare.Deployment) configuration {
	c := configuration{Image: want.Image, InstanceType: cloudflare.InstanceTypeOf(want.Resources)}
	if c.InstanceType == "" {
		r := want.Resources
		c.VCPU, c.MemoryMiB, c.Disk = float64(r.CPUMillis)/1000, r.MemoryMB, &disk{r.DiskMB}
	}
	return c
}

// resources returns the size by its name or by its figures: Cloudflare may answer with figures for a size that was
// requested by name.
func (c configuration) resources() sandbox.Resources {
	if r, named := sandbox.ResourcesOf(c.InstanceType); named {
		r.PIDs = 0
		return r
	}
	r := sandbox.Resources{MemoryMB: c.MemoryMiB, CPUMillis: int64(math.Floor(c.VCPU * 1000))}
	if c.Disk != nil {
		r.DiskMB = c.Disk.SizeMB
	}
	return r
}

func (c configuration) same(other configuration) bool {
	return c.Image == other.Image && c.resources() == other.resources()
}

// listApplications returns all applications of the account. name is for errors.
func (d *Deployer) listApplications(ctx context.Context, name string) (all []application, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err = d.api.call(ctx, http.MethodGet, "/containers/applications", nil, &all)
	return all, d.fail(step{what: "look for container application " + name, needs: permContainers}, err)
}

// rollout applies an application's configuration to running containers.
type rollout struct {
	Description         string        `json:"description"`
	Strategy            string        `json:"strategy"`
	TargetConfiguration configuration `json:"target_configuration"`
	Steps               []rolloutStep `json:"steps"`
	Kind                string        `json:"kind"`
	CreatedAt           *time.Time    `json:"created_at,omitempty"`
}

type rolloutStep struct {
	StepSize struct {
		Percentage int `json:"percentage"`
	} `json:"step_size"`
	Description string `json:"description"`
}

// rolloutOf returns a rollout that replaces containers in two steps, or in one step if there is only one container.
func rolloutOf(c configuration, maxInstances int) rollout {
	r := rollout{Description: "Progressive update", Strategy: "rolling", TargetConfiguration: c, Kind: "full_auto"}
	steps := []int{10, 100}
	if maxInstances < 2 {
		steps = []int{100}
	}
	for i, percentage := range steps {
		s := rolloutStep{Description: fmt.Sprintf("Step %d of %d - rollout at %d%% of instances",
			i+1, len(steps), percentage)}
		s.StepSize.Percentage = percentage
		r.Steps = append(r.Steps, s)
	}
	return r
}

// isRolledOut reports whether a rollout to an application's configuration was started. An application that was never
// changed needs none.
func (d *Deployer) isRolledOut(ctx context.Context, name string, a application) (bool, error) {
	if a.Version <= 1 || a.policy() == cloudflare.PolicyDurableObject {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var all []rollout
	if err := d.api.call(ctx, http.MethodGet, "/containers/applications/"+a.ID+"/rollouts", nil, &all); err != nil {
		return false, d.fail(step{what: "container application " + name + ": list its rollouts", needs: permContainers}, err)
	}
	if len(all) == 0 {
		return false, nil
	}
	last := slices.MaxFunc(all, func(a, b rollout) int { return begun(a).Compare(begun(b)) })
	return last.TargetConfiguration.same(a.Configuration), nil
}

func begun(r rollout) time.Time {
	if r.CreatedAt == nil {
		return time.Time{}
	}
	return *r.CreatedAt
}

// applicationRequest creates or changes an application. Each request omits the fields that only the other one has.
type applicationRequest struct {
	Name               string           `json:"name,omitempty"`
	SchedulingPolicy   string           `json:"scheduling_policy"`
	Configuration      configuration    `json:"configuration"`
	Instances          *int             `json:"instances,omitempty"`
	MaxInstances       int              `json:"max_instances"`
	Constraints        map[string][]int `json:"constraints"`
	DurableObjects     *durableObjects  `json:"durable_objects,omitempty"`
	RolloutGracePeriod int64            `json:"rollout_active_grace_period"`
}

func requestOf(want cloudflare.Deployment) applicationRequest {
	return applicationRequest{
		SchedulingPolicy: string(cloudflare.PolicyDefault),
		Configuration:    configurationOf(want), MaxInstances: want.MaxInstances,
		Constraints:        map[string][]int{"tiers": {1, 2}}, // where wrangler runs containers
		RolloutGracePeriod: int64(want.RolloutGrace / time.Second),
	}
}

// ensureApplication creates the application, or changes it and starts its rollout.
func (d *Deployer) ensureApplication(ctx context.Context, want cloudflare.Deployment, s *inventory) error {
	if err := d.removeStale(ctx, s); err != nil {
		return err
	}
	a := s.application()
	if a == nil {
		return d.makeApplication(ctx, want, s)
	}
	if policy := policyOf(want); a.policy() != policy {
		return sandbox.Errorf(sandbox.Conflict, "cloudflare: account %s: container application %s: "+
			"its scheduling policy is %s, which Cloudflare never changes, and should be %s: replace the environment",
			d.account, want.Name, a.policy(), policy)
	}
	if a.policy() == cloudflare.PolicyDurableObject {
		return nil
	}
	same := a.Configuration.same(configurationOf(want)) && a.MaxInstances == want.MaxInstances &&
		a.grace() == want.RolloutGrace
	if same && s.rolledOut {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if !same {
		if err := d.api.call(ctx, http.MethodPatch, "/containers/applications/"+a.ID, requestOf(want), nil); err != nil {
			return d.fail(step{what: "container application " + want.Name + ": change it", changes: true, needs: permContainers},
				err)
		}
	}
	err := d.api.call(ctx, http.MethodPost, "/containers/applications/"+a.ID+"/rollouts",
		rolloutOf(configurationOf(want), want.MaxInstances), nil)
	if err != nil {
		return d.fail(
			step{what: "container application " + want.Name + ": begin its rollout", changes: true, needs: permContainers}, err)
	}
	a.Configuration, a.MaxInstances, a.RolloutGracePeriod, s.rolledOut = configurationOf(want), want.MaxInstances,
		int64(want.RolloutGrace/time.Second), true
	return nil
}

func (d *Deployer) makeApplication(ctx context.Context, want cloudflare.Deployment, s *inventory) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	r := requestOf(want)
	r.Name, r.Instances, r.DurableObjects = want.Name, new(int), &durableObjects{s.worker.namespace}
	var body any = r
	if policyOf(want) == cloudflare.PolicyDurableObject {
		body = pinnedRequest{want.Name, string(want.Policy), *r.DurableObjects}
	}
	var made application
	if err := d.api.call(ctx, http.MethodPost, "/containers/applications", body, &made); err != nil {
		return d.fail(step{what: "make container application " + want.Name, changes: true, needs: permContainers}, err)
	}
	s.applications, s.rolledOut = append(s.applications, made), true
	return nil
}

// removeStale removes applications with our name whose Durable Objects were deleted with their Worker. No Worker can
// use them, and they make our name ambiguous.
func (d *Deployer) removeStale(ctx context.Context, s *inventory) error {
	for _, a := range slices.Clone(s.applications) {
		if a.namespace() == s.worker.namespace {
			continue
		}
		if err := d.removeApplication(ctx, s.name, a.ID); err != nil {
			return err
		}
		s.applications = slices.DeleteFunc(s.applications, func(b application) bool { return b.ID == a.ID })
	}
	return nil
}

func (d *Deployer) removeApplications(ctx context.Context, s *inventory) error {
	for _, a := range s.applications {
		if err := d.removeApplication(ctx, s.name, a.ID); err != nil {
			return err
		}
	}
	return nil
}

func (d *Deployer) removeApplication(ctx context.Context, name, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := d.api.call(ctx, http.MethodDelete, "/containers/applications/"+id, nil, nil)
	if isAbsent(err) {
		return nil
	}
	return d.fail(step{what: "container application " + name + ": delete it", changes: true, needs: permContainers}, err)
}
