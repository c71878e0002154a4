package containerimage

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// found describes an image in one place.
type found struct {
	there bool
	// tags point to the image.
	tags []string
	img  image.Image // zero in a registry
}

// look asks the registry for the model's image and tags. They count as absent only if the registry answers so.
func look(ctx context.Context, c *registry.Client, m *Model, tags []string) (found, error) {
	switch _, err := c.Digest(ctx, m.pinned(), ""); {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return found{}, nil
	case err != nil:
		return found{}, err
	}
	f := found{there: true}
	for _, tag := range tags {
		digest, err := c.Digest(ctx, m.Name.ValueString()+":"+tag, "")
		switch {
		case err != nil && sandbox.CodeOf(err) != sandbox.NotFound:
			return found{}, err
		case digest == m.Digest.ValueString():
			f.tags = append(f.tags, tag)
		}
	}
	return f, nil
}

// lookOnEngine asks the engine that built or pulled the image.
func (r *Resource) lookOnEngine(ctx context.Context, m *Model, ref string) (found, string, error) {
	instance, err := r.instance(ctx, m)
	if err != nil {
		return found{}, "", err
	}
	img, err := r.provider.Images.Inspect(ctx, ref)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return found{}, instance, nil
	case err != nil:
		return found{}, "", err
	}
	return found{true, img.Tags(m.Name.ValueString()), img}, instance, nil
}

// instance returns the id of the engine. It fails if another engine built or pulled the image.
func (r *Resource) instance(ctx context.Context, m *Model) (string, error) {
	instance, err := r.provider.Images.Instance(ctx)
	if err != nil {
		return "", err
	}
	if was := m.Instance.ValueString(); was != "" && was != instance {
		return "", sandbox.Errorf(sandbox.Conflict,
			"image %s is on Docker engine %s, but engine %s answers now. Point the provider's docker.host, DOCKER_HOST or "+
				"the Docker context at the engine that was used before; if that engine is gone for good, forget the image with "+
				"terraform state rm", m.Name.ValueString(), was, instance).WithReason(sandbox.ReasonOtherInstance)
	}
	return instance, nil
}

// refresh looks for every copy of the model's image, and writes the copies and tags that remain into the model. gone
// means that none remains.
func (r *Resource) refresh(ctx context.Context, m *Model) (gone bool, diags diag.Diagnostics, err error) {
	want, diags := m.tags(ctx)
	if diags.HasError() {
		return false, diags, nil
	}
	var left []string
	tags := want
	for _, place := range []string{onEngine, inRegistry} {
		if !m.has(ctx, place) {
			continue
		}
		f, asked, err := r.lookAt(ctx, m, place, want)
		switch {
		case err != nil:
			return false, diags, err
		case !asked:
			left = append(left, place)
			continue
		case !f.there:
			diags.Append(copyLost(m, place))
			continue
		}
		left = append(left, place)
		diags.Append(m.complete(ctx, place, f.img)...)
		there, lost := split(want, f.tags)
		tags, _ = split(tags, there)
		diags.Append(tagsMoved(m, place, lost)...)
	}
	if len(left) == 0 {
		return true, nil, nil
	}
	diags.Append(m.setTags(ctx, tags)...)
	set, d := setOf(ctx, left)
	diags.Append(d...)
	m.Copies = set
	return false, diags, nil
}

// complete fills push, size and layers, which the state of an earlier provider lacks.
func (m *Model) complete(ctx context.Context, place string, img image.Image) diag.Diagnostics {
	if m.Push.IsNull() {
		m.Push = types.BoolValue(false)
	}
	if place != onEngine || !m.Size.IsNull() {
		return nil
	}
	return m.setContent(ctx, img.Size, img.Layers)
}

// lookAt asks one place. asked is false if the registry needs a password, which only a plan has.
func (r *Resource) lookAt(ctx context.Context, m *Model, place string, tags []string) (f found, asked bool, err error) {
	if place == onEngine {
		f, _, err = r.lookOnEngine(ctx, m, m.ImageID.ValueString())
		return f, true, err
	}
	client, _, diags := r.registries(ctx, m)
	if diags.HasError() {
		return found{}, false, sandbox.Errorf(sandbox.Internal, "read registry_auth of the state: %v", diags)
	}
	f, err = look(ctx, client, m, tags)
	if m.lacksPassword(ctx, err) {
		return found{}, false, nil
	}
	return f, true, err
}

func copyLost(m *Model, place string) diag.Diagnostic {
	name := m.Name.ValueString()
	if place == onEngine {
		return diag.NewWarningDiagnostic(fmt.Sprintf("Image %s Lost By The Engine", name), fmt.Sprintf(
			"Docker engine %s no longer has image %s. The registry has it as %s, and the next apply pulls it from there.",
			m.Instance.ValueString(), m.ImageID.ValueString(), m.pinned()))
	}
	return diag.NewWarningDiagnostic(fmt.Sprintf("Image %s Lost By The Registry", name), fmt.Sprintf(
		"The registry no longer has %s: its manifest was deleted. The next apply pushes it again.", m.pinned()))
}

// vanished returns the warning for an image without any copy.
func vanished(m *Model) diag.Diagnostic {
	name := m.Name.ValueString()
	where := "Docker engine " + m.Instance.ValueString()
	switch {
	case m.mirrored():
		where = "The registry"
	case m.Push.ValueBool():
		where += " and the registry"
	}
	verb := "has"
	if strings.Contains(where, " and ") {
		verb = "have"
	}
	return diag.NewWarningDiagnostic(fmt.Sprintf("Image %s Vanished", name), fmt.Sprintf(
		"%s no longer %s the image %s. It is dropped from Terraform's state, and the next apply creates it again.",
		where, verb, m.Reference.ValueString()))
}

func tagsMoved(m *Model, place string, lost []string) diag.Diagnostics {
	if len(lost) == 0 {
		return nil
	}
	point, them := "point", "them"
	if len(lost) == 1 {
		point, them = "points", "it"
	}
	name := m.Name.ValueString()
	summary, what := fmt.Sprintf("Tags Of Image %s Moved", name), "image "+m.ImageID.ValueString()+" on the engine"
	if place == inRegistry {
		summary, what = fmt.Sprintf("Tags Of Image %s Moved In The Registry", name), m.pinned()+" in the registry"
	}
	return diag.Diagnostics{diag.NewWarningDiagnostic(summary, fmt.Sprintf(
		"%s no longer %s to %s: another client removed or moved %s. The next apply restores %s.",
		strings.Join(m.tagged(lost), ", "), point, what, them, them))}
}
