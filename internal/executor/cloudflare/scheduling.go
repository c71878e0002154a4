package cloudflare

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// SchedulingPolicy says who chooses the image and the size of a container. An application keeps its policy forever
// (developers.cloudflare.com/containers/configuration/scheduling-policy, read 2026-11).
type SchedulingPolicy string

// The policies.
const (
	// PolicyDefault: the application has one image and one size. A change replaces containers that have run for
	// RolloutGrace.
	PolicyDefault SchedulingPolicy = "default"
	// PolicyDurableObject: each start chooses both, among the images that the Worker was uploaded with. A change
	// replaces no container.
	PolicyDurableObject SchedulingPolicy = "durable_object"
)

// SchedulingPolicies are all policies; "" means the first.
var SchedulingPolicies = []SchedulingPolicy{PolicyDefault, PolicyDurableObject}

// MaxImages is the maximum number of images that starts may choose from (same page as SchedulingPolicy).
const MaxImages = 100

// sizeOfDefault is a size that PolicyDurableObject does not support (same page as SchedulingPolicy).
const sizeOfDefault = "basic"

// ParseSchedulingPolicy returns the policy of a name; "" means PolicyDefault. Errors: Invalid.
func ParseSchedulingPolicy(name string) (SchedulingPolicy, error) {
	if name == "" {
		return PolicyDefault, nil
	}
	if p := SchedulingPolicy(name); slices.Contains(SchedulingPolicies, p) {
		return p, nil
	}
	return "", sandbox.Errorf(sandbox.Invalid,
		"cloudflare: the scheduling policy must be default or durable_object, not %q", name)
}

// Choice is the choice of a start under PolicyDurableObject, in the form of worker/src/choice.ts.
type Choice struct {
	// Image is a reference with a digest, among Deployment.Images.
	Image string `json:"image"`
	// Instance is the name of a size, or a customSize.
	Instance any `json:"instance"`
}

// customSize is a size without a name, in the form that a start takes.
type customSize struct {
	VCPU      float64 `json:"vcpu"`
	MemoryMiB int64   `json:"memoryMib"`
	DiskMB    int64   `json:"diskMb"`
}

// choose returns the choice of a start. Errors: Invalid, for a size that the policy does not support.
func choose(reference string, size sandbox.Resources) (*Choice, error) {
	name := InstanceTypeOf(size)
	if fields := sizeFields(PolicyDurableObject, size); len(fields) > 0 {
		return nil, sandbox.InvalidFields("cloudflare: start", fields)
	}
	if name != "" {
		return &Choice{reference, name}, nil
	}
	return &Choice{reference, customSize{float64(size.CPUMillis) / 1000, size.MemoryMB, size.DiskMB}}, nil
}

// sizeFields returns the problems of a size under a policy.
func sizeFields(p SchedulingPolicy, size sandbox.Resources) []sandbox.Field {
	if p == PolicyDurableObject && InstanceTypeOf(size) == sizeOfDefault {
		return []sandbox.Field{{Name: "resources", Problem: "must not be those of basic: the scheduling policy " +
			"durable_object, which the environment was made with, does not have that size; choose another, " +
			"or replace the environment"}}
	}
	return resourceFields(size)
}

// keepDiskFields rejects keep_disk under a policy without snapshots.
func keepDiskFields(p SchedulingPolicy, spec sandbox.EnvironmentSpec) []sandbox.Field {
	if p == PolicyDurableObject || !spec.KeepDisk {
		return nil
	}
	return []sandbox.Field{{Name: "keep_disk", Problem: "must not be set for an environment of the scheduling policy " +
		"default, which has no snapshots: configure the policy durable_object and create, or replace, the environment"}}
}

// ImageName returns the name of an image in Deployment.Images: the first 32 digits of its digest.
func ImageName(reference string) string {
	_, digest, _ := strings.Cut(reference, "sha256:")
	return digest[:min(len(digest), 32)]
}

// byName returns images by ImageName.
func byName(references ...string) map[string]string {
	all := make(map[string]string, len(references))
	for _, r := range references {
		all[ImageName(r)] = r
	}
	return all
}

// policyFields returns the settings of a deployment that its policy does not support.
func (d Deployment) policyFields() (f []sandbox.Field) {
	bad := func(name, problem string, args ...any) {
		f = append(f, sandbox.Field{Name: name, Problem: fmt.Sprintf(problem, args...)})
	}
	if d.Policy != PolicyDurableObject {
		if d.MaxInstances < 1 {
			bad("max_instances", "must be at least 1, not %d", d.MaxInstances)
		}
		if len(d.Images) > 0 {
			bad("images", "must be empty: the scheduling policy default has one image")
		}
		return append(f, resourceFields(d.Resources)...)
	}
	if len(d.Images) > MaxImages {
		bad("images", "must be at most %d, not %d", MaxImages, len(d.Images))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Images)) {
		if ref := d.Images[name]; !imageDigest.MatchString(ref) || name != ImageName(ref) {
			bad("images", "must have each digest by its name, not %q as %q", ref, name)
		}
	}
	if d.Images[ImageName(d.Image)] != d.Image {
		bad("images", "must have the image of the deployment")
	}
	return append(f, sizeFields(d.Policy, d.Resources)...)
}

// configuredPolicy returns the policy for a new environment.
func (e *Executor) configuredPolicy(size sandbox.Resources) SchedulingPolicy {
	if InstanceTypeOf(size) == sizeOfDefault {
		return PolicyDefault
	}
	return e.cfg.SchedulingPolicy
}

// policyKept returns a difference if a new environment would get another policy.
func (e *Executor) policyKept(p place, size sandbox.Resources) []driver.Difference {
	wanted, found := e.configuredPolicy(size), e.policyAt(p, size)
	if found == wanted {
		return nil
	}
	return []driver.Difference{{
		Setting: sandbox.SettingSchedulingPolicy, Wanted: string(wanted), Found: string(found), Kept: true,
	}}
}

// pins are the images that starts of a deployment may need, beside a new one.
type pins struct {
	// needed are the images of its sandboxes, awake or asleep, and the current images of its environments.
	needed map[string]string
	// images are the environments' names for needed images.
	images map[string]bool
	// recorded are the images that the Worker was uploaded with.
	recorded map[string]string
	// known reports that sandboxes and environments were listed. Otherwise needed equals recorded, and more may be needed.
	known bool
}

// pinsOf returns the images that a deployment must keep. A Worker that does not answer keeps all images. So does a
// shared one that lacks a part, because its database may be gone.
func (e *Executor) pinsOf(ctx context.Context, ref driver.EnvironmentRef, at place) pins {
	p := pins{recorded: at.site.Images, needed: maps.Clone(at.site.Images)}
	if p.needed == nil {
		p.needed = map[string]string{}
	}
	if at.site.URL == "" || at.unanswered != nil || (at.shared && len(at.site.Missing) > 0) {
		return p
	}
	w, err := e.lineTo(at)
	if err != nil {
		return p
	}
	list, err := w.List(ctx, ref.Instance, ref.LedgerID)
	if err != nil {
		return p
	}
	p.needed, p.images, p.known = map[string]string{}, map[string]bool{}, true
	for _, l := range list {
		if l.Choice != nil {
			p.images[l.Image] = true
			maps.Copy(p.needed, byName(l.Choice.Image))
		}
	}
	// A start in progress may have the current image and not be listed yet.
	for _, env := range at.environments {
		if env.Prepared != "" {
			p.images[env.Image] = true
			maps.Copy(p.needed, byName(env.Prepared))
		}
	}
	return p
}

// keeps reports whether an image that was sent before must stay in the registry.
func (p pins) keeps(digest string) bool {
	if !p.known {
		return true
	}
	name := ImageName(digest)
	_, needed := p.needed[name]
	_, recorded := p.recorded[name]
	return needed || recorded
}

// with returns the needed images and new ones, by name.
func (p pins) with(references ...string) map[string]string {
	all := maps.Clone(p.needed)
	maps.Copy(all, byName(references...))
	return all
}

// room rejects an image if needed has MaxImages and none of them is this image. Errors: CapacityExceeded.
func (p pins) room(environmentID, image string) error {
	if len(p.needed) < MaxImages || p.images[image] {
		return nil
	}
	return p.full(environmentID)
}

func (p pins) full(environmentID string) error {
	return sandbox.Errorf(sandbox.CapacityExceeded, "cloudflare: environment %s: sandboxes and environments of its "+
		"Worker need %d images beside the new one, and Cloudflare allows %d: end leases that were acquired with older "+
		"images, then repeat", environmentID, len(p.needed), MaxImages)
}

// missingImages returns a difference if a site lacks images. Extra images are no difference.
func missingImages(wanted, found map[string]string) []driver.Difference {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if found[name] != wanted[name] {
			missing = append(missing, wanted[name])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []driver.Difference{{Setting: "images", Wanted: strings.Join(missing, " "), Found: "absent"}}
}
