package environment

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Secret is an element of secrets. The map key is its name. Plan and state never hold its value.
type Secret struct {
	Value   types.String `tfsdk:"value_wo"`
	Version types.Int64  `tfsdk:"value_wo_version"`
}

func secretsAttribute() schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: fmt.Sprintf("Secrets by name. In a sandbox each is the file `%s/<name>`, in memory, "+
			"readable only by the sandbox's user. ", sandbox.SecretsDir) +
			fmt.Sprintf("A name is a file name of 1 to 63 letters, digits, `.`, `_` and `-`; at most %d. Changed in place: "+
				"live sandboxes get a new value, and lose a removed secret, before their next use. ",
				sandbox.MaxSecrets) +
			"Values need Terraform 1.11. They are in no plan and no state. Default: none.",
		Optional:   true,
		Validators: []validator.Map{given.NoNulls{}},
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"value_wo": schema.StringAttribute{
				MarkdownDescription: fmt.Sprintf("The value, 1 to %d bytes, best from an ephemeral variable or resource. The "+
					"ledger keeps it encrypted, and nothing shows it. Required for a new secret. An existing secret without a "+
					"value, as after an import, keeps its value.", sandbox.MaxSecretBytes),
				Optional:   true,
				WriteOnly:  true,
				Sensitive:  true,
				Validators: []validator.String{stringvalidator.AlsoRequires(beside("value_wo_version"))},
			},
			"value_wo_version": schema.Int64Attribute{
				MarkdownDescription: "Raise it to send a changed `value_wo`, because Terraform cannot see that the value has " +
					"changed. Required with `value_wo`.",
				Optional:   true,
				Validators: []validator.Int64{int64validator.AlsoRequires(beside("value_wo"))},
			},
		}},
	}
}

func beside(attribute string) path.Expression {
	return path.MatchRelative().AtParent().AtName(attribute)
}

// missingSecrets refuses configured secrets without a value unless the state already has them.
func missingSecrets(ctx context.Context, config types.Map, state *Model) diag.Diagnostics {
	var diags diag.Diagnostics
	have := map[string]Secret{}
	if state != nil {
		have = expandSecrets(ctx, state.Secrets, &diags)
	}
	for name, s := range expandSecrets(ctx, config, &diags) {
		if _, ok := have[name]; !ok && s.Value.IsNull() {
			diags.AddAttributeError(path.Root("secrets").AtMapKey(name).AtName("value_wo"), "Missing Secret",
				fmt.Sprintf("The environment does not have the secret %s yet: set value_wo.", name))
		}
	}
	return diags
}

// secretNames returns the names of the model's secrets, sorted. It returns nil while they are unknown.
func (m *Model) secretNames() []string {
	return slices.Sorted(maps.Keys(m.Secrets.Elements()))
}

// assumedSecret returns a valid name for an unknown credential, or "" if there is none. A companion's secret is not
// valid: no companion gets a credential.
func (m *Model) assumedSecret(companions sandbox.Companions) string {
	if m.Secrets.IsUnknown() {
		return "unknown"
	}
	free := m.secretNames()
	for _, c := range companions {
		free = slices.DeleteFunc(free, func(name string) bool { return slices.Contains(c.Secrets, name) })
	}
	return append(free, "")[0]
}

// expandSecrets returns the known secrets of a map by name. The schema refuses null elements.
func expandSecrets(ctx context.Context, of types.Map, diags *diag.Diagnostics) map[string]Secret {
	return collection.Objects[Secret](ctx, of, diags)
}

// secretValues returns the values to send: the known values of the configuration whose planned version differs from the
// state's. A secret without a value keeps its current one. The plan, unlike the configuration of an apply, is without
// what ignore_changes ignores.
func secretValues(ctx context.Context, config, plan, state types.Map) (map[string]sandbox.Secret, diag.Diagnostics) {
	var diags diag.Diagnostics
	given, have := expandSecrets(ctx, config, &diags), expandSecrets(ctx, state, &diags)
	values := map[string]sandbox.Secret{}
	for name, s := range expandSecrets(ctx, plan, &diags) {
		before, sent := have[name]
		value := given[name].Value
		if value.IsUnknown() || value.IsNull() || sent && before.Version.Equal(s.Version) {
			continue
		}
		values[name] = sandbox.Secret(value.ValueString())
	}
	return values, diags
}

// flattenSecrets makes the model name the environment's secrets. The ledger has no versions: a name that the model
// already has keeps its version. Any other name gets none, so that the next apply sends its value.
func (m *Model) flattenSecrets(ctx context.Context, names []string, diags *diag.Diagnostics) {
	if slices.Equal(m.secretNames(), slices.Sorted(slices.Values(names))) {
		return
	}
	have := expandSecrets(ctx, m.Secrets, diags)
	secrets := make(map[string]Secret, len(names))
	for _, name := range names {
		secrets[name] = Secret{Value: types.StringNull(), Version: have[name].Version}
	}
	m.Secrets = collection.Map(ctx, secretsAttribute(), secrets, diags)
}
