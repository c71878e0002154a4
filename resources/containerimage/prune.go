package containerimage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// checkKeepTags refuses keep_tags for an image that is not pushed.
func (m *Model) checkKeepTags() diag.Diagnostics {
	if m.KeepTags.IsNull() || m.Push.IsUnknown() || m.Push.ValueBool() {
		return nil
	}
	return diag.Diagnostics{diag.NewAttributeErrorDiagnostic(path.Root("keep_tags"), "Invalid Attribute Combination",
		"keep_tags needs a registry, and the image is not pushed to one: set push = true, or remove keep_tags.")}
}

// shelved is an image of a repository, with all its tags.
type shelved struct {
	digest  string
	tags    []string
	created time.Time
}

// aged reports whether the image says when it was created.
func (s shelved) aged() bool { return s.created.Unix() > 0 }

// prune removes unused tags of the model's repository beyond the newest keep_tags. A failure is a warning, because the
// image itself is made.
func (r *Resource) prune(ctx context.Context, m, config *Model) diag.Diagnostics {
	if m.KeepTags.IsNull() {
		return nil
	}
	c, _, diags := r.registries(ctx, config)
	if diags.HasError() {
		return diags
	}
	if err := r.removeOld(ctx, m, c); err != nil {
		diags.AddWarning(fmt.Sprintf("Old Tags Of Image %s Stay", m.Name.ValueString()), fmt.Sprintf(
			"Some tags older than the newest %d (keep_tags) could not be removed from the registry: %s.\n\nThe next apply "+
				"that changes this resource tries again.", m.KeepTags.ValueInt64(), err))
	}
	return diags
}

func (r *Resource) removeOld(ctx context.Context, m *Model, c *registry.Client) error {
	all, err := tagsOf(ctx, m, c)
	if err != nil || int64(len(all)) <= m.KeepTags.ValueInt64() {
		return err
	}
	used, err := r.usedImages(ctx)
	if err != nil {
		return err
	}
	images, err := shelf(ctx, m, c, all)
	if err != nil {
		return err
	}
	old := outdated(images, m.Digest.ValueString(), int(m.KeepTags.ValueInt64()), inUseOf(m.Name.ValueString(), used))
	for _, s := range old {
		if err := removeShelved(ctx, m, c, s); err != nil {
			return err
		}
	}
	if len(old) == 0 {
		return nil
	}
	return collect(ctx, m, c)
}

func tagsOf(ctx context.Context, m *Model, c *registry.Client) ([]string, error) {
	all, err := c.Tags(ctx, m.Name.ValueString())
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, nil
	}
	return all, err
}

// shelf reads the images of tags.
func shelf(ctx context.Context, m *Model, c *registry.Client, tags []string) ([]shelved, error) {
	var images []shelved
	for _, tag := range tags {
		digest, err := c.Digest(ctx, m.Name.ValueString()+":"+tag, "")
		switch {
		case sandbox.CodeOf(err) == sandbox.NotFound: // removed meanwhile
			continue
		case err != nil:
			return nil, err
		}
		if i := slices.IndexFunc(images, func(s shelved) bool { return s.digest == digest }); i >= 0 {
			images[i].tags = append(images[i].tags, tag)
			continue
		}
		created, err := c.CreatedAt(ctx, m.Name.ValueString()+"@"+digest)
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound { // an image without a platform of ours has no date
			return nil, err
		}
		images = append(images, shelved{digest, []string{tag}, created})
	}
	return images, nil
}

// outdated returns the images to remove, oldest first: those beyond the newest, which together have keep tags. An
// image's tags stay or go together. Pure.
func outdated(images []shelved, current string, keep int, used func(shelved) bool) []shelved {
	images = slices.Clone(images)
	slices.SortFunc(images, func(a, b shelved) int {
		switch {
		case a.digest == current:
			return -1
		case b.digest == current:
			return 1
		}
		return cmp.Or(b.created.Compare(a.created), strings.Compare(a.digest, b.digest))
	})
	var old []shelved
	kept := 0
	for _, s := range images {
		if s.digest == current || kept < keep {
			kept += len(s.tags)
			continue
		}
		if s.aged() && !used(s) {
			old = append(old, s)
		}
	}
	slices.Reverse(old)
	return old
}

// removeShelved removes an image tag by tag, or as a whole if the registry removes no single tags. A tag that has moved
// meanwhile stays.
func removeShelved(ctx context.Context, m *Model, c *registry.Client, s shelved) error {
	for _, tag := range s.tags {
		ref := m.Name.ValueString() + ":" + tag
		digest, err := c.Digest(ctx, ref, "")
		if sandbox.CodeOf(err) == sandbox.NotFound || err == nil && digest != s.digest {
			continue
		}
		if err == nil {
			err = c.DeleteTag(ctx, ref)
		}
		if sandbox.CodeOf(err) == sandbox.Forbidden {
			return c.Delete(ctx, m.Name.ValueString()+"@"+s.digest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// usedImages returns the image references of environments and of live leases, with those of their companions.
func (r *Resource) usedImages(ctx context.Context) ([]string, error) {
	svc, err := r.provider.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the images in use: %w", err)
	}
	var used []string
	environments, err := svc.ListEnvironments(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the images in use: %w", err)
	}
	for _, e := range environments {
		if e.Status != sandbox.EnvironmentDestroyed {
			used = append(used, e.Image)
			for _, c := range e.Companions {
				used = append(used, c.Image)
			}
		}
	}
	for _, status := range []sandbox.LeaseStatus{sandbox.LeasePending, sandbox.LeaseActive} {
		for l, err := range service.EachLease(ctx, svc, sandbox.LeaseFilter{Status: status}) {
			if err != nil {
				return nil, fmt.Errorf("list the images in use: %w", err)
			}
			used = append(used, l.Image)
			for _, c := range l.Companions {
				used = append(used, c.Image)
			}
		}
	}
	return used, nil
}

// inUseOf returns a function that reports whether an image of a repository is among references: by its digest, in any
// repository, or by a tag of this repository. Pure.
func inUseOf(name string, references []string) func(shelved) bool {
	digests, tags := map[string]bool{}, map[string]bool{}
	repository := ""
	if named, err := reference.ParseNormalizedNamed(name); err == nil {
		repository = named.Name()
	}
	for _, ref := range references {
		named, err := reference.ParseNormalizedNamed(ref)
		if err != nil {
			continue // an image id on an engine needs no registry
		}
		if d, ok := named.(reference.Digested); ok {
			digests[d.Digest().String()] = true
			continue
		}
		if t, ok := reference.TagNameOnly(named).(reference.Tagged); ok && named.Name() == repository {
			tags[t.Tag()] = true
		}
	}
	return func(s shelved) bool {
		return digests[s.digest] || slices.ContainsFunc(s.tags, func(t string) bool { return tags[t] })
	}
}
