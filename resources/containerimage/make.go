package containerimage

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
)

// produce makes the planned image, then its tags, then its copies. state may be nil. It writes its progress into the
// model, even if it fails. made is false if it made no image.
func (r *Resource) produce(ctx context.Context, m, state, config *Model,
	c *registry.Client) (made bool, diags diag.Diagnostics) {
	want, diags := m.tags(ctx)
	if diags.HasError() {
		return false, diags
	}
	if m.Push.ValueBool() { // fail before the build
		if err := c.CheckPush(ctx, m.Name.ValueString()); err != nil {
			return false, diagnose.Failed("Pushing Image Failed", err, nil)
		}
	}
	if m.mirrored() {
		return r.mirror(ctx, m, c, want)
	}
	if diags.Append(r.onEngine(ctx, m, state, config, c)...); diags.HasError() {
		return false, diags
	}
	done, d := r.tag(ctx, m, want)
	diags.Append(d...)
	where := []string{onEngine}
	if m.Push.ValueBool() && !diags.HasError() {
		if done, d = r.push(ctx, m, c, want); len(done) > 0 {
			where = append(where, inRegistry)
		}
		diags.Append(d...)
	}
	diags.Append(m.reached(ctx, done, where)...)
	return true, diags
}

// reached writes the tags and places of the image into the model.
func (m *Model) reached(ctx context.Context, tags, where []string) diag.Diagnostics {
	diags := m.setTags(ctx, tags)
	set, d := setOf(ctx, where)
	m.Copies = set
	m.setReference()
	return append(diags, d...)
}

// onEngine makes the engine build or pull the image, unless it has it.
func (r *Resource) onEngine(ctx context.Context, m, state, config *Model, c *registry.Client) diag.Diagnostics {
	instance, err := r.provider.Images.Instance(ctx)
	if err != nil {
		return diagnose.Failed("Making Image Failed", err, nil)
	}
	id := m.ImageID.ValueString()
	if m.ImageID.IsUnknown() {
		var diags diag.Diagnostics
		if id, diags = r.obtain(ctx, m, state, config, c); diags.HasError() {
			return diags
		}
	}
	img, err := r.provider.Images.Inspect(ctx, id)
	if err != nil {
		return diagnose.Partly("Making Image Failed", err, nil,
			fmt.Sprintf("Image %s is on the engine. Terraform's state is unchanged.", id))
	}
	return m.setImage(ctx, img, instance)
}

// obtain builds or pulls the image, and returns its id.
func (r *Resource) obtain(ctx context.Context, m, state, config *Model, c *registry.Client) (string, diag.Diagnostics) {
	switch {
	case m.Source != nil:
		return r.pull(ctx, m.Source.pinned(m.Digest.ValueString()), c)
	case state.keeps(m): // only the engine has lost it
		return r.pull(ctx, state.pinned(), c)
	default:
		return r.build(ctx, m, config, c)
	}
}

func (r *Resource) pull(ctx context.Context, pinned string, c *registry.Client) (string, diag.Diagnostics) {
	const failed = "Pulling Image Failed"
	auth, err := c.EngineAuth(ctx, pinned)
	if err != nil {
		return "", diagnose.Failed(failed, err, nil)
	}
	img, err := r.provider.Images.Pull(ctx, pinned, auth)
	if err != nil {
		return "", diagnose.Failed(failed, err, nil)
	}
	return img.ID, nil
}

func (r *Resource) build(ctx context.Context, m, config *Model, c *registry.Client) (string, diag.Diagnostics) {
	planned := m.PostStart
	spec, _, diags := m.spec(ctx, c)
	if !planned.IsUnknown() {
		m.PostStart = planned // the build fails if the file has changed since the plan
	}
	secrets, d := config.Build.secrets(ctx)
	diags.Append(d...)
	tags, d := m.tags(ctx)
	if diags.Append(d...); diags.HasError() {
		return "", diags
	}
	spec.Secrets, spec.Registries = secrets, c
	if refs := m.tagged(tags); len(refs) > 0 {
		spec.Reference = refs[0]
	}
	const failed = "Building Image Failed"
	if m.ContextHash.IsUnknown() {
		hash, err := spec.Hash()
		if err != nil {
			return "", diagnose.Failed(failed, err, nil)
		}
		m.ContextHash = types.StringValue(hash)
	}
	name := m.Name.ValueString()
	id, err := r.provider.Images.Build(ctx, spec, m.ContextHash.ValueString(), func(line string) {
		tflog.Debug(ctx, line, map[string]any{"image": name})
	})
	if err != nil {
		return "", diagnose.Failed(failed, err, nil)
	}
	return id, diags
}

// tag sets the tags of the model's image on the engine, and returns those that it has set.
func (r *Resource) tag(ctx context.Context, m *Model, tags []string) ([]string, diag.Diagnostics) {
	for i, tag := range tags {
		if err := r.provider.Images.Tag(ctx, m.ImageID.ValueString(), m.Name.ValueString(), tag); err != nil {
			return tags[:i], diagnose.Partly("Tagging Image Failed", err, nil, madeWith(onEngine, tags[:i]))
		}
	}
	return tags, nil
}

// madeWith says which tags of a new image exist in one place.
func madeWith(place string, tags []string) string {
	return fmt.Sprintf("The image was made. Of its tags, the %s has %s. Terraform's state has this, and the next apply "+
		"makes the rest.", place, cmp.Or(strings.Join(tags, ", "), "none"))
}

// push makes the engine push every tag, writes the digest into the model, and returns the pushed tags.
func (r *Resource) push(ctx context.Context, m *Model, c *registry.Client, tags []string) ([]string, diag.Diagnostics) {
	const failed = "Pushing Image Failed"
	name := m.Name.ValueString()
	auth, err := c.EngineAuth(ctx, name)
	if err != nil {
		return nil, diagnose.Partly(failed, err, nil, madeWith(inRegistry, nil))
	}
	for i, tag := range tags {
		digest, err := r.provider.Images.Push(ctx, name, tag, auth)
		if err != nil {
			return tags[:i], diagnose.Partly(failed, err, nil, madeWith(inRegistry, tags[:i]))
		}
		m.Digest = types.StringValue(digest)
	}
	return tags, nil
}

// mirror copies the source to each of the model's tags, from registry to registry.
func (r *Resource) mirror(ctx context.Context, m *Model, c *registry.Client,
	tags []string) (made bool, _ diag.Diagnostics) {
	const failed = "Copying Image Failed"
	from := m.Source.pinned(m.Digest.ValueString())
	for i, ref := range m.tagged(tags) {
		if err := c.Copy(ctx, from, ref); err != nil {
			if i == 0 {
				return false, diagnose.Failed(failed, err, nil)
			}
			diags := diagnose.Partly(failed, err, nil, madeWith(inRegistry, tags[:i]))
			diags.Append(m.reached(ctx, tags[:i], []string{inRegistry})...)
			return true, diags
		}
	}
	content, err := c.Image(ctx, m.pinned())
	if err != nil {
		return true, append(diagnose.Partly(failed, err, nil, madeWith(inRegistry, tags)),
			m.reached(ctx, tags, []string{inRegistry})...)
	}
	diags := m.setContent(ctx, content.Size, content.Layers)
	diags.Append(m.reached(ctx, tags, []string{inRegistry})...)
	return true, diags
}
