package containerimage

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/spread"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ModifyPlan plans the context hash of a build or the digest of a source. If it equals the state's, the image stays.
// Otherwise the image and its reference become unknown, so that Terraform plans changes for what refers to it.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() { // destroy
		return
	}
	var plan, config Model
	var state *Model
	resp.Diagnostics.Append(spread.Plan(req.Plan).Get(ctx, &plan)...)
	resp.Diagnostics.Append(spread.Config(req.Config).Get(ctx, &config)...)
	if !req.State.Raw.IsNull() {
		state = &Model{}
		resp.Diagnostics.Append(req.State.Get(ctx, state)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(plan.checkKeepTags()...)
	_, _, invalid := config.registries(ctx)
	resp.Diagnostics.Append(invalid...)
	if resp.Diagnostics.Append(plan.checkOrigin(state)...); resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(r.content(ctx, &plan, state, &config)...)
	resp.Diagnostics.Append(plan.wantCopies(ctx)...)
	if resp.Diagnostics.HasError() {
		return
	}
	plan.ID = plan.Name
	switch {
	case plan.open(state):
		plan.leaveOpen()
	case state.keeps(&plan):
		plan.keep(ctx, state)
		resp.Diagnostics.Append(r.restore(ctx, &plan, state, &config)...)
	default:
		plan.renew()
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
	spread.Back(req.Plan, &resp.Plan)
}

// checkOrigin refuses to create an image without a build or a source.
func (m *Model) checkOrigin(state *Model) diag.Diagnostics {
	stays := state != nil && (m.Name.IsUnknown() || m.Name.Equal(state.Name))
	if !m.adopted() || stays {
		return nil
	}
	return diag.Diagnostics{diag.NewAttributeErrorDiagnostic(path.Root("build"), "Missing Build Or Source", fmt.Sprintf(
		"Image %s has neither build nor source, so it cannot be created. Set one of them. Only an image that exists and "+
			"was imported needs neither.", m.Name.ValueString()))}
}

// content plans the context hash of a build, or the digest of a source.
func (r *Resource) content(ctx context.Context, m, state, config *Model) (diags diag.Diagnostics) {
	m.ContextHash, m.Digest, m.PostStart = types.StringNull(), types.StringUnknown(), types.ListNull(postStartType)
	if m.Source == nil && m.Push.Equal(types.BoolValue(false)) {
		m.Digest = types.StringNull()
	}
	switch {
	case m.Build != nil:
		return r.hash(ctx, m, state, config)
	case m.adopted():
		m.ContextHash = state.ContextHash
	case m.Source != nil && state != nil && m.Source.stays(state.Source) && !state.Digest.IsNull():
		m.Digest = state.Digest
	case m.Source != nil && m.Source.known():
		client, known, d := r.registries(ctx, config)
		if diags.Append(d...); !known {
			return diags
		}
		m.Digest, d = m.Source.pin(ctx, client)
		diags.Append(d...)
	}
	return diags
}

// The places of copies.
const (
	onEngine   = "engine"
	inRegistry = "registry"
)

// wantCopies plans the places of the image.
func (m *Model) wantCopies(ctx context.Context) diag.Diagnostics {
	var where []string
	switch {
	case m.Push.IsUnknown() || m.undecided():
		m.Copies = types.SetUnknown(types.StringType)
		return nil
	case m.mirrored():
		where = []string{inRegistry}
	case m.Push.ValueBool():
		where = []string{onEngine, inRegistry}
	default:
		where = []string{onEngine}
	}
	set, diags := setOf(ctx, where)
	m.Copies = set
	return diags
}

// has reports whether the model has a copy in a place. The state of an earlier provider has no copies: its image is
// on the engine.
func (m *Model) has(ctx context.Context, place string) bool {
	if m.Copies.IsNull() {
		return place == onEngine
	}
	list, _ := elements(ctx, m.Copies) // the schema ensures strings
	for _, p := range list {
		if p == place {
			return true
		}
	}
	return false
}

// onlyOnEngine returns the model without its copy in a registry.
func (m *Model) onlyOnEngine(ctx context.Context) (*Model, diag.Diagnostics) {
	only, where := *m, []string(nil)
	if m.has(ctx, onEngine) {
		where = []string{onEngine}
	}
	set, diags := setOf(ctx, where)
	only.Copies = set
	return &only, diags
}

// keeps reports whether the image of a state is the planned one. m may be nil.
func (m *Model) keeps(plan *Model) bool {
	switch {
	case m == nil || plan.Push.IsUnknown():
		return false
	case plan.adopted():
		return true
	case plan.Build != nil:
		return m.ContextHash.ValueString() != "" && m.ContextHash.Equal(plan.ContextHash)
	default:
		return m.Digest.ValueString() != "" && m.Digest.Equal(plan.Digest)
	}
}

// renew plans a new image. It keeps what the plan already knows of it.
func (m *Model) renew() {
	m.ImageID, m.Instance = types.StringUnknown(), types.StringUnknown()
	if m.mirrored() {
		m.ImageID, m.Instance = types.StringNull(), types.StringNull()
	}
	m.Size, m.Layers = types.Int64Unknown(), types.ListUnknown(types.StringType)
	m.setReference()
}

// leaveOpen plans the same image or a new one.
func (m *Model) leaveOpen() {
	for _, s := range m.texts() {
		*s = types.StringUnknown()
	}
	m.Copies, m.PostStart = types.SetUnknown(types.StringType), types.ListUnknown(postStartType)
	m.Size, m.Layers = types.Int64Unknown(), types.ListUnknown(types.StringType)
}

// keep plans the same image, and unknown values for the copies to restore.
func (m *Model) keep(ctx context.Context, state *Model) {
	m.ImageID, m.Instance, m.Size, m.Layers = state.ImageID, state.Instance, state.Size, state.Layers
	switch {
	case m.mirrored():
		m.ImageID, m.Instance = types.StringNull(), types.StringNull()
	case !state.has(ctx, onEngine):
		m.ImageID, m.Instance = types.StringUnknown(), types.StringUnknown()
	}
	if m.Size.IsNull() || m.mirrored() != state.mirrored() { // of an earlier provider, or of the other place
		m.Size, m.Layers = types.Int64Unknown(), types.ListUnknown(types.StringType)
	}
	// The engine pushes what it has pushed before under the same digest, but not what it pulls from several platforms.
	if m.Source == nil && m.Push.ValueBool() && state.has(ctx, inRegistry) && !state.mirrored() {
		m.Digest = state.Digest
	}
	m.setReference()
}

// restore plans to push again what the registry has lost. It asks registries that need a password of the
// configuration, which Read cannot.
func (r *Resource) restore(ctx context.Context, m, state, config *Model) diag.Diagnostics {
	if !state.has(ctx, inRegistry) || !m.Push.ValueBool() || !state.ownCredentials(ctx) {
		return nil
	}
	client, known, diags := r.registries(ctx, config)
	if diags.HasError() || !known {
		return diags
	}
	tags, d := state.tags(ctx)
	diags.Append(d...)
	found, err := look(ctx, client, state, tags)
	if err != nil {
		return append(diags, diagnose.Failed("Reading Image Failed", err, nil)...)
	}
	_, lost := split(tags, found.tags)
	switch {
	case !found.there:
		diags.Append(copyLost(state, inRegistry))
		m.lose()
	case len(lost) > 0:
		diags.Append(tagsMoved(state, inRegistry, lost)...)
		m.Copies = types.SetUnknown(types.StringType)
	}
	return diags
}

// lose plans to push or copy the image to the registry again.
func (m *Model) lose() {
	m.Copies = types.SetUnknown(types.StringType)
	if m.Source == nil { // the engine may compress it differently
		m.Digest = types.StringUnknown()
		m.setReference()
	}
}

// hash plans the context hash and post_start. They are unknown while one of their inputs is.
func (r *Resource) hash(ctx context.Context, m, state, config *Model) diag.Diagnostics {
	m.ContextHash = types.StringUnknown()
	var client *registry.Client
	var diags diag.Diagnostics
	known := m.Build.known()
	if !m.Build.Devcontainer.IsNull() { // its features may be in a registry
		var has bool
		m.PostStart = types.ListUnknown(postStartType)
		client, has, diags = r.registries(ctx, config)
		known = known && has
	}
	if !known || diags.HasError() {
		return diags
	}
	spec, notes, d := m.spec(ctx, client)
	if diags.Append(d...); diags.HasError() {
		return diags
	}
	hash, err := spec.Hash()
	if err != nil {
		if sandbox.CodeOf(err) == sandbox.Internal {
			return append(diags, diagnose.Failed("Hashing Build Context Failed", err, nil)...)
		}
		at := path.Root("build").AtName("context")
		return append(diags, diag.NewAttributeErrorDiagnostic(at, "Invalid Build Context", err.Error()+"."))
	}
	m.ContextHash = types.StringValue(hash)
	if state == nil || !state.ContextHash.Equal(m.ContextHash) { // warn once for each build
		diags.Append(notes...)
	}
	return diags
}

// spec returns the build and warnings about it. It writes post_start into the model.
func (m *Model) spec(ctx context.Context, c *registry.Client) (spec image.Spec, notes, diags diag.Diagnostics) {
	spec, diags = m.Build.expand(ctx)
	if diags.HasError() || m.Build.Devcontainer.IsNull() {
		return spec, nil, diags
	}
	d, err := m.Build.devcontainer(ctx, c)
	switch {
	case sandbox.CodeOf(err) == sandbox.Invalid:
		at := path.Root("build").AtName("devcontainer")
		return spec, nil, append(diags, diag.NewAttributeErrorDiagnostic(at, "Invalid Devcontainer", err.Error()+"."))
	case err != nil:
		return spec, nil, append(diags, diagnose.Failed("Reading Devcontainer Failed", err, nil)...)
	}
	follow(&spec, d)
	var more diag.Diagnostics
	m.PostStart, more = postStart(ctx, d)
	return spec, withoutEffect(d), append(diags, more...)
}
