package containerimage

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Model is the resource in a configuration, plan or state.
type Model struct {
	Name         types.String   `tfsdk:"name"`
	Tags         types.Set      `tfsdk:"tags"`
	Push         types.Bool     `tfsdk:"push"`
	OnDestroy    types.String   `tfsdk:"on_destroy"`
	KeepTags     types.Int64    `tfsdk:"keep_tags"`
	Build        *Build         `tfsdk:"build"`
	Source       *Source        `tfsdk:"source"`
	RegistryAuth types.List     `tfsdk:"registry_auth"`
	Timeouts     timeouts.Value `tfsdk:"timeouts"`

	ID          types.String `tfsdk:"id"`
	ImageID     types.String `tfsdk:"image_id"`
	Digest      types.String `tfsdk:"digest"`
	Reference   types.String `tfsdk:"reference"`
	Copies      types.Set    `tfsdk:"copies"`
	ContextHash types.String `tfsdk:"context_hash"`
	PostStart   types.List   `tfsdk:"post_start"`
	Size        types.Int64  `tfsdk:"size"`
	Layers      types.List   `tfsdk:"layers"`
	Instance    types.String `tfsdk:"instance"`
}

// Build is build.
type Build struct {
	Context      types.String `tfsdk:"context"`
	Dockerfile   types.String `tfsdk:"dockerfile"`
	Inline       types.String `tfsdk:"dockerfile_inline"`
	Devcontainer types.String `tfsdk:"devcontainer"`
	Args         types.Map    `tfsdk:"args"`
	Target       types.String `tfsdk:"target"`
	Platform     types.String `tfsdk:"platform"`
	Labels       types.Map    `tfsdk:"labels"`
	NoCache      types.Bool   `tfsdk:"no_cache"`
	CacheFrom    types.List   `tfsdk:"cache_from"`
	Builder      types.String `tfsdk:"builder"`
	Secrets      types.Map    `tfsdk:"secrets"`
}

// BuildSecret is an element of secrets; its id is the key. Plan and state never hold its value.
type BuildSecret struct {
	Value types.String `tfsdk:"value_wo"`
}

// known reports whether all inputs of the build are known.
func (b *Build) known() bool {
	values := []attr.Value{b.Context, b.Dockerfile, b.Inline, b.Devcontainer, b.Args, b.Target,
		b.Platform, b.Labels, b.CacheFrom}
	for _, m := range []types.Map{b.Args, b.Labels} {
		for _, v := range m.Elements() {
			values = append(values, v)
		}
	}
	values = append(values, b.CacheFrom.Elements()...)
	return !slices.ContainsFunc(values, attr.Value.IsUnknown)
}

// expand returns the build without what a devcontainer.json adds. Everything must be known.
func (b *Build) expand(ctx context.Context) (image.Spec, diag.Diagnostics) {
	spec := image.Spec{
		Context:    b.Context.ValueString(),
		Dockerfile: b.Dockerfile.ValueString(),
		Inline:     b.Inline.ValueString(),
		Target:     b.Target.ValueString(),
		Platform:   b.Platform.ValueString(),
		NoCache:    b.NoCache.ValueBool(),
		Builder:    b.Builder.ValueString(),
	}
	var diags diag.Diagnostics
	if !b.Args.IsNull() {
		diags.Append(b.Args.ElementsAs(ctx, &spec.Args, false)...)
	}
	if !b.Labels.IsNull() {
		diags.Append(b.Labels.ElementsAs(ctx, &spec.Labels, false)...)
	}
	if !b.CacheFrom.IsNull() {
		diags.Append(b.CacheFrom.ElementsAs(ctx, &spec.CacheFrom, false)...)
	}
	return spec, diags
}

// secrets returns the values of the secrets. Only a configuration has them.
func (b *Build) secrets(ctx context.Context) (map[string]sandbox.Secret, diag.Diagnostics) {
	var list map[string]BuildSecret
	if b.Secrets.IsNull() {
		return nil, nil
	}
	diags := b.Secrets.ElementsAs(ctx, &list, false)
	values := make(map[string]sandbox.Secret, len(list))
	for id, secret := range list {
		values[id] = sandbox.Secret(secret.Value.ValueString())
	}
	return values, diags
}

// mirrored reports whether the image is copied from registry to registry, without an engine.
func (m *Model) mirrored() bool { return m.Source != nil && m.Build == nil && m.Push.ValueBool() }

// undecided reports whether neither build nor source is null yet. One of them is unknown and becomes null.
func (m *Model) undecided() bool { return m.Build != nil && m.Source != nil }

// open reports whether the source is unknown and may become null: then the image of the state stays. state may be nil.
func (m *Model) open(state *Model) bool {
	return state != nil && m.Build == nil && m.Source != nil && m.Source.unknown()
}

// adopted reports whether the image has neither build nor source. It was imported, and stays as it is.
func (m *Model) adopted() bool { return m.Build == nil && m.Source == nil }

// tags returns the tags. They must be known.
func (m *Model) tags(ctx context.Context) ([]string, diag.Diagnostics) {
	tags, diags := elements(ctx, m.Tags)
	slices.Sort(tags)
	return tags, diags
}

// tagged returns the model's name with each tag.
func (m *Model) tagged(tags []string) []string {
	var refs []string
	for _, tag := range tags {
		refs = append(refs, m.Name.ValueString()+":"+tag)
	}
	return refs
}

func (m *Model) setTags(ctx context.Context, tags []string) diag.Diagnostics {
	set, diags := setOf(ctx, tags)
	m.Tags = set
	return diags
}

// elements returns the elements of a set; none if it is null or unknown.
func elements(ctx context.Context, set types.Set) ([]string, diag.Diagnostics) {
	var list []string
	if set.IsNull() || set.IsUnknown() {
		return nil, nil
	}
	diags := set.ElementsAs(ctx, &list, false)
	return list, diags
}

func setOf(ctx context.Context, list []string) (types.Set, diag.Diagnostics) {
	return types.SetValueFrom(ctx, types.StringType, append([]string{}, list...))
}

// pinned returns the image's name with its digest in the registry.
func (m *Model) pinned() string { return m.Name.ValueString() + "@" + m.Digest.ValueString() }

// setReference derives the reference from the rest of the model.
func (m *Model) setReference() {
	switch {
	case m.Digest.IsUnknown() || m.Push.IsUnknown() || m.Push.ValueBool() && m.Name.IsUnknown():
		m.Reference = types.StringUnknown()
	case m.Push.ValueBool() && !m.Digest.IsNull():
		m.Reference = types.StringValue(m.pinned())
	case m.Source != nil && !m.Digest.IsNull():
		m.Reference = types.StringValue(m.Source.pinned(m.Digest.ValueString()))
	default:
		m.Reference = m.ImageID
	}
}

// setImage writes an image of the engine into the model.
func (m *Model) setImage(ctx context.Context, img image.Image, instance string) diag.Diagnostics {
	m.ImageID = types.StringValue(img.ID)
	m.Instance = types.StringValue(instance)
	return m.setContent(ctx, img.Size, img.Layers)
}

func (m *Model) setContent(ctx context.Context, size int64, layers []string) diag.Diagnostics {
	list, diags := types.ListValueFrom(ctx, types.StringType, append([]string{}, layers...))
	m.Size, m.Layers = types.Int64Value(size), list
	return diags
}

// texts returns the texts that describe the image.
func (m *Model) texts() []*types.String {
	return []*types.String{&m.ImageID, &m.Digest, &m.Reference, &m.ContextHash, &m.Instance}
}

// forget sets values that a failed operation left unknown to null, so that Terraform can store the rest. An image whose
// digest is unknown is referred to by its id: without a reference, Read would take it for an imported one.
func (m *Model) forget() {
	for _, s := range m.texts() {
		if s.IsUnknown() {
			*s = types.StringNull()
		}
	}
	m.setReference()
	if m.Size.IsUnknown() {
		m.Size = types.Int64Null()
	}
	if m.Layers.IsUnknown() {
		m.Layers = types.ListNull(types.StringType)
	}
	if m.PostStart.IsUnknown() {
		m.PostStart = types.ListNull(postStartType)
	}
}
