package environment

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// PostStart is a post_start block.
type PostStart struct {
	Command types.List     `tfsdk:"command"`
	Env     types.Map      `tfsdk:"env"`
	User    types.String   `tfsdk:"user"`
	Timeout duration.Value `tfsdk:"timeout"`
}

// Process is a process block.
type Process struct {
	Name    types.String `tfsdk:"name"`
	Command types.List   `tfsdk:"command"`
	Env     types.Map    `tfsdk:"env"`
	Cwd     types.String `tfsdk:"cwd"`
	User    types.String `tfsdk:"user"`
	Restart types.String `tfsdk:"restart"`
}

func postStartBlock() schema.ListNestedBlock {
	attributes := commandAttributes()
	attributes["timeout"] = durationAttribute("The command and all it started end then, and so does the lease. `1s` to `"+duration.New(sandbox.MaxPostStartTimeout).ValueString()+"`.",
		sandbox.DefaultExecTimeout)
	return schema.ListNestedBlock{
		MarkdownDescription: fmt.Sprintf("A command that is run once in each sandbox, after those before it and before its lease is ready; one that fails fails the lease. There may be %d, with %d bytes of arguments and variables in all. ",
			sandbox.MaxPostStart, sandbox.MaxPostStartBytes) + "Changed in place; sandboxes that already run are left alone.",
		NestedObject: schema.NestedBlockObject{Attributes: attributes},
	}
}

func processBlock() schema.ListNestedBlock {
	attributes := commandAttributes()
	attributes["name"] = schema.StringAttribute{
		MarkdownDescription: "Name of the process in its sandbox, unlike every other's: 1 to 63 characters of `a-z`, `0-9`, `.`, `_` and `-`, beginning with a letter or digit.",
		Required:            true,
	}
	attributes["cwd"] = schema.StringAttribute{
		MarkdownDescription: "Directory that it begins in, below `/workspace` or `/data`. Default: `/workspace`.",
		Optional:            true,
	}
	attributes["restart"] = choice("What becomes of it when it ends by itself: `no` or `always`. It starts again in any case when its sandbox was stopped meanwhile.", string(sandbox.RestartNo))
	return schema.ListNestedBlock{
		MarkdownDescription: fmt.Sprintf("A process that runs in every sandbox from the moment it is ready, for as long as the sandbox does. It keeps no sandbox awake and no lease alive. There may be %d. ", sandbox.MaxDeclaredProcesses) +
			"Changed in place, for the generations that follow.",
		NestedObject: schema.NestedBlockObject{Attributes: attributes},
	}
}

func commandAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"command": schema.ListAttribute{
			MarkdownDescription: "The program and its arguments; no shell is involved.",
			Required:            true,
			ElementType:         types.StringType,
		},
		"env": schema.MapAttribute{
			MarkdownDescription: "Environment variables beside those of the sandbox; never secrets. Default: none.",
			Optional:            true,
			ElementType:         types.StringType,
		},
		"user": schema.StringAttribute{
			MarkdownDescription: "`uid` or `uid:gid` in numbers. Default: the sandbox's user.",
			Optional:            true,
		},
	}
}

func expandPostStart(ctx context.Context, list types.List, diags *diag.Diagnostics) (commands []sandbox.PostStart) {
	for _, b := range expandBlocks[PostStart](ctx, list, diags) {
		commands = append(commands, sandbox.PostStart{
			Command: expandCommand(ctx, b.Command, diags), Env: expandMap(ctx, b.Env, diags), User: b.User.ValueString(), Timeout: orZero(b.Timeout),
		})
	}
	return commands
}

// expandProcesses stands in a valid name for each that is unknown.
func expandProcesses(ctx context.Context, list types.List, diags *diag.Diagnostics) (processes []sandbox.ProcessSpec) {
	for i, b := range expandBlocks[Process](ctx, list, diags) {
		processes = append(processes, sandbox.ProcessSpec{
			Name: orAssumed(b.Name, fmt.Sprintf("unknown-%d", i)), Command: expandCommand(ctx, b.Command, diags), Env: expandMap(ctx, b.Env, diags),
			Cwd: b.Cwd.ValueString(), User: b.User.ValueString(), Restart: sandbox.Restart(b.Restart.ValueString()),
		})
	}
	return processes
}

// expandCommand stands in a valid word for each that is unknown.
func expandCommand(ctx context.Context, list types.List, diags *diag.Diagnostics) []string {
	if list.IsUnknown() {
		return []string{"unknown"}
	}
	var command []string
	for _, word := range expandBlocks[types.String](ctx, list, diags) {
		command = append(command, orAssumed(word, "unknown"))
	}
	return command
}

// flattenCommands keeps the model's blocks when they say what the environment has.
func (m *Model) flattenCommands(ctx context.Context, spec sandbox.EnvironmentSpec, diags *diag.Diagnostics) {
	now := sandbox.EnvironmentSpec{PostStart: expandPostStart(ctx, m.PostStart, diags), Processes: expandProcesses(ctx, m.Processes, diags)}.WithDefaults()
	if !reflect.DeepEqual(now.PostStart, spec.PostStart) {
		var list []PostStart
		for _, c := range spec.PostStart {
			list = append(list, PostStart{flattenCommand(ctx, c.Command, diags), flattenMap(ctx, c.Env, types.MapNull(types.StringType), diags), value.String(c.User), duration.New(c.Timeout)})
		}
		m.PostStart = blocksOf(ctx, postStartBlock(), list, diags)
	}
	if !reflect.DeepEqual(now.Processes, spec.Processes) {
		var list []Process
		for _, p := range spec.Processes {
			list = append(list, Process{
				types.StringValue(p.Name), flattenCommand(ctx, p.Command, diags), flattenMap(ctx, p.Env, types.MapNull(types.StringType), diags),
				value.String(p.Cwd), value.String(p.User), types.StringValue(string(cmp.Or(p.Restart, sandbox.RestartNo))),
			})
		}
		m.Processes = blocksOf(ctx, processBlock(), list, diags)
	}
}

func flattenCommand(ctx context.Context, command []string, diags *diag.Diagnostics) types.List {
	list, d := types.ListValueFrom(ctx, types.StringType, command)
	diags.Append(d...)
	return list
}
