package containerimage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// removedInPart says what a failed destroy may have removed.
const removedInPart = "Some names of the image may have been removed. Terraform's state still has the image, and the " +
	"next destroy removes the rest."

func destroyFailed(summary, _ string, err error) diag.Diagnostics {
	return diagnose.Partly(summary, err, nil, removedInPart)
}

// tagStays says that the next apply removes an old tag.
func tagStays(summary, ref string, err error) diag.Diagnostics {
	return diagnose.Partly(summary, err, nil, fmt.Sprintf("The image has its tags. %s may still point to it, is in "+
		"Terraform's state, and is removed by the next apply.", ref))
}

// untag removes tags from every copy of the model's image, and returns those that it could not remove. failed returns
// the error for a tag that stays on the engine. An image in use is only a warning, and so is a registry that removes no
// tags.
func (r *Resource) untag(ctx context.Context, m *Model, tags []string, c *registry.Client,
	failed func(summary, ref string, err error) diag.Diagnostics) (left []string, diags diag.Diagnostics) {
	const untagging = "Untagging Image Failed"
	var refused []string
	for _, tag := range tags {
		if m.has(ctx, onEngine) {
			err := r.provider.Images.Untag(ctx, m.ImageID.ValueString(), m.Name.ValueString(), tag)
			switch {
			case sandbox.CodeOf(err) == sandbox.Conflict:
				diags.Append(inUse(m, err))
			case err != nil:
				diags.Append(failed(untagging, m.Name.ValueString()+":"+tag, err)...)
				left = append(left, tag)
				continue
			}
		}
		if !m.has(ctx, inRegistry) {
			continue
		}
		switch err := untagInRegistry(ctx, m, tag, c); {
		case errors.Is(err, errKeepsTags):
			refused = append(refused, tag)
		case err != nil:
			diags.Append(removalFailed(ctx, m, untagging, err)...)
			left = append(left, tag)
		}
	}
	if len(refused) > 0 {
		diags.AddWarning(fmt.Sprintf("Tags Of Image %s Stay In The Registry", m.Name.ValueString()), fmt.Sprintf(
			"The registry refuses to remove %s. They still point to %s. Remove them with the registry's own tools, or use "+
				"on_destroy = \"delete\", which deletes the image with all its tags.",
			strings.Join(m.tagged(refused), ", "), m.pinned()))
	}
	return left, diags
}

// errKeepsTags: the registry shows a tag, and refuses to remove it.
var errKeepsTags = errors.New("the registry refuses to remove the tag")

// untagInRegistry removes a tag if it still points to the model's image.
func untagInRegistry(ctx context.Context, m *Model, tag string, c *registry.Client) error {
	ref := m.Name.ValueString() + ":" + tag
	digest, err := c.Digest(ctx, ref, "")
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return nil
	case err != nil:
		return err
	case digest != m.Digest.ValueString():
		return nil
	}
	if err = c.DeleteTag(ctx, ref); sandbox.CodeOf(err) == sandbox.Forbidden {
		return fmt.Errorf("%w: %w", errKeepsTags, err)
	}
	return err
}

// supersedes reports whether the model has another image than an earlier one in a place of the earlier one.
func (m *Model) supersedes(ctx context.Context, old *Model) bool {
	return !m.ImageID.Equal(old.ImageID) || m.Push.ValueBool() && old.has(ctx, inRegistry) &&
		!m.Digest.IsUnknown() && !m.Digest.Equal(old.Digest)
}

// stay keeps the tags and copies of the same image in the model, after an update that removed none. It warns if the
// state loses an image.
func (m *Model) stay(ctx context.Context, state *Model, had []string) diag.Diagnostics {
	if m.supersedes(ctx, state) {
		if m.OnDestroy.ValueString() == onDestroyKeep {
			return nil
		}
		return diag.Diagnostics{diag.NewWarningDiagnostic(
			fmt.Sprintf("Superseded Image Of %s Stays", m.Name.ValueString()), fmt.Sprintf(
				"The new image is incomplete, so nothing was removed of %s, which it supersedes: what refers to that keeps "+
					"working. Terraform's state no longer has it, and no plan removes it: remove it by hand once nothing uses it.",
				state.Reference.ValueString()))}
	}
	done, diags := m.tags(ctx)
	diags.Append(m.setTags(ctx, union(done, had))...)
	if m.Digest.Equal(state.Digest) {
		now, d := elements(ctx, m.Copies)
		diags.Append(d...)
		before, d := elements(ctx, state.Copies)
		diags.Append(d...)
		set, d := setOf(ctx, union(now, before))
		diags.Append(d...)
		m.Copies = set
	}
	return diags
}

func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// supersede applies on_destroy to the image that a new one has replaced. Sandboxes that run it keep it.
func (r *Resource) supersede(ctx context.Context, m, old *Model, c *registry.Client) (diags diag.Diagnostics) {
	const failed = "Removing Superseded Image Failed"
	if m.OnDestroy.ValueString() == onDestroyKeep {
		return nil
	}
	all := m.OnDestroy.ValueString() == onDestroyDelete
	if id := old.ImageID.ValueString(); old.has(ctx, onEngine) && id != m.ImageID.ValueString() {
		remove := r.provider.Images.DeleteUnnamed
		if all {
			remove = r.provider.Images.Delete
		}
		if err := remove(ctx, id); err != nil && sandbox.CodeOf(err) != sandbox.Conflict {
			diags.Append(supersededStays(onEngine)(failed, id, err)...)
		}
	}
	if all && old.has(ctx, inRegistry) && !old.Digest.Equal(m.Digest) {
		if err := r.deleteInRegistry(ctx, old, c); err != nil {
			diags.Append(supersededStays(inRegistry)(failed, old.pinned(), err)...)
		}
	}
	return diags
}

// supersededStays says that a replaced image may remain in a place, because its removal failed.
func supersededStays(place string) func(summary, ref string, err error) diag.Diagnostics {
	return func(summary, ref string, err error) diag.Diagnostics {
		return diag.Diagnostics{diag.NewErrorDiagnostic(summary, fmt.Sprintf("%s.\n\nThe new image was made, has its "+
			"tags and is in Terraform's state. Image %s, which it supersedes, may still be on the %s, and no plan removes it: "+
			"remove it there by hand.", strings.TrimSuffix(err.Error(), "."), ref, place))}
	}
}

// destroy removes the image with all names from engine and registry.
func (r *Resource) destroy(ctx context.Context, m *Model, c *registry.Client) (diags diag.Diagnostics) {
	const failed = "Removing Image Failed"
	if m.has(ctx, onEngine) {
		switch err := r.provider.Images.Delete(ctx, m.ImageID.ValueString()); {
		case sandbox.CodeOf(err) == sandbox.Conflict:
			diags.Append(inUse(m, err))
		case err != nil:
			diags.Append(destroyFailed(failed, "", err)...)
		}
	}
	if m.has(ctx, inRegistry) {
		if err := r.deleteInRegistry(ctx, m, c); err != nil {
			diags.Append(removalFailed(ctx, m, failed, err)...)
		}
	}
	return diags
}

// deleteInRegistry removes the image with its tags. Cloudflare's registry removes single tags, and then collects images
// without tags.
func (r *Resource) deleteInRegistry(ctx context.Context, m *Model, c *registry.Client) error {
	account, err := r.account()
	if err != nil {
		return err
	}
	if account == nil || !account.Has(m.Name.ValueString()) {
		return c.Delete(ctx, m.pinned())
	}
	tags, err := c.Tags(ctx, m.Name.ValueString())
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	for _, tag := range tags {
		if err := untagInRegistry(ctx, m, tag, c); err != nil {
			return err
		}
	}
	return collect(ctx, m, c)
}

// collect starts garbage collection in a registry that does not start it by itself.
func collect(ctx context.Context, m *Model, c *registry.Client) error {
	host, _, _ := strings.Cut(m.Name.ValueString(), "/")
	switch err := c.Collect(ctx, host); sandbox.CodeOf(err) {
	case sandbox.NotFound, sandbox.Forbidden: // it collects by itself
		return nil
	default:
		return err
	}
}

// unname removes the image from the engine if only digests still refer to it there.
func (r *Resource) unname(ctx context.Context, m *Model) diag.Diagnostics {
	switch err := r.provider.Images.DeleteUnnamed(ctx, m.ImageID.ValueString()); {
	case sandbox.CodeOf(err) == sandbox.Conflict:
		return diag.Diagnostics{inUse(m, err)}
	case err != nil:
		return destroyFailed("Removing Image Failed", "", err)
	}
	return nil
}

// removalFailed is the error of a registry that refuses a removal. It says what to do.
func removalFailed(ctx context.Context, m *Model, summary string, err error) diag.Diagnostics {
	next := "To leave the image in the registry, apply on_destroy = \"keep\" first."
	if sandbox.CodeOf(err) == sandbox.Unauthenticated || m.lacksPassword(ctx, err) {
		next = "Terraform passes no password_wo to a destroy: log in with docker login. " + next
	}
	return diag.Diagnostics{diag.NewErrorDiagnostic(summary,
		fmt.Sprintf("%s\n\nImage %s was not removed from its registry. %s", err, m.pinned(), next))}
}

func inUse(m *Model, err error) diag.Diagnostic {
	return diag.NewWarningDiagnostic(fmt.Sprintf("Image %s In Use", m.Name.ValueString()),
		fmt.Sprintf("Image %s stays on the engine, because a container uses it: %s. Remove it with docker image rm once "+
			"the container is gone.", m.ImageID.ValueString(), err))
}
