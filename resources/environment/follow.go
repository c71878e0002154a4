package environment

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxNamed limits how many leases a warning names.
const maxNamed = 20

// planKept warns which attributes change although living leases keep the old values, and names these leases. It warns
// each time that Terraform plans the change, so twice at an apply.
func (r *Resource) planKept(ctx context.Context, planned tftypes.Value, plan, state *Model) diag.Diagnostics {
	if state == nil || r.Provider == nil || !plan.Name.Equal(state.Name) || !plan.Backend.Equal(state.Backend) {
		return nil
	}
	was, diags := expand(ctx, *state)
	is, d := expand(ctx, *plan)
	diags.Append(d...)
	if diags.HasError() {
		return diags
	}
	was, is = was.WithDefaults(), is.Keeping(was).WithDefaults()
	changed := kept(was, is)
	if plan.Image.IsUnknown() && !slices.Contains(changed, "image") {
		changed = append([]string{"image"}, changed...)
	}
	if len(changed) == 0 {
		return nil
	}
	id, at := state.ID.ValueString(), path.Root(strings.Split(changed[0], ".")[0])
	living, err := r.living(ctx, state)
	if err != nil {
		diags.AddAttributeWarning(at, fmt.Sprintf("Leases Of Environment %s Are Not Known", id), fmt.Sprintf(
			"%s of environment %s change, and which live leases keep theirs could not be read: %s.",
			listed(planned, changed), id, err))
		return diags
	}
	if rolled := r.rolledOut(was, changed); len(rolled) > 0 {
		if names := withoutChange(living, is, rolled); len(names) > 0 {
			diags.AddAttributeWarning(at, fmt.Sprintf("Cloudflare Replaces Sandboxes Of Environment %s", id), fmt.Sprintf(
				"These attributes of environment %s change: %s. With the scheduling policy default, a sandbox that starts from "+
					"now on has the change, and Cloudflare replaces one that runs as soon as it has run for 7 days without a "+
					"sleep. A replaced sandbox ends the command that it runs and loses its disk but for /data. To replace none, "+
					"apply once these leases have ended or sleep:\n\n%s", id, listed(planned, rolled), strings.Join(names, "\n")))
		}
		changed = slices.DeleteFunc(changed, func(name string) bool { return slices.Contains(rolled, name) })
	}
	if names := withoutChange(living, is, changed); len(names) > 0 {
		diags.AddAttributeWarning(at, fmt.Sprintf("Leases Of Environment %s Keep What They Began With", id), fmt.Sprintf(
			"These attributes of environment %s change: %s. These leases run on and keep what they began with. Each gets the "+
				"change with its next generation, once it has ended and is leased again, for example by terraform apply "+
				"-replace:\n\n%s", id, listed(planned, changed), strings.Join(names, "\n")))
	}
	return diags
}

// listed lists attributes, and says which may turn out not to change.
func listed(planned tftypes.Value, names []string) string {
	var all []string
	for _, name := range names {
		head, rest, nested := strings.Cut(name, ".")
		at := path.Root(head)
		if nested {
			at = at.AtName(rest)
		}
		if !isKnown(planned, at) || name == "resources" && !isKnown(planned, path.Root("instance_type")) {
			name += " (known after apply)"
		}
		all = append(all, name)
	}
	return strings.Join(all, ", ")
}

// rolledOut returns the changed attributes that Cloudflare rolls out to running sandboxes: image and size, under the
// scheduling policy default. The size basic has that policy, and so do environments created without durable_object.
func (r *Resource) rolledOut(was sandbox.EnvironmentSpec, changed []string) (rolled []string) {
	basic, _ := sandbox.ResourcesOf("basic")
	basic.PIDs = was.Resources.PIDs
	if was.Backend != sandbox.Cloudflare || r.Provider.DiskSnapshots && was.Resources != basic {
		return nil
	}
	for _, name := range changed {
		if name == "image" || name == "resources" {
			rolled = append(rolled, name)
		}
	}
	return rolled
}

// withoutChange lists the leases that lack a change.
func withoutChange(living []sandbox.Lease, is sandbox.EnvironmentSpec, changed []string) (lines []string) {
	for _, l := range living {
		if !begunWith(l, is, changed) {
			lines = append(lines, fmt.Sprintf("  - %s (generation %d, on %s)", l.ID, l.Generation, l.Image))
		}
	}
	return firstNamed(lines)
}

// kept names the attributes that differ and that a sandbox keeps from its creation. All other attributes follow the
// environment.
func kept(was, is sandbox.EnvironmentSpec) (changed []string) {
	for _, a := range []struct {
		name    string
		was, is any
	}{
		{"image", was.Image, is.Image},
		{"resources", was.Resources, is.Resources},
		{"network.mode", was.Network, is.Network},
		{"network.credentials", hasCredentials(was), hasCredentials(was) || hasCredentials(is)},
		{"llm", was.LLMProtocols(), is.LLMProtocols()},
		{"env", was.Env, is.Env},
		{"env_passthrough", was.EnvPassthrough, is.EnvPassthrough},
		{"mount", was.Mounts, is.Mounts},
		{"copy", was.Copies, is.Copies},
		{"archive", was.Archives, is.Archives},
		{"workspace", was.Workspace, is.Workspace},
		{"companions", was.Companions, is.Companions},
		{"confinement", was.Confinement, is.Confinement},
		{"state", was.Snapshot != nil, is.Snapshot != nil},
		{"state.scope", scope(was, is), scope(is, was)},
		{"initial_state", was.InitialData, is.InitialData},
		{"skills", was.Skills, is.Skills},
		{"builtin_tools", was.BuiltinTools, is.BuiltinTools},
		{"post_start", was.PostStart, is.PostStart},
		{"process", was.Processes, is.Processes},
		{"max_lifetime", was.MaxLifetime, is.MaxLifetime},
		{"keep_disk", was.KeepDisk, is.KeepDisk},
		{"sleep_mode", was.SleepMode, is.SleepMode},
	} {
		if !reflect.DeepEqual(a.was, a.is) && !(hasNone(a.was) && hasNone(a.is)) {
			changed = append(changed, a.name)
		}
	}
	return changed
}

// hasCredentials reports whether the environment has credentials of hosts. Then its sandboxes begin with the authority
// of its gateway.
func hasCredentials(s sandbox.EnvironmentSpec) bool { return len(s.EgressRules().Credentials) > 0 }

// scope returns the scope of the snapshots, "" unless both specifications have snapshots.
func scope(of, other sandbox.EnvironmentSpec) sandbox.SnapshotScope {
	if of.Snapshot == nil || other.Snapshot == nil {
		return ""
	}
	return of.Snapshot.Scope
}

// hasNone reports whether a map or list has no elements. Nil and empty mean the same here.
func hasNone(all any) bool {
	v := reflect.ValueOf(all)
	return (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0
}

// begunWith reports whether a lease already has every changed attribute, as after an apply that failed halfway, or has
// a setting of its own for it.
func begunWith(l sandbox.Lease, is sandbox.EnvironmentSpec, changed []string) bool {
	for _, name := range changed {
		switch name {
		case "image":
			if l.Image != is.Image {
				return false
			}
		case "network.mode":
			if l.Network != is.Network {
				return false
			}
		case "max_lifetime":
			if l.Settings.MaxLifetime == nil && l.MaxLifetime != is.MaxLifetime {
				return false
			}
		case "sleep_mode":
			if l.SleepMode != is.SleepMode {
				return false
			}
		default: // a lease does not record it
			return false
		}
	}
	return true
}

// living returns the living leases of the environment.
func (r *Resource) living(ctx context.Context, state *Model) (living []sandbox.Lease, err error) {
	svc, err := r.Provider.OpenLedger(ctx, state.LedgerID.ValueString())
	if err != nil {
		return nil, err
	}
	f := sandbox.LeaseFilter{EnvironmentID: state.ID.ValueString(), Status: sandbox.LeaseActive}
	for l, err := range service.EachLease(ctx, svc, f) {
		if err != nil {
			return nil, err
		}
		living = append(living, l)
	}
	return living, nil
}

// firstNamed limits the lines of a message that names leases.
func firstNamed(lines []string) []string {
	if len(lines) > maxNamed {
		return append(lines[:maxNamed], "  - and more, see the data source sandbox_leases")
	}
	return lines
}
