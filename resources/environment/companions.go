package environment

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
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

// Companion is an element of companions. The map key is its name.
type Companion struct {
	Image       types.String `tfsdk:"image"`
	Command     types.List   `tfsdk:"command"`
	Env         types.Map    `tfsdk:"env"`
	Secrets     types.Set    `tfsdk:"secrets"`
	Resources   types.Object `tfsdk:"resources"`
	HealthCheck types.Object `tfsdk:"health_check"`
	Restart     types.String `tfsdk:"restart"`
}

// HealthCheck is the health_check of a companion.
type HealthCheck struct {
	Command     types.List     `tfsdk:"command"`
	Port        types.Int64    `tfsdk:"port"`
	Path        types.String   `tfsdk:"path"`
	Interval    duration.Value `tfsdk:"interval"`
	Timeout     duration.Value `tfsdk:"timeout"`
	StartPeriod duration.Value `tfsdk:"start_period"`
}

func companionsAttribute() schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		Optional:   true,
		Validators: []validator.Map{given.NoNulls{}},
		MarkdownDescription: fmt.Sprintf("Containers that live with each sandbox and share its network, such as a "+
			"database on `127.0.0.1`, by name: 1 to 30 lower-case letters, digits and `-`. They are ready before the lease "+
			"is, and sleep, wake and end with the sandbox. Their limits add to its billed size. At most %d. Docker only. "+
			"Changed in place, for new generations. See the [guide on the lifecycle](../guides/lifecycle.md#companions). "+
			"Default: none.", sandbox.MaxCompanions),
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"image": schema.StringAttribute{
				MarkdownDescription: "Image on the engine, such as the `reference` of a `sandbox_container_image`.",
				Required:            true,
			},
			"command": schema.ListAttribute{
				MarkdownDescription: "Program and arguments; no shell is involved. Default: the entrypoint and command of the " +
					"image.",
				Optional:    true,
				ElementType: types.StringType,
				Validators:  []validator.List{given.NoNulls{}},
			},
			"env": schema.MapAttribute{
				MarkdownDescription: "Environment variables; not for secrets. Default: none.",
				Optional:            true,
				ElementType:         types.StringType,
				Validators:          []validator.Map{given.NoNulls{}},
			},
			"secrets": schema.SetAttribute{
				MarkdownDescription: "Names in `secrets` of the environment that the companion gets as files in `/run/secrets`. " +
					"Default: none.",
				Optional:    true,
				ElementType: types.StringType,
				Validators:  []validator.Set{given.NoNulls{}},
			},
			"resources":    companionResourcesAttribute(),
			"health_check": healthCheckAttribute(),
			"restart": schema.StringAttribute{
				MarkdownDescription: fmt.Sprintf("Whether the companion starts again: `never` or `on_failure`, which does so "+
					"after its program ended with an exit code other than 0, and when it becomes unhealthy, at most %d times. "+
					"Default: `never`.", sandbox.MaxCompanionRestarts),
				Optional:   true,
				Validators: []validator.String{given.Text{}},
			},
		}},
	}
}

func companionResourcesAttribute() schema.SingleNestedAttribute {
	usual := sandbox.DefaultCompanionResources
	number := func(description string, low, high, def int64) schema.Int64Attribute {
		return schema.Int64Attribute{
			MarkdownDescription: fmt.Sprintf("%s, %d to %d. Default: `%d`.", description, low, high, def),
			Optional:            true,
			Validators:          []validator.Int64{int64validator.Between(low, high)},
		}
	}
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Limits of the companion. Default: the attributes' defaults.",
		Optional:            true,
		Attributes: map[string]schema.Attribute{
			"memory_mb":  number("Memory limit in MiB", sandbox.MinMemoryMB, sandbox.MaxMemoryMB, usual.MemoryMB),
			"pids_limit": number("Limit of processes and threads", sandbox.MinPIDs, sandbox.MaxPIDs, usual.PIDs),
			"disk_mb":    number("Disk size in MB, which is billed", sandbox.MinDiskMB, sandbox.MaxDiskMB, usual.DiskMB),
			"cpus": schema.Float64Attribute{
				MarkdownDescription: "CPU limit in cores, 0.05 to 16, in steps of 0.001. Default: `0.5`.",
				Optional:            true,
			},
		},
	}
}

func healthCheckAttribute() schema.SingleNestedAttribute {
	span := func(description string, def sandbox.Duration) schema.StringAttribute {
		return schema.StringAttribute{
			MarkdownDescription: description + " Default: `" + duration.New(def).ValueString() + "`.",
			Optional:            true,
			CustomType:          duration.Type{},
		}
	}
	return schema.SingleNestedAttribute{
		MarkdownDescription: "When the companion is ready, and whether it is healthy later: by `command` or by `port`. " +
			"Default: it is ready once its program has run for half a second, and not checked later.",
		Optional: true,
		Attributes: map[string]schema.Attribute{
			"command": schema.ListAttribute{
				MarkdownDescription: "Program in the companion that ends with exit code 0 once it is healthy, and its arguments; " +
					"no shell is involved. Default: none.",
				Optional:    true,
				ElementType: types.StringType,
				Validators:  []validator.List{given.NoNulls{}},
			},
			"port": schema.Int64Attribute{
				MarkdownDescription: "TCP port on `127.0.0.1` that accepts connections once it is healthy, 1 to 65535. " +
					"Default: none.",
				Optional:   true,
				Validators: []validator.Int64{int64validator.Between(1, 65535)},
			},
			"path": schema.StringAttribute{
				MarkdownDescription: "Path that must answer a GET on `port` with a status from 200 to 399. Default: a " +
					"connection is enough.",
				Optional:   true,
				Validators: []validator.String{given.Text{}},
			},
			"interval": span("Pause between two checks, `100ms` to `10m`. A companion that is ready is checked at most every "+
				"`10s`.", sandbox.DefaultHealthInterval),
			"timeout": span("Limit of one check, `100ms` to `10m`, and at most `"+
				duration.New(sandbox.MaxCompanionCheck).ValueString()+"` once the companion is ready.",
				sandbox.DefaultHealthTimeout),
			"start_period": span("The companion failed if it is not healthy this long after its start. `1s` to `"+
				duration.New(sandbox.MaxStartPeriod).ValueString()+"`.", sandbox.DefaultStartPeriod),
		},
	}
}

// expandCompanions returns the known companions. It assumes that unknown values are valid.
func (m *Model) expandCompanions(ctx context.Context, diags *diag.Diagnostics) sandbox.Companions {
	if len(m.Companions.Elements()) == 0 {
		return nil
	}
	all := make(sandbox.Companions)
	for name, c := range collection.Objects[Companion](ctx, m.Companions, diags) {
		companion := sandbox.Companion{
			Image:       orAssumed(c.Image, "unknown"),
			Command:     expandCommand(ctx, c.Command, diags),
			Env:         collection.TextMap(ctx, c.Env, diags),
			Resources:   expandCompanionResources(ctx, c.Resources, diags),
			HealthCheck: expandHealthCheck(ctx, c.HealthCheck, diags),
			Restart:     sandbox.CompanionRestart(orAssumed(c.Restart, "")),
		}
		for _, secret := range collection.Strings(ctx, c.Secrets, diags) {
			if !secret.IsUnknown() {
				companion.Secrets = append(companion.Secrets, secret.ValueString())
			}
		}
		all[name] = companion
	}
	return all
}

// companionsAsWritten restores the values that the configuration sets, in companions whose defaults are filled in.
func (m *Model) companionsAsWritten(ctx context.Context, raw, filled sandbox.Companions, diags *diag.Diagnostics) {
	for name, c := range collection.Objects[Companion](ctx, m.Companions, diags) {
		var r Size
		var h HealthCheck
		is, was := filled[name], raw[name]
		if !c.Resources.IsNull() && !c.Resources.IsUnknown() {
			diags.Append(c.Resources.As(ctx, &r, basetypes.ObjectAsOptions{})...)
			asWritten(&is.Resources.CPUMillis, was.Resources.CPUMillis, r.CPUs)
		}
		if !c.HealthCheck.IsNull() && !c.HealthCheck.IsUnknown() {
			diags.Append(c.HealthCheck.As(ctx, &h, basetypes.ObjectAsOptions{})...)
			asWritten(&is.HealthCheck.Interval, was.HealthCheck.Interval, h.Interval)
			asWritten(&is.HealthCheck.Timeout, was.HealthCheck.Timeout, h.Timeout)
			asWritten(&is.HealthCheck.StartPeriod, was.HealthCheck.StartPeriod, h.StartPeriod)
			if !is.HealthCheck.IsSet() { // the domain would take an empty one for none
				is.HealthCheck.Interval = sandbox.DefaultHealthInterval
			}
		}
		filled[name] = is
	}
}

// companionSizesKnown reports whether the sizes of all companions are known.
func (m *Model) companionSizesKnown(ctx context.Context) bool {
	if m.Companions.IsUnknown() {
		return false
	}
	for _, c := range m.Companions.Elements() {
		companion, ok := c.(types.Object)
		if !ok || companion.IsUnknown() {
			return false
		}
		size, err := companion.Attributes()["resources"].ToTerraformValue(ctx)
		if err != nil || !size.IsFullyKnown() {
			return false
		}
	}
	return true
}

func expandCompanionResources(ctx context.Context, of types.Object, diags *diag.Diagnostics) sandbox.Resources {
	if of.IsNull() || of.IsUnknown() {
		return sandbox.Resources{}
	}
	var r Size
	diags.Append(of.As(ctx, &r, basetypes.ObjectAsOptions{})...)
	return sandbox.Resources{MemoryMB: r.MemoryMB.ValueInt64(), CPUMillis: millis(r.CPUs.ValueFloat64()),
		PIDs: r.PIDs.ValueInt64(), DiskMB: r.DiskMB.ValueInt64()}
}

func expandHealthCheck(ctx context.Context, of types.Object, diags *diag.Diagnostics) sandbox.CompanionHealthCheck {
	if of.IsNull() || of.IsUnknown() {
		return sandbox.CompanionHealthCheck{}
	}
	var h HealthCheck
	diags.Append(of.As(ctx, &h, basetypes.ObjectAsOptions{})...)
	check := sandbox.CompanionHealthCheck{
		Command: expandCommand(ctx, h.Command, diags), Port: int(h.Port.ValueInt64()), Path: h.Path.ValueString(),
		Interval: orZero(h.Interval), Timeout: orZero(h.Timeout), StartPeriod: orZero(h.StartPeriod),
	}
	switch { // they exclude each other: an unknown one is null if the other is set
	case h.Port.IsUnknown() && (h.Command.IsNull() || h.Command.IsUnknown()):
		check.Command, check.Port = nil, 1
	case h.Command.IsUnknown() && !h.Port.IsNull():
		check.Command = nil
	}
	return check
}

// flattenCompanions keeps the model's companions if they match the environment.
func (m *Model) flattenCompanions(ctx context.Context, spec sandbox.EnvironmentSpec, diags *diag.Diagnostics) {
	now := sandbox.EnvironmentSpec{Companions: m.expandCompanions(ctx, diags)}.WithDefaults()
	if !m.Companions.IsUnknown() && now.Companions.Equal(spec.Companions) {
		return
	}
	companions := make(map[string]Companion, len(spec.Companions))
	for name, c := range spec.Companions {
		companions[name] = flattenCompanion(ctx, c, diags)
	}
	m.Companions = collection.Map(ctx, companionsAttribute(), companions, diags)
}

// flattenCompanion omits values that equal their defaults.
func flattenCompanion(ctx context.Context, c sandbox.Companion, diags *diag.Diagnostics) Companion {
	usual := sandbox.Companion{HealthCheck: sandbox.CompanionHealthCheck{Command: c.HealthCheck.Command,
		Port: c.HealthCheck.Port}}.WithDefaults()
	if c.Restart == usual.Restart {
		c.Restart = ""
	}
	of := Companion{
		Image: value.String(c.Image), Command: collection.Texts(ctx, c.Command, diags),
		Env:         collection.TextMapLike(ctx, c.Env, types.MapNull(types.StringType), diags),
		Secrets:     collection.SetLike(ctx, c.Secrets, types.SetNull(types.StringType), diags),
		Restart:     value.String(c.Restart),
		Resources:   types.ObjectNull(collection.Types(companionResourcesAttribute().Attributes)),
		HealthCheck: types.ObjectNull(collection.Types(healthCheckAttribute().Attributes)),
	}
	if c.Resources != usual.Resources {
		size := Size{
			MemoryMB: unlessInt64(c.Resources.MemoryMB, usual.Resources.MemoryMB), CPUs: types.Float64Null(),
			PIDs:   unlessInt64(c.Resources.PIDs, usual.Resources.PIDs),
			DiskMB: unlessInt64(c.Resources.DiskMB, usual.Resources.DiskMB),
		}
		if c.Resources.CPUMillis != usual.Resources.CPUMillis {
			size.CPUs = types.Float64Value(cores(c.Resources.CPUMillis))
		}
		object, d := types.ObjectValueFrom(ctx, collection.Types(companionResourcesAttribute().Attributes), size)
		diags.Append(d...)
		of.Resources = object
	}
	if h := c.HealthCheck; h.IsSet() || !reflect.DeepEqual(h, usual.HealthCheck) {
		check := HealthCheck{
			Command: collection.Texts(ctx, h.Command, diags), Port: unlessInt64(int64(h.Port), 0), Path: value.String(h.Path),
			Interval: unlessSpan(h.Interval, usual.HealthCheck.Interval),
			Timeout:  unlessSpan(h.Timeout, usual.HealthCheck.Timeout), StartPeriod: unlessSpan(h.StartPeriod,
				usual.HealthCheck.StartPeriod),
		}
		object, d := types.ObjectValueFrom(ctx, collection.Types(healthCheckAttribute().Attributes), check)
		diags.Append(d...)
		of.HealthCheck = object
	}
	return of
}

// unlessSpan returns a duration, or null if it is the usual one.
func unlessSpan(d, usual sandbox.Duration) duration.Value {
	if d == usual {
		return duration.FromPointer(nil)
	}
	return duration.New(d)
}

// locateCompanion finds a field below companions: companions.db.resources.cpu_millis, companions.db.secrets[0].
func locateCompanion(rest string) path.Path {
	at := path.Root("companions")
	name, rest, _ := strings.Cut(rest, ".")
	if name == "" {
		return at
	}
	at = at.AtMapKey(name)
	for part := range strings.SplitSeq(rest, ".") {
		part, _, _ = strings.Cut(part, "[")
		if part == "cpu_millis" {
			part = "cpus"
		}
		if part != "" {
			at = at.AtName(part)
		}
		if part == "env" { // a variable's name follows
			break
		}
	}
	return at
}
