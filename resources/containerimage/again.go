package containerimage

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/types"
)

// note remembers a new image and its tags for the destruction of an equal one in the same apply.
func (r *Resource) note(ctx context.Context, m *Model) {
	tags, _ := elements(ctx, m.Tags) // the schema ensures strings
	for _, content := range []types.String{m.ImageID, m.Digest} {
		if content.IsNull() {
			continue
		}
		r.provider.Made(content.ValueString())
		r.provider.Made(m.Name.ValueString() + "@" + content.ValueString())
		for _, ref := range m.tagged(tags) {
			r.provider.Made(ref + "@" + content.ValueString())
		}
	}
}

// left returns the tags that this apply has not given to an equal image.
func (r *Resource) left(m *Model, tags []string) []string {
	return slices.DeleteFunc(slices.Clone(tags), func(tag string) bool {
		ref := m.Name.ValueString() + ":" + tag + "@"
		return r.provider.HasMade(ref+m.ImageID.ValueString()) || r.provider.HasMade(ref+m.Digest.ValueString())
	})
}

// divide returns the model with the copies that are only its own, and with those that this apply has made again.
func (r *Resource) divide(ctx context.Context, m *Model) (own, again *Model) {
	var owned, made []string
	for place, content := range map[string]string{onEngine: m.ImageID.ValueString(), inRegistry: m.pinned()} {
		switch {
		case !m.has(ctx, place):
		case r.provider.HasMade(content):
			made = append(made, place)
		default:
			owned = append(owned, place)
		}
	}
	own, again = new(Model), new(Model)
	*own, *again = *m, *m
	own.Copies, _ = setOf(ctx, owned) // strings are valid elements
	again.Copies, _ = setOf(ctx, made)
	return own, again
}
