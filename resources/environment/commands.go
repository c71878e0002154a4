package environment

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// PostStart is an element of post_start.
type PostStart struct {
	Command types.List     `tfsdk:"command"`
	Env     types.Map      `tfsdk:"env"`
	User    types.String   `tfsdk:"user"`
	Timeout duration.Value `tfsdk:"timeout"`
}

// Process is an element of process.
type Process struct {
	Name     types.String `tfsdk:"name"`
	Command  types.List   `tfsdk:"command"`
	Env      types.Map    `tfsdk:"env"`
	Cwd      types.String `tfsdk:"cwd"`
	User     types.String `tfsdk:"user"`
	Restart  types.String `tfsdk:"restart"`
	Endpoint types.Object `tfsdk:"endpoint"`
}

// Endpoint is endpoint of a process.
type Endpoint struct {
	Port        types.Int64  `tfsdk:"port"`
	Description types.String `tfsdk:"description"`
}

func postStartAttribute() schema.ListNestedAttribute {
	attributes := commandAttributes()
	attributes["timeout"] = durationAttribute("Time limit of the command. When it is over, the command, everything it "+
		"started, and the lease end. `1s` to `"+
		duration.New(sandbox.MaxPostStartTimeout).ValueString()+"`.",
		sandbox.DefaultExecTimeout)
	return schema.ListNestedAttribute{
		Optional:   true,
		Validators: []validator.List{given.NoNulls{}},
		MarkdownDescription: fmt.Sprintf("Commands that run once in each sandbox, in order, before its lease is ready. "+
			"One that fails fails the lease. At most %d, with %d bytes of arguments and variables in all. ",
			sandbox.MaxPostStart, sandbox.MaxPostStartBytes) + "Changed in place; not for running sandboxes. Default: none.",
		NestedObject: schema.NestedAttributeObject{Attributes: attributes},
	}
}

func processAttribute() schema.ListNestedAttribute {
	attributes := commandAttributes()
	attributes["name"] = schema.StringAttribute{
		MarkdownDescription: "Name of the process, unique in the sandbox: 1 to 63 characters of `a-z`, `0-9`, `.`, `_` " +
			"and `-`, beginning with a letter or digit.",
		Required: true,
	}
	attributes["cwd"] = schema.StringAttribute{
		MarkdownDescription: "Working directory, below `/workspace` or `/data`. Default: `/workspace`.",
		Optional:            true,
		Validators:          []validator.String{given.Text{}},
	}
	attributes["restart"] = notEmpty(choice("What happens when the process exits: `no` or `always`. It always starts "+
		"again after its sandbox was stopped.", string(sandbox.RestartNo)))
	attributes["endpoint"] = endpointAttribute()
	return schema.ListNestedAttribute{
		Optional:   true,
		Validators: []validator.List{given.NoNulls{}},
		MarkdownDescription: fmt.Sprintf("Processes that run in every sandbox while it runs. They keep no sandbox awake "+
			"and no lease alive. At most %d. ", sandbox.MaxDeclaredProcesses) +
			"Changed in place, for new generations. Default: none.",
		NestedObject: schema.NestedAttributeObject{Attributes: attributes},
	}
}

func endpointAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Where the process serves HTTP or WebSockets. It is then an agent: the reconciler lists it, " +
			"and passes requests on to it; see the [guide on agents](../guides/agents.md). Default: none.",
		Optional: true,
		Attributes: map[string]schema.Attribute{
			"port": schema.Int64Attribute{
				MarkdownDescription: "TCP port on the sandbox's `127.0.0.1`, 1 to 65535.",
				Required:            true,
				Validators:          []validator.Int64{int64validator.Between(1, 65535)},
			},
			"description": schema.StringAttribute{
				MarkdownDescription: fmt.Sprintf("What the agent does, at most %d bytes. Default: empty.",
					sandbox.MaxEndpointDescription),
				Optional:   true,
				Validators: []validator.String{given.Text{}},
			},
		},
	}
}

func commandAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"command": schema.ListAttribute{
			MarkdownDescription: "Program and arguments, at least one element; no shell is involved.",
			Required:            true,
			ElementType:         types.StringType,
			Validators:          []validator.List{given.NoNulls{}},
		},
		"env": schema.MapAttribute{
			MarkdownDescription: "Additional environment variables; not for secrets. Default: none.",
			Optional:            true,
			ElementType:         types.StringType,
			Validators:          []validator.Map{given.NoNulls{}},
		},
		"user": schema.StringAttribute{
			MarkdownDescription: "Numeric `uid` or `uid:gid`. Default: the sandbox's user.",
			Optional:            true,
			Validators:          []validator.String{given.Text{}},
		},
	}
}

func expandPostStart(ctx context.Context, list types.List, diags *diag.Diagnostics) (commands []sandbox.PostStart) {
	for _, b := range collection.Elements[PostStart](ctx, list, diags) {
		commands = append(commands, sandbox.PostStart{
			Command: expandCommand(ctx, b.Command, diags),
			Env:     collection.TextMap(ctx, b.Env, diags),
			User:    b.User.ValueString(),
			Timeout: orZero(b.Timeout),
		})
	}
	return commands
}

// expandProcesses replaces each unknown name with a valid one.
func expandProcesses(ctx context.Context, list types.List, diags *diag.Diagnostics) (processes []sandbox.ProcessSpec) {
	for i, b := range collection.Elements[Process](ctx, list, diags) {
		processes = append(processes, sandbox.ProcessSpec{
			Name:     orAssumed(b.Name, fmt.Sprintf("unknown-%d", i)),
			Command:  expandCommand(ctx, b.Command, diags),
			Env:      collection.TextMap(ctx, b.Env, diags),
			Cwd:      b.Cwd.ValueString(),
			User:     b.User.ValueString(),
			Restart:  sandbox.Restart(b.Restart.ValueString()),
			Endpoint: expandEndpoint(ctx, b.Endpoint, diags),
		})
	}
	return processes
}

// expandEndpoint replaces an unknown port with a valid one.
func expandEndpoint(ctx context.Context, of types.Object, diags *diag.Diagnostics) *sandbox.Endpoint {
	if of.IsNull() || of.IsUnknown() {
		return nil
	}
	var e Endpoint
	diags.Append(of.As(ctx, &e, basetypes.ObjectAsOptions{})...)
	endpoint := &sandbox.Endpoint{Port: int(e.Port.ValueInt64()), Description: e.Description.ValueString()}
	if e.Port.IsUnknown() {
		endpoint.Port = 1
	}
	return endpoint
}

func flattenEndpoint(ctx context.Context, e *sandbox.Endpoint, diags *diag.Diagnostics) types.Object {
	of := collection.Types(endpointAttribute().Attributes)
	if e == nil {
		return types.ObjectNull(of)
	}
	object, d := types.ObjectValueFrom(ctx, of, Endpoint{types.Int64Value(int64(e.Port)), value.String(e.Description)})
	diags.Append(d...)
	return object
}

// expandCommand replaces each unknown word with a valid one.
func expandCommand(ctx context.Context, list types.List, diags *diag.Diagnostics) []string {
	if list.IsUnknown() {
		return []string{"unknown"}
	}
	var command []string
	for _, word := range collection.Elements[types.String](ctx, list, diags) {
		command = append(command, orAssumed(word, "unknown"))
	}
	return command
}

// flattenCommands keeps the model's lists if they match the environment.
func (m *Model) flattenCommands(ctx context.Context, spec sandbox.EnvironmentSpec, diags *diag.Diagnostics) {
	now := sandbox.EnvironmentSpec{
		PostStart: expandPostStart(ctx, m.PostStart, diags),
		Processes: expandProcesses(ctx, m.Processes, diags),
	}.WithDefaults()
	if !reflect.DeepEqual(now.PostStart, spec.PostStart) {
		var list []PostStart
		for _, c := range spec.PostStart {
			list = append(list, PostStart{
				flattenCommand(ctx, c.Command, diags), collection.TextMapLike(ctx, c.Env, types.MapNull(types.StringType), diags),
				value.String(c.User), duration.New(c.Timeout),
			})
		}
		m.PostStart = collection.List(ctx, postStartAttribute(), list, diags)
	}
	if !reflect.DeepEqual(now.Processes, spec.Processes) {
		var list []Process
		for _, p := range spec.Processes {
			list = append(list, Process{
				types.StringValue(p.Name), flattenCommand(ctx, p.Command, diags),
				collection.TextMapLike(ctx, p.Env, types.MapNull(types.StringType), diags),
				value.String(p.Cwd), value.String(p.User), types.StringValue(string(cmp.Or(p.Restart, sandbox.RestartNo))),
				flattenEndpoint(ctx, p.Endpoint, diags),
			})
		}
		m.Processes = collection.List(ctx, processAttribute(), list, diags)
	}
}

func flattenCommand(ctx context.Context, command []string, diags *diag.Diagnostics) types.List {
	list, d := types.ListValueFrom(ctx, types.StringType, command)
	diags.Append(d...)
	return list
}
