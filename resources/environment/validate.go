package environment

import (
	"context"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ValidateConfig applies the rules of the domain to what is known of the configuration.
func (r *Resource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var config Model
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(validate(ctx, config)...)
}

// validate checks the known values; an unknown one is taken to be valid.
func validate(ctx context.Context, m Model) diag.Diagnostics {
	spec, diags := expand(ctx, m)
	if diags.HasError() {
		return diags
	}
	put := sandbox.PutEnvironment{ID: m.Name.ValueString(), EnvironmentSpec: spec.WithDefaults()}
	put.SecretValues, diags = secretValues(ctx, m.Secrets, types.MapNull(types.StringType))
	if diags.HasError() {
		return diags
	}
	if m.Name.IsUnknown() {
		put.ID = "unknown"
	}
	if m.Image.IsUnknown() {
		put.Image = "unknown"
	}
	if m.Network != nil && m.Network.Mode.IsUnknown() {
		put.Network = sandbox.NetworkRestricted // which all else that the block says needs
	}
	for i, c := range put.ExpiryConditions {
		if c == "" { // an unknown element
			put.ExpiryConditions[i] = "unknown.condition"
		}
	}
	if err := put.Validate(); err != nil {
		diags.Append(diagnose.Failed("Invalid Environment", err, place)...)
	}
	return diags
}

// place says where a field of the domain stands in the configuration, and what it is called there.
func place(field string) (path.Path, string, bool) {
	head, rest, _ := strings.Cut(field, ".")
	switch {
	case field == "id":
		return path.Root("name"), "name", true
	case field == "network":
		return path.Root("network").AtName("mode"), "The network mode", true
	case field == "egress":
		return path.Root("network").AtName("allow"), "What is allowed", true
	case strings.HasPrefix(field, "egress.allow"):
		return path.Root("network").AtName("allow"), "Every allowed host", true
	case strings.HasPrefix(field, "egress.private_cidrs"):
		return path.Root("network").AtName("private_cidrs"), "Every private range", true
	case field == "resources.cpu_millis":
		return path.Root("resources").AtName("cpus"), "cpus, in thousandths of a core,", true
	case head == "resources":
		return path.Root("resources").AtName(rest), rest, true
	case head == "env":
		return path.Root("env").AtMapKey(rest), "The environment variable " + rest, true
	case head == "secret_values":
		at := path.Root("secrets").AtMapKey(rest).AtName("value_wo")
		return at, "The value of secret " + rest, true
	case head == "initial_state" || head == "skills":
		if rest == "" {
			return path.Root(head), head, true
		}
		at := path.Root(head).AtMapKey(rest)
		return at, at.String(), true
	case strings.HasPrefix(field, "expiry_conditions"):
		return path.Root("expiry_conditions"), "Every expiry condition", true
	default:
		at := locate(head, rest)
		return at, at.String(), true
	}
}

// listBlocks are the blocks of lists whose name in the domain is another.
var listBlocks = map[string]string{"mounts": "mount", "copies": "copy", "processes": "process"}

// locate finds a field that the configuration has under the domain's name, or in a block for each of
// a list: mounts[1].source is mount[1].source.
func locate(head, rest string) path.Path {
	name, index, listed := strings.Cut(strings.TrimSuffix(head, "]"), "[")
	if block, ok := listBlocks[name]; ok {
		name = block
	}
	at := path.Root(name)
	switch name {
	case "env_passthrough", "env_blocked": // sets: what is wrong names the element
		return at
	}
	if i, err := strconv.Atoi(index); listed && err == nil {
		at = at.AtListIndex(i)
	}
	if rest == "" {
		return at
	}
	attribute, key, keyed := strings.Cut(rest, ".")
	if at = at.AtName(attribute); keyed {
		at = at.AtMapKey(key)
	}
	return at
}
