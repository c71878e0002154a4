// Package containerimage is the Terraform resource sandbox_container_image, which is registered as
// container_image too.
package containerimage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
)

var (
	_ resource.ResourceWithConfigure   = (*Resource)(nil)
	_ resource.ResourceWithImportState = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan  = (*Resource)(nil)
)

// buildTimeout bounds a build where the configuration does not.
const buildTimeout = 20 * time.Minute

// NewResource returns the resource sandbox_container_image, not configured.
func NewResource() resource.Resource { return &Resource{} }

// NewShortResource returns the same resource under the name container_image. Terraform derives no
// provider from that name, so configurations must set provider = sandbox.
func NewShortResource() resource.Resource { return &Resource{short: true} }

// Resource manages one image on the Docker engine.
type Resource struct {
	short    bool
	provider *configured.Provider
}

// Metadata names the resource.
func (r *Resource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_container_image"
	if r.short {
		resp.TypeName = "container_image"
	}
}

// Configure takes over the configured provider.
func (r *Resource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	p, diags := configured.From(req.ProviderData)
	resp.Diagnostics.Append(diags...)
	r.provider = p
}

// Create builds the image and gives it its tags.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m Model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Create(ctx, buildTimeout)
	resp.Diagnostics.Append(diags...)
	tags, diags := m.tags(ctx)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp.Diagnostics.Append(r.build(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	done, diags := r.tag(ctx, m, tags)
	resp.Diagnostics.Append(diags...)
	resp.Diagnostics.Append(m.setTags(ctx, done)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// build builds the image that the plan asks for and writes it into the model.
func (r *Resource) build(ctx context.Context, m *Model) diag.Diagnostics {
	spec, diags := m.Build.expand(ctx)
	if diags.HasError() {
		return diags
	}
	const failed = "Building Image Failed"
	instance, err := r.provider.Images.Instance(ctx)
	if err != nil {
		return diagnose.Failed(failed, err, nil)
	}
	hash := m.ContextHash.ValueString()
	if hash == "" { // unknown at plan
		if hash, err = spec.Hash(); err != nil {
			return diagnose.Failed(failed, err, nil)
		}
	}
	name := m.Name.ValueString()
	id, err := r.provider.Images.Build(ctx, spec, hash, func(line string) {
		tflog.Debug(ctx, line, map[string]any{"image": name})
	})
	if err != nil {
		return diagnose.Failed(failed, err, nil)
	}
	m.setImage(id, hash, instance)
	return nil
}

// tag makes the tags point to the model's image and returns those that do.
func (r *Resource) tag(ctx context.Context, m Model, tags []string) ([]string, diag.Diagnostics) {
	for i, tag := range tags {
		if err := r.provider.Images.Tag(ctx, m.ImageID.ValueString(), m.Name.ValueString(), tag); err != nil {
			return tags[:i], diagnose.Failed("Tagging Image Failed", err, nil)
		}
	}
	return tags, nil
}

// Read looks for the image and its tags on the engine. Only the engine's own word that the image
// does not exist removes it from the state.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	before, diags := m.tags(ctx)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	const failed = "Reading Image Failed"
	instance, err := r.instance(ctx, m)
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	ref, imported := m.ImageID.ValueString(), m.ImageID.IsNull()
	if imported {
		ref = m.ID.ValueString()
	}
	img, err := r.provider.Images.Inspect(ctx, ref)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		resp.Diagnostics.AddWarning(fmt.Sprintf("Image %s Vanished", m.Name.ValueString()), fmt.Sprintf(
			"Docker engine %s no longer has the image: %s. It is dropped from Terraform's state, and the next apply builds it again.", instance, err))
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	tags := img.Tags(m.Name.ValueString())
	if imported {
		m.setImage(img.ID, img.ContextHash, instance)
	} else {
		var lost []string
		tags, lost = split(before, tags)
		resp.Diagnostics.Append(tagsLost(m, lost)...)
	}
	resp.Diagnostics.Append(m.setTags(ctx, tags)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// instance returns the id of the engine, which must be the one that the image was built on.
func (r *Resource) instance(ctx context.Context, m Model) (string, error) {
	instance, err := r.provider.Images.Instance(ctx)
	if err != nil {
		return "", err
	}
	if was := m.Instance.ValueString(); was != "" && was != instance {
		return "", sandbox.Errorf(sandbox.Conflict,
			"image %s is on Docker engine %s, but engine %s answers now. Point the provider's docker block, DOCKER_HOST or the Docker context at the engine that was used before; if that engine is gone for good, forget the image with terraform state rm",
			m.Name.ValueString(), was, instance).WithReason(sandbox.ReasonOtherInstance)
	}
	return instance, nil
}

// split divides wanted tags into those that are there and those that are not.
func split(wanted, there []string) (kept, lost []string) {
	for _, tag := range wanted {
		if slices.Contains(there, tag) {
			kept = append(kept, tag)
		} else {
			lost = append(lost, tag)
		}
	}
	return kept, lost
}

func tagsLost(m Model, lost []string) diag.Diagnostics {
	if len(lost) == 0 {
		return nil
	}
	name := m.Name.ValueString()
	return diag.Diagnostics{diag.NewWarningDiagnostic(fmt.Sprintf("Tags Of Image %s Moved", name), fmt.Sprintf(
		"%s:%s no longer point to image %s: somebody removed them or gave them to another image. The next apply gives them back.",
		name, strings.Join(lost, ", "+name+":"), m.ImageID.ValueString()))}
}

// Update builds the image again when its context changed, then moves the tags, and only then looks
// after the image that was superseded.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state Model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	timeout, diags := m.Timeouts.Update(ctx, buildTimeout)
	resp.Diagnostics.Append(diags...)
	want, diags := m.tags(ctx)
	resp.Diagnostics.Append(diags...)
	had, diags := state.tags(ctx)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if m.ImageID.IsUnknown() {
		resp.Diagnostics.Append(r.build(ctx, &m)...)
		if resp.Diagnostics.HasError() {
			return
		}
	}
	done, diags := r.tag(ctx, m, want)
	resp.Diagnostics.Append(diags...)
	_, dropped := split(had, want)
	left, diags := r.untag(ctx, state, dropped)
	resp.Diagnostics.Append(diags...)
	if !m.ImageID.Equal(state.ImageID) {
		resp.Diagnostics.Append(r.supersede(ctx, m, state)...)
		left = nil // of the old image, which is no longer managed
	}
	if resp.Diagnostics.HasError() {
		done = slices.Concat(done, left)
	}
	resp.Diagnostics.Append(m.setTags(ctx, done)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// untag removes tags from the model's image and returns those that it could not remove. That the
// image is in use is only a warning.
func (r *Resource) untag(ctx context.Context, m Model, tags []string) (left []string, diags diag.Diagnostics) {
	for _, tag := range tags {
		err := r.provider.Images.Untag(ctx, m.ImageID.ValueString(), m.Name.ValueString(), tag)
		switch {
		case sandbox.CodeOf(err) == sandbox.Conflict:
			diags.Append(inUse(m, err))
		case err != nil:
			diags.Append(diagnose.Failed("Untagging Image Failed", err, nil)...)
			left = append(left, tag)
		}
	}
	return left, diags
}

// supersede treats the image before a rebuild as on_destroy says. Sandboxes that run it keep it.
func (r *Resource) supersede(ctx context.Context, m, old Model) diag.Diagnostics {
	remove := r.provider.Images.DeleteUnnamed
	switch m.OnDestroy.ValueString() {
	case onDestroyKeep:
		return nil
	case onDestroyDelete:
		remove = r.provider.Images.Delete
	}
	err := remove(ctx, old.ImageID.ValueString())
	if err == nil || sandbox.CodeOf(err) == sandbox.Conflict {
		return nil
	}
	return diagnose.Failed("Removing Superseded Image Failed", err, nil)
}

// Delete does what on_destroy says.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m Model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	tags, diags := m.tags(ctx)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() || m.OnDestroy.ValueString() == onDestroyKeep {
		return
	}
	const failed = "Removing Image Failed"
	if _, err := r.instance(ctx, m); err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	if m.OnDestroy.ValueString() != onDestroyDelete {
		_, diags = r.untag(ctx, m, tags)
		resp.Diagnostics.Append(diags...)
		return
	}
	switch err := r.provider.Images.Delete(ctx, m.ImageID.ValueString()); {
	case sandbox.CodeOf(err) == sandbox.Conflict:
		resp.Diagnostics.Append(inUse(m, err))
	case err != nil:
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
	}
}

func inUse(m Model, err error) diag.Diagnostic {
	return diag.NewWarningDiagnostic(fmt.Sprintf("Image %s In Use", m.Name.ValueString()),
		fmt.Sprintf("Image %s stays on the engine, because a container was made from it: %s. Remove it with docker image rm once the container is gone.", m.ImageID.ValueString(), err))
}

// ImportState adopts an image on the engine by name and tag.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	name, tag, err := image.Split(req.ID)
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed("Importing Image Failed", err, nil)...)
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), types.StringValue(name+":"+tag))...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), types.StringValue(name))...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("on_destroy"), types.StringValue(onDestroyUntag))...)
}
