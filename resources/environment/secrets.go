package environment

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Secret is an element of secrets, which has its name. Plan and state never hold its value.
type Secret struct {
	Value   types.String `tfsdk:"value_wo"`
	Version types.Int64  `tfsdk:"value_wo_version"`
}

func secretsAttribute() schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: fmt.Sprintf("Secrets by name. Every sandbox finds each as the file `%s/<name>`, in memory, that only its user may read. ", sandbox.SecretsDir) +
			fmt.Sprintf("A name is a file name of 1 to 63 letters, digits, `.`, `_` and `-`; there may be %d. Changed in place: living sandboxes get a new value, and lose a secret that is left out, before they are used next. ", sandbox.MaxSecrets) +
			"Values need Terraform 1.11, and are in no plan and no state. Default: none.",
		Optional: true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"value_wo": schema.StringAttribute{
				MarkdownDescription: fmt.Sprintf("The value, 1 to %d bytes, best of an ephemeral variable or resource. It is kept encrypted in the ledger and never shown.", sandbox.MaxSecretBytes),
				Required:            true,
				WriteOnly:           true,
				Sensitive:           true,
			},
			"value_wo_version": schema.Int64Attribute{
				MarkdownDescription: "Change it, for example by one, to have a changed `value_wo` sent: Terraform cannot see that a value has changed.",
				Required:            true,
			},
		}},
	}
}

// secretNames returns the names of the model's secrets in order, nil while they are unknown.
func (m *Model) secretNames() []string {
	return slices.Sorted(maps.Keys(m.Secrets.Elements()))
}

// expandSecrets returns the secrets of a map by name.
func expandSecrets(ctx context.Context, of types.Map, diags *diag.Diagnostics) map[string]Secret {
	var secrets map[string]Secret
	if !of.IsNull() && !of.IsUnknown() {
		diags.Append(of.ElementsAs(ctx, &secrets, false)...)
	}
	return secrets
}

// secretValues returns what has to be sent: the known values of a configuration whose version the
// state does not have.
func secretValues(ctx context.Context, config, state types.Map) (map[string]sandbox.Secret, diag.Diagnostics) {
	var diags diag.Diagnostics
	have := expandSecrets(ctx, state, &diags)
	values := map[string]sandbox.Secret{}
	for name, s := range expandSecrets(ctx, config, &diags) {
		before, sent := have[name]
		if s.Value.IsUnknown() || sent && before.Version.Equal(s.Version) {
			continue
		}
		values[name] = sandbox.Secret(s.Value.ValueString())
	}
	return values, diags
}

// flattenSecrets makes the model name the secrets that an environment has. The ledger has no
// versions: a name that the model has keeps its version, another has none, so that the next apply
// sends its value.
func (m *Model) flattenSecrets(ctx context.Context, names []string, diags *diag.Diagnostics) {
	if slices.Equal(m.secretNames(), slices.Sorted(slices.Values(names))) {
		return
	}
	element := secretsAttribute().NestedObject.Type()
	if len(names) == 0 {
		m.Secrets = types.MapNull(element)
		return
	}
	have := expandSecrets(ctx, m.Secrets, diags)
	secrets := make(map[string]Secret, len(names))
	for _, name := range names {
		secrets[name] = Secret{Value: types.StringNull(), Version: have[name].Version}
	}
	all, d := types.MapValueFrom(ctx, element, secrets)
	diags.Append(d...)
	m.Secrets = all
}
