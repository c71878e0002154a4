package containerimage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
)

var _ resource.ResourceWithMoveState = (*Resource)(nil)

// MoveState takes over the state of the same resource under its other name, and that of a docker_image.
func (r *Resource) MoveState(ctx context.Context) []resource.StateMover {
	var same resource.SchemaResponse
	r.Schema(ctx, resource.SchemaRequest{}, &same)
	return []resource.StateMover{
		{SourceSchema: &same.Schema, StateMover: r.moveOwn(same.Schema)},
		{StateMover: moveDockerImage(same.Schema)},
	}
}

// moveOwn takes over the state of the resource's other name unchanged.
func (r *Resource) moveOwn(same schema.Schema) func(context.Context, resource.MoveStateRequest,
	*resource.MoveStateResponse) {
	from := "container_image"
	if r.short {
		from = "sandbox_container_image"
	}
	return func(ctx context.Context, req resource.MoveStateRequest, resp *resource.MoveStateResponse) {
		// A mirror may serve the provider under another host or namespace. SourceState is nil if the state does
		// not fit this schema.
		ours := strings.HasSuffix(req.SourceProviderAddress, "/sandbox")
		if req.SourceTypeName != from || req.SourceSchemaVersion > same.Version || !ours || req.SourceState == nil {
			return // Terraform reports an unsupported move
		}
		var m Model
		resp.Diagnostics.Append(req.SourceState.Get(ctx, &m)...)
		if req.SourceSchemaVersion == 0 && len(m.RegistryAuth.Elements()) == 0 { // as UpgradeState has it
			m.RegistryAuth = types.ListNull(m.RegistryAuth.ElementType(ctx))
		}
		resp.Diagnostics.Append(configured.Identify(ctx, resp.TargetIdentity, m.Name.ValueString())...)
		resp.Diagnostics.Append(resp.TargetState.Set(ctx, &m)...)
	}
}

// moveDockerImage takes over a docker_image of kreuzwerker/docker by its name and tag, as an import does: the read that
// follows finds the image on the engine.
func moveDockerImage(target schema.Schema) func(context.Context, resource.MoveStateRequest,
	*resource.MoveStateResponse) {
	return func(ctx context.Context, req resource.MoveStateRequest, resp *resource.MoveStateResponse) {
		theirs := strings.HasSuffix(req.SourceProviderAddress, "/kreuzwerker/docker")
		if req.SourceTypeName != "docker_image" || !theirs || req.SourceRawState == nil {
			return
		}
		var from struct {
			Name        string `json:"name"`
			KeepLocally bool   `json:"keep_locally"`
		}
		const failed = "Moving Image Failed"
		if err := json.Unmarshal(req.SourceRawState.JSON, &from); err != nil {
			resp.Diagnostics.AddError(failed, fmt.Sprintf("The state of the docker_image cannot be read: %v.", err))
			return
		}
		name, tag, err := image.Split(from.Name)
		if err != nil {
			resp.Diagnostics.AddError(failed, fmt.Sprintf("%s. Remove the moved block and import the image instead.", err))
			return
		}
		onDestroy := onDestroyUntag
		if from.KeepLocally {
			onDestroy = onDestroyKeep
		}
		resp.TargetState.Raw = nulls(ctx, target)
		for attribute, text := range map[string]string{"id": name + ":" + tag, "name": name, "on_destroy": onDestroy} {
			resp.Diagnostics.Append(resp.TargetState.SetAttribute(ctx, path.Root(attribute), types.StringValue(text))...)
		}
		resp.Diagnostics.Append(configured.Identify(ctx, resp.TargetIdentity, name)...)
	}
}

// nulls returns an object of a schema with only null values.
func nulls(ctx context.Context, s schema.Schema) tftypes.Value {
	kind, _ := s.Type().TerraformType(ctx).(tftypes.Object) // a schema is always an object
	values := make(map[string]tftypes.Value, len(kind.AttributeTypes))
	for name, t := range kind.AttributeTypes {
		values[name] = tftypes.NewValue(t, nil)
	}
	return tftypes.NewValue(kind, values)
}
