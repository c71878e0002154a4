// Package containerimage is the Terraform resource sandbox_container_image, also registered as container_image.
package containerimage

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/upgrade"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
)

var (
	_ resource.ResourceWithConfigure    = (*Resource)(nil)
	_ resource.ResourceWithImportState  = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan   = (*Resource)(nil)
	_ resource.ResourceWithUpgradeState = (*Resource)(nil)
)

// makeTimeout is the default timeout of builds, pulls and pushes.
const makeTimeout = 20 * time.Minute

// deleteTimeout is the default timeout of removals.
const deleteTimeout = 5 * time.Minute

// NewResource returns the resource sandbox_container_image, not yet configured.
func NewResource() resource.Resource { return &Resource{} }

// NewShortResource returns the same resource under the name container_image. Terraform derives no
// provider from that name, so configurations must set provider = sandbox.
func NewShortResource() resource.Resource { return &Resource{short: true} }

// Resource manages one image on the Docker engine, in a registry, or both.
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

// UpgradeState takes over states from when registry_auth was a block.
func (r *Resource) UpgradeState(ctx context.Context) map[int64]resource.StateUpgrader {
	var now resource.SchemaResponse
	r.Schema(ctx, resource.SchemaRequest{}, &now)
	return upgrade.FromBlocks(now.Schema.Type().TerraformType(ctx), "registry_auth")
}

// Create makes the image and gives it its tags.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m, config Model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(configured.Identify(ctx, resp.Identity, m.Name.ValueString())...)
	timeout, diags := m.Timeouts.Create(ctx, makeTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	made, diags := r.make(ctx, &m, nil, &config)
	resp.Diagnostics.Append(diags...)
	if made && !diags.HasError() {
		resp.Diagnostics.Append(r.prune(ctx, &m, &config)...)
	}
	if made {
		m.forget()
		r.note(ctx, &m)
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
}

// make calls produce with the credentials of the configuration.
func (r *Resource) make(ctx context.Context, m, state, config *Model) (made bool, diags diag.Diagnostics) {
	c, _, diags := r.registries(ctx, config)
	if diags.HasError() {
		return false, diags
	}
	if m.Source != nil && m.Digest.IsUnknown() { // an input was unknown at plan
		if m.Digest, diags = m.Source.pin(ctx, c); diags.HasError() {
			return false, diags
		}
	}
	return r.produce(ctx, m, state, config, c)
}

// Read looks for all copies of the image and its tags. It removes the image from the state only if engine and registry
// answer that it does not exist.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	resp.Diagnostics.Append(configured.Identify(ctx, resp.Identity, m.Name.ValueString())...)
	if resp.Diagnostics.HasError() {
		return
	}
	var gone bool
	var diags diag.Diagnostics
	var err error
	if m.Reference.IsNull() {
		gone, diags, err = r.adopt(ctx, &m)
	} else {
		gone, diags, err = r.refresh(ctx, &m)
	}
	if err != nil {
		diags.Append(diagnose.Failed("Reading Image Failed", err, nil)...)
	}
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	if gone {
		resp.Diagnostics.Append(vanished(&m))
		resp.State.RemoveResource(ctx)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// adopt fills the model of an imported image. It takes over the registry's copy only of an image that this provider
// built: the engine knows a digest of a pulled image too, whose copy in the registry is someone else's.
func (r *Resource) adopt(ctx context.Context, m *Model) (gone bool, diags diag.Diagnostics, err error) {
	f, instance, err := r.lookOnEngine(ctx, m, m.ID.ValueString())
	if err != nil || !f.there {
		return true, nil, err
	}
	m.ID = m.Name
	m.ContextHash = value.String(f.img.ContextHash)
	m.Push, m.Digest = types.BoolValue(false), types.StringNull()
	where := []string{onEngine}
	if digest := f.img.Digest(m.Name.ValueString()); digest != "" && f.img.ContextHash != "" {
		m.Push, m.Digest = types.BoolValue(true), types.StringValue(digest)
		where = append(where, inRegistry)
	}
	diags = m.setImage(ctx, f.img, instance)
	diags.Append(m.reached(ctx, f.tags, where)...)
	return false, diags, nil
}

// Update makes the image if it changes, then moves the tags, and then removes the replaced image. It removes nothing if
// it could not make all of the new one: what refers to the replaced image still needs it.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state, config Model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(configured.Identify(ctx, resp.Identity, m.Name.ValueString())...)
	timeout, diags := m.Timeouts.Update(ctx, makeTimeout)
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
	made, diags := r.make(ctx, &m, &state, &config)
	resp.Diagnostics.Append(diags...)
	switch {
	case !made:
		return
	case diags.HasError():
		resp.Diagnostics.Append(m.stay(ctx, &state, had)...)
	default:
		resp.Diagnostics.Append(r.leave(ctx, &m, &state, &config, had, want)...)
	}
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(r.prune(ctx, &m, &config)...)
	}
	m.forget()
	r.note(ctx, &m)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// leave removes the tags and the image that the model no longer has.
func (r *Resource) leave(ctx context.Context, m, state, config *Model, had, want []string) diag.Diagnostics {
	c, _, diags := r.registries(ctx, config)
	if diags.HasError() {
		return diags
	}
	engine, d := state.onlyOnEngine(ctx)
	diags.Append(d...)
	if m.mirrored() && m.OnDestroy.ValueString() != onDestroyKeep { // no new image takes the engine's tags over
		_, d = r.untag(ctx, engine, had, c, supersededStays(onEngine))
		diags.Append(d...)
	}
	if !m.Push.ValueBool() { // pushed copies stay
		state = engine
	}
	superseded := m.supersedes(ctx, state)
	if superseded && m.OnDestroy.ValueString() == onDestroyKeep {
		return diags
	}
	failed := tagStays
	if superseded {
		failed = supersededStays(onEngine)
	}
	_, dropped := split(had, want)
	left, d := r.untag(ctx, state, dropped, c, failed)
	diags.Append(d...)
	if superseded {
		diags.Append(r.supersede(ctx, m, state, c)...)
		return diags // they are tags of the old image, which is no longer managed
	}
	if diags.HasError() {
		done, d := m.tags(ctx)
		diags.Append(d...)
		diags.Append(m.setTags(ctx, slices.Concat(done, left))...)
	}
	return diags
}

// split divides wanted tags into present and missing ones.
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

// Delete applies on_destroy. What the same apply has made again stays: with create_before_destroy, the image that
// replaces this one may equal it.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m Model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	tags, diags := m.tags(ctx)
	resp.Diagnostics.Append(diags...)
	timeout, diags := m.Timeouts.Delete(ctx, deleteTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() || m.OnDestroy.ValueString() == onDestroyKeep {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if m.has(ctx, onEngine) {
		if _, err := r.instance(ctx, &m); err != nil {
			resp.Diagnostics.Append(diagnose.Failed("Removing Image Failed", err, nil)...)
			return
		}
	}
	c, _, diags := r.registries(ctx, &m)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	if m.OnDestroy.ValueString() == onDestroyDelete {
		gone, again := r.divide(ctx, &m)
		resp.Diagnostics.Append(r.destroy(ctx, gone, c)...)
		m = *again
	}
	_, diags = r.untag(ctx, &m, r.left(&m, tags), c, destroyFailed)
	resp.Diagnostics.Append(diags...)
	if !diags.HasError() && m.has(ctx, onEngine) { // without tags, only a digest keeps it
		resp.Diagnostics.Append(r.unname(ctx, &m)...)
	}
}

// ImportState adopts an image on the engine by name and tag.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest,
	resp *resource.ImportStateResponse) {
	var id types.String
	resource.ImportStatePassthroughWithIdentity(ctx, path.Root("id"), path.Root("id"), req, resp)
	resp.Diagnostics.Append(resp.State.GetAttribute(ctx, path.Root("id"), &id)...)
	if resp.Diagnostics.HasError() {
		return
	}
	name, tag, err := image.Split(id.ValueString())
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed("Importing Image Failed", err, nil)...)
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), types.StringValue(name+":"+tag))...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), types.StringValue(name))...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("on_destroy"), types.StringValue(onDestroyUntag))...)
}
