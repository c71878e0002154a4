package deploy

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// pinnedRequest creates an application of policy durable_object, which has no other settings. The application's id is
// that of its namespace.
type pinnedRequest struct {
	Name             string         `json:"name"`
	SchedulingPolicy string         `json:"scheduling_policy"`
	DurableObjects   durableObjects `json:"durable_objects"`
}

// container says in an upload that a class has containers, and which images their starts may name.
type container struct {
	Name      string            `json:"name"`
	ClassName string            `json:"class_name"`
	Images    map[string]string `json:"images,omitempty"`
}

func policyOf(want cloudflare.Deployment) cloudflare.SchedulingPolicy {
	if want.Policy == "" {
		return cloudflare.PolicyDefault
	}
	return want.Policy
}

// startsAs reports whether a Worker has the wanted policy and images.
func (w *worker) startsAs(want cloudflare.Deployment) bool {
	return w.policy == policyOf(want) && maps.Equal(w.images, want.Images)
}

// startBindings returns the bindings that record the policy and the images of starts: the map of images cannot be read
// back.
func startBindings(want cloudflare.Deployment) (all []map[string]string) {
	record := func(name, text string) {
		all = append(all, map[string]string{"name": name, "type": "plain_text", "text": text})
	}
	if policyOf(want) == cloudflare.PolicyDurableObject {
		record(cloudflare.BindingPolicy, string(policyOf(want)))
	}
	for _, name := range slices.Sorted(maps.Keys(want.Images)) {
		record(cloudflare.BindingImages+name, want.Images[name])
	}
	return all
}

// findPinned finds the application of a Worker's Durable Objects by their namespace if no list has it: under policy
// durable_object, the id of an application is that of its namespace.
func (d *Deployer) findPinned(ctx context.Context, s *inventory) error {
	if s.worker == nil || s.application() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var found application
	err := d.api.call(ctx, http.MethodGet, "/containers/applications/"+s.worker.namespace, nil, &found)
	switch {
	case isAbsent(err):
		return nil
	case err != nil:
		return d.fail(step{what: "look for container application " + s.name, needs: permContainers}, err)
	}
	s.applications = append(s.applications, found)
	return nil
}

const (
	// startsLimit bounds the preparation of an image for starts. startsPause is the pause between two polls.
	startsLimit = 10 * time.Minute
	startsPause = 2 * time.Second
	// startsReady is the status of a prepared image.
	startsReady = "ready"
)

// prepareStarts asks Cloudflare to prepare the images that starts may name and that the Worker was not uploaded with,
// as wrangler does before it uploads a Worker.
func (d *Deployer) prepareStarts(ctx context.Context, want cloudflare.Deployment, s *inventory) error {
	for _, name := range slices.Sorted(maps.Keys(want.Images)) {
		if s.worker != nil && s.worker.images[name] == want.Images[name] {
			continue
		}
		if err := d.prepareStart(ctx, want.Images[name]); err != nil {
			return err
		}
	}
	return nil
}

func (d *Deployer) prepareStart(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, startsLimit)
	defer cancel()
	asked := map[string]string{"image": image}
	for {
		var answer struct {
			Status string `json:"status"`
		}
		if err := d.api.call(ctx, http.MethodPost, "/containers/image-preparations", asked, &answer); err != nil {
			return d.fail(step{what: "prepare image " + image + " for starts", needs: permContainers}, err)
		}
		if answer.Status == startsReady {
			return nil
		}
		select {
		case <-time.After(startsPause):
		case <-ctx.Done():
			return sandbox.Errorf(sandbox.Unavailable, "cloudflare: account %s: image %s is not prepared for starts yet: "+
				"its status is %q (repeat it)", d.account, image, answer.Status)
		}
	}
}
