package environment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/spread"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ValidateConfig applies the domain's rules to the known values of the configuration.
func (r *Resource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest,
	resp *resource.ValidateConfigResponse) {
	var config Model
	resp.Diagnostics.Append(spread.Config(req.Config).Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(validate(ctx, config)...)
}

// validate checks the known values. It assumes that unknown values are valid.
func validate(ctx context.Context, m Model) diag.Diagnostics {
	put, diags := request(ctx, m)
	if diags.HasError() {
		return diags
	}
	raw := put.EnvironmentSpec
	put.EnvironmentSpec = raw.WithDefaults()
	diags.Append(m.asWritten(ctx, raw, &put.EnvironmentSpec)...)
	if m.InstanceType.IsNull() && (m.Resources == nil || m.Resources.MemoryMB.IsNull()) { // only the plan knows it
		put.Confinement = ofAnyMemory(put.Confinement)
	}
	values, d := secretValues(ctx, m.Secrets, m.Secrets, types.MapNull(types.StringType))
	diags.Append(d...)
	put.SecretValues = values
	if diags.HasError() {
		return diags
	}
	if err := put.Validate(); err != nil {
		diags.Append(diagnose.Failed("Invalid Environment", restate(err, &m), place)...)
	}
	return diags
}

// request returns the request to put the environment, without owner and secret values. It assumes that unknown values
// are valid.
func request(ctx context.Context, m Model) (sandbox.PutEnvironment, diag.Diagnostics) {
	spec, diags := expand(ctx, m)
	put := sandbox.PutEnvironment{ID: m.Name.ValueString(), EnvironmentSpec: spec}
	if m.Name.IsUnknown() {
		put.ID = "unknown"
	}
	if m.Image.IsUnknown() {
		put.Image = "unknown"
	}
	if m.Network != nil && m.Network.Mode.IsUnknown() {
		put.Network = sandbox.NetworkRestricted // the other network settings need it
	}
	if m.Secrets.IsUnknown() {
		put.Secrets = put.Credentials()
		if w := put.Workspace; w != nil && w.Git != nil && w.Git.Credential != "" {
			put.Secrets = append(put.Secrets, w.Git.Credential)
		}
		for _, a := range put.Archives {
			if a.Credential != "" {
				put.Secrets = append(put.Secrets, a.Credential)
			}
		}
		for _, c := range put.Companions {
			for _, secret := range c.Secrets {
				if !slices.Contains(put.Secrets, secret) {
					put.Secrets = append(put.Secrets, secret)
				}
			}
		}
	}
	if m.Network != nil && put.Egress != nil && (m.Network.Allow.IsUnknown() ||
		slices.ContainsFunc(m.Network.Allow.Elements(), attr.Value.IsUnknown)) {
		for host := range put.Egress.Credentials { // one of the unknown values may allow it, on any port
			put.Egress.Allow = append(slices.DeleteFunc(put.Egress.Allow, func(r sandbox.EgressRule) bool {
				return strings.EqualFold(r.Host, host)
			}), sandbox.EgressRule{Host: host})
		}
	}
	return put, diags
}

// asWritten restores the values that the configuration sets, in a specification whose defaults are filled in. The
// domain reads zero as omitted, but a zero in the configuration must be checked as it is.
func (m *Model) asWritten(ctx context.Context, raw sandbox.EnvironmentSpec,
	filled *sandbox.EnvironmentSpec) (diags diag.Diagnostics) {
	asWritten(&filled.Type, raw.Type, m.Type)
	asWritten(&filled.Backend, raw.Backend, m.Backend)
	asWritten(&filled.ImagePull, raw.ImagePull, m.ImagePull)
	asWritten(&filled.TTL, raw.TTL, m.TTL)
	asWritten(&filled.MaxLifetime, raw.MaxLifetime, m.MaxLifetime)
	asWritten(&filled.CommandTimeout, raw.CommandTimeout, m.CommandTimeout)
	asWritten(&filled.SleepMode, raw.SleepMode, m.SleepMode)
	if n := m.Network; n != nil {
		asWritten(&filled.Network, raw.Network, n.Mode)
	}
	if r := m.Resources; r != nil {
		size := &filled.Resources
		asWritten(&size.MemoryMB, raw.Resources.MemoryMB, r.MemoryMB)
		asWritten(&size.CPUMillis, raw.Resources.CPUMillis, r.CPUs)
		asWritten(&size.PIDs, raw.Resources.PIDs, r.PIDs)
		asWritten(&size.DiskMB, raw.Resources.DiskMB, r.DiskMB)
	}
	if p := m.WarmPool; raw.WarmPool != nil {
		asWritten(&filled.WarmPool.Mode, raw.WarmPool.Mode, p.Mode)
		asWritten(&filled.WarmPool.TTL, raw.WarmPool.TTL, p.TTL)
	}
	if c := m.Confinement; c != nil {
		asWritten(&filled.Confinement.TmpMB, raw.Confinement.TmpMB, c.TmpMB)
		asWritten(&filled.Confinement.RunMB, raw.Confinement.RunMB, c.RunMB)
		asWritten(&filled.Confinement.OpenFiles, raw.Confinement.OpenFiles, c.OpenFiles)
		asWritten(&filled.Confinement.DiskLimit, raw.Confinement.DiskLimit, c.DiskLimit)
	}
	if s := m.Snapshot; s != nil {
		asWritten(&filled.Snapshot.Scope, raw.Snapshot.Scope, s.Scope)
		asWritten(&filled.Snapshot.OnPersistFailure, raw.Snapshot.OnPersistFailure, s.OnPersistFailure)
		asWritten(&filled.Snapshot.RetryFor, raw.Snapshot.RetryFor, s.RetryFor)
		asWritten(&filled.Snapshot.SizeLimitMB, raw.Snapshot.SizeLimitMB, s.SizeLimitMB)
	}
	m.companionsAsWritten(ctx, raw.Companions, filled.Companions, &diags)
	for i, p := range collection.Elements[PostStart](ctx, m.PostStart, &diags) {
		asWritten(&filled.PostStart[i].Timeout, raw.PostStart[i].Timeout, p.Timeout)
	}
	return diags
}

func asWritten[T any](at *T, is T, written attr.Value) {
	if !written.IsNull() && !written.IsUnknown() {
		*at = is
	}
}

// restate puts problems in the terms of the configuration. It counts CPUs in cores, the domain in thousandths of a
// core, and its network is the domain's egress.
func restate(err error, m *Model) error {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return err
	}
	restated := *e
	restated.Fields = slices.Clone(e.Fields)
	for i := range restated.Fields {
		f := &restated.Fields[i]
		f.Problem = strings.ReplaceAll(f.Problem, "egress.", "network.")
		f.Problem = strings.ReplaceAll(f.Problem, `network "`, `network.mode "`)
		if f.Name == "egress" {
			f.Name = m.Network.egress()
		}
		if p := m.WarmPool; p != nil && p.Size.IsUnknown() {
			f.Problem = strings.Replace(f.Problem, "warm_pool.size (0)", "warm_pool.size", 1)
		}
		if size := m.Resources; size != nil && e.Code == sandbox.Invalid && f.Name == "resources.cpu_millis" {
			f.Problem = fmt.Sprintf("must be between %g and %g cores, not %g",
				cores(sandbox.MinCPUMillis), cores(sandbox.MaxCPUMillis), size.CPUs.ValueFloat64())
		}
	}
	return &restated
}

// place maps a field of the domain to its path and name in the configuration.
func place(field string) (path.Path, string, bool) {
	head, rest, _ := strings.Cut(field, ".")
	switch {
	case field == "id":
		return path.Root("name"), "name", true
	case field == "network":
		return path.Root("network").AtName("mode"), "The network mode", true
	case field == "egress":
		return path.Root("network"), "network", true
	case head == "egress" && !strings.ContainsAny(rest, ".["):
		at := path.Root("network").AtName(rest)
		return at, at.String(), true
	case strings.HasPrefix(field, "egress.allow") && strings.Contains(field, "].ports"):
		return path.Root("network").AtName("allow"), "The port of every allowed host", true
	case strings.HasPrefix(field, "egress.allow"):
		return path.Root("network").AtName("allow"), "Every allowed host", true
	case strings.HasPrefix(field, "egress.credentials["):
		at := locateCredential(strings.TrimPrefix(field, "egress.credentials["))
		return at, at.String(), true
	case strings.HasPrefix(field, "egress.private_cidrs"):
		return path.Root("network").AtName("private_cidrs"), "Every private range", true
	case field == "resources.cpu_millis":
		return path.Root("resources").AtName("cpus"), "cpus", true
	case head == "resources":
		return path.Root("resources").AtName(rest), rest, true
	case head == "companions":
		at := locateCompanion(rest)
		return at, at.String(), true
	case head == "llm":
		at := locateLLM(rest)
		return at, at.String(), true
	case head == "workspace":
		at := locateWorkspace(rest)
		return at, at.String(), true
	case head == "labels" && rest != "":
		return path.Root(head).AtMapKey(rest), "The label " + rest, true
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
	case strings.HasPrefix(field, "expiry_conditions["):
		return path.Root("expiry_conditions"), "Every expiry condition", true
	default:
		at := locate(head, rest)
		return at, at.String(), true
	}
}

// locateCredential finds "github.com"].secret in credentials of network.
func locateCredential(rest string) path.Path {
	quoted, field, _ := strings.Cut(rest, "]")
	at := path.Root("network").AtName("credentials")
	if host, err := strconv.Unquote(quoted); err == nil {
		at = at.AtMapKey(host)
	}
	if field = strings.TrimPrefix(field, "."); field != "" {
		at = at.AtName(field)
	}
	return at
}

// listNames maps the domain's name of a list to the configuration's name.
var listNames = map[string]string{"mounts": "mount", "copies": "copy", "archives": "archive", "processes": "process"}

// locate finds a field that has the domain's name in the configuration, or that is in an element of a list:
// mounts[1].source is mount[1].source.
func locate(head, rest string) path.Path {
	name, index, listed := strings.Cut(strings.TrimSuffix(head, "]"), "[")
	if list, ok := listNames[name]; ok {
		name = list
	}
	at := path.Root(name)
	switch name {
	case "env_passthrough", "env_blocked", "builtin_tools": // sets: the problem names the element
		return at
	}
	if i, err := strconv.Atoi(index); listed && err == nil {
		at = at.AtListIndex(i)
	}
	if rest == "" {
		return at
	}
	attribute, within, deep := strings.Cut(rest, ".")
	at = at.AtName(attribute)
	switch {
	case deep && attribute == "env":
		at = at.AtMapKey(within)
	case deep:
		at = at.AtName(within)
	}
	return at
}
