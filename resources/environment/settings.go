package environment

import (
	"context"
	"maps"

	datasource "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/computed"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Settings are settings of an environment that its data source shows under the resource's names.
type Settings struct {
	Allow          types.Set      `tfsdk:"allow"`
	PrivateCIDRs   types.Set      `tfsdk:"private_cidrs"`
	Credentials    types.Map      `tfsdk:"credentials"`
	Authorities    types.String   `tfsdk:"authorities"`
	EnvPassthrough types.Set      `tfsdk:"env_passthrough"`
	EnvBlocked     types.Set      `tfsdk:"env_blocked"`
	BuiltinTools   types.Set      `tfsdk:"builtin_tools"`
	LLM            types.Map      `tfsdk:"llm"`
	Companions     types.Map      `tfsdk:"companions"`
	Mounts         types.List     `tfsdk:"mount"`
	Copies         types.List     `tfsdk:"copy"`
	Snapshot       *Snapshot      `tfsdk:"state"`
	InitialData    types.Map      `tfsdk:"initial_state"`
	Skills         types.Map      `tfsdk:"skills"`
	Confinement    *Confinement   `tfsdk:"confinement"`
	PostStart      types.List     `tfsdk:"post_start"`
	Processes      types.List     `tfsdk:"process"`
	PostMortem     duration.Value `tfsdk:"post_mortem"`
	CommandTimeout duration.Value `tfsdk:"command_timeout"`
	ImagePull      types.String   `tfsdk:"image_pull"`
}

// SettingsAttributes describes the settings as the resource does. All are computed.
func SettingsAttributes() map[string]datasource.Attribute {
	all := computed.Attributes(attributes(), "env_passthrough", "env_blocked", "builtin_tools", "initial_state", "skills",
		"post_mortem", "command_timeout", "image_pull")
	maps.Copy(all, computed.Attributes(networkAttribute().Attributes, "allow", "private_cidrs", "credentials",
		"authorities"))
	maps.Copy(all,
		computed.Attributes(nestedAttributes(), "llm", "companions", "mount", "copy", "state", "confinement",
			"post_start", "process"))
	return all
}

// SettingsOf returns the settings of a specification whose defaults are filled in. Optional settings that equal their
// defaults are null.
func SettingsOf(ctx context.Context, spec sandbox.EnvironmentSpec) (Settings, diag.Diagnostics) {
	var diags diag.Diagnostics
	none := types.SetNull(types.StringType)
	m := Model{
		LLM:        types.MapNull(llmAttribute().NestedObject.Type()),
		Companions: types.MapNull(companionsAttribute().NestedObject.Type()),
		Mounts:     types.ListNull(mountAttribute().NestedObject.Type()),
		Copies:     types.ListNull(copyAttribute().NestedObject.Type()),
		PostStart:  types.ListNull(postStartAttribute().NestedObject.Type()),
		Processes:  types.ListNull(processAttribute().NestedObject.Type()),
	}
	m.flattenLLM(ctx, spec, &diags)
	m.flattenCompanions(ctx, spec, &diags)
	m.flattenHostPaths(ctx, spec.HostAccess, &diags)
	m.flattenSnapshot(ctx, spec, &diags)
	m.flattenConfinement(spec.Confinement)
	m.flattenCommands(ctx, spec, &diags)
	s := Settings{
		Allow:          none,
		PrivateCIDRs:   none,
		Credentials:    flattenCredentials(ctx, spec.EgressRules().Credentials, &diags),
		Authorities:    value.String(spec.EgressRules().Authorities),
		EnvPassthrough: collection.SetLike(ctx, spec.EnvPassthrough, none, &diags),
		EnvBlocked:     collection.SetLike(ctx, spec.EnvBlocked, none, &diags),
		BuiltinTools:   collection.SetLike(ctx, spec.BuiltinTools, none, &diags),
		LLM:            m.LLM,
		Companions:     m.Companions,
		Mounts:         m.Mounts,
		Copies:         m.Copies,
		Snapshot:       m.Snapshot,
		InitialData:    m.InitialData,
		Skills:         m.Skills,
		Confinement:    m.Confinement,
		PostStart:      m.PostStart,
		Processes:      m.Processes,
		PostMortem:     duration.FromPointer(spec.PostMortem),
		CommandTimeout: duration.New(spec.CommandTimeout),
		ImagePull:      value.String(spec.ImagePull),
	}
	if spec.Network == sandbox.NetworkRestricted {
		rules := spec.EgressRules()
		s.Allow, s.PrivateCIDRs = collection.Set(ctx, flattenRules(rules.Allow), &diags), collection.Set(ctx,
			append([]string{}, rules.PrivateCIDRs...), &diags)
	}
	return s, diags
}
