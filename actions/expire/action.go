// Package expire is the Terraform action sandbox_expire.
package expire

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var (
	_ action.ActionWithConfigure      = (*Action)(nil)
	_ action.ActionWithValidateConfig = (*Action)(nil)
)

// timeout limits one invocation, including the wait for the removal of sandboxes.
const timeout = 5 * time.Minute

// NewAction returns the unconfigured action.
func NewAction() action.Action { return &Action{} }

// Action ends leases by a condition, as a game server does through the webhook. It requires Terraform 1.14.
type Action struct {
	provider *configured.Provider
}

// Model is the action's configuration.
type Model struct {
	EnvironmentID types.String `tfsdk:"environment_id"`
	AgentDID      types.String `tfsdk:"agent_did"`
	Condition     types.String `tfsdk:"condition"`
	Reason        types.String `tfsdk:"reason"`
}

// Metadata names the action.
func (a *Action) Metadata(_ context.Context, req action.MetadataRequest, resp *action.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_expire"
}

// Schema describes the action.
func (a *Action) Schema(_ context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Ends leases by an expiry condition, as a game server does with the webhook, and waits until " +
			"their sandboxes are gone, at most 5 minutes.",
		Attributes: map[string]schema.Attribute{
			"environment_id": schema.StringAttribute{MarkdownDescription: "Name of the environment.", Required: true},
			"agent_did": schema.StringAttribute{
				MarkdownDescription: "End only this agent's lease, such as `did:plc:abc`. Without it, all leases of the " +
					"environment whose `expiry_conditions` contain the condition end, and the environment grants no leases until " +
					"it is reopened. Required for `agent.*` conditions.",
				Optional:   true,
				Validators: []validator.String{given.Text{}},
			},
			"condition": schema.StringAttribute{
				MarkdownDescription: "Dotted name of the condition, such as `agent.death` or `game.finished`.",
				Required:            true,
			},
			"reason": schema.StringAttribute{
				MarkdownDescription: "Reason, recorded with the end of the lease, at most 1024 bytes. Default: none.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
		},
	}
}

// Configure takes over the configured provider.
func (a *Action) Configure(_ context.Context, req action.ConfigureRequest, resp *action.ConfigureResponse) {
	p, diags := configured.From(req.ProviderData)
	resp.Diagnostics.Append(diags...)
	a.provider = p
}

// ValidateConfig applies the domain's rules to the known values of the configuration.
func (a *Action) ValidateConfig(ctx context.Context, req action.ValidateConfigRequest,
	resp *action.ValidateConfigResponse) {
	var m Model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	for at, assumed := range map[*types.String]string{
		&m.EnvironmentID: "unknown",
		&m.AgentDID:      "did:unknown:unknown",
		&m.Condition:     "unknown.condition",
	} {
		if at.IsUnknown() {
			*at = types.StringValue(assumed)
		}
	}
	if err := m.expand(time.Unix(1, 0)).Validate(); err != nil {
		resp.Diagnostics.Append(diagnose.Failed("Invalid Condition", err, paths)...)
	}
}

func (m Model) expand(now time.Time) sandbox.Condition {
	return sandbox.Condition{
		Type: m.Condition.ValueString(), Timestamp: now,
		Data: sandbox.ConditionData{
			EnvironmentID: m.EnvironmentID.ValueString(),
			AgentDID:      m.AgentDID.ValueString(),
			Reason:        m.Reason.ValueString(),
		},
	}
}

// paths maps a field of the condition to its path in the configuration.
func paths(field string) (path.Path, string, bool) {
	name := strings.TrimPrefix(field, "data.")
	if name == "type" {
		name = "condition"
	}
	return path.Root(name), name, true
}

// Invoke delivers the condition and waits until the sandboxes of the ended leases are gone. If no lease
// ended, it warns: the action may have been invoked before.
func (a *Action) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	var m Model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := m.expand(a.provider.Now())
	receipt, err := a.expire(ctx, c, func(text string) {
		resp.SendProgress(action.InvokeProgressEvent{Message: text})
	})
	switch {
	case err != nil:
		resp.Diagnostics.Append(diagnose.Failed("Expiring Leases Failed", err, paths)...)
	case receipt.Status != sandbox.DeliveryApplied:
		resp.Diagnostics.AddWarning(fmt.Sprintf("Condition %s Ended Nothing", c.Type),
			fmt.Sprintf("Condition %s is recorded as %s: %s.", c.Type, receipt.Status,
				a.why(ctx, receipt.Status, c.Data.EnvironmentID)))
	}
}

// why says why a condition ended nothing in an environment.
func (a *Action) why(ctx context.Context, status sandbox.DeliveryStatus, id string) string {
	if status == sandbox.DeliveryStale {
		return "every lease that it could end began after it; check the clocks of the ledger and of this machine"
	}
	svc, err := a.provider.Open(ctx)
	var env sandbox.Environment
	if err == nil {
		env, err = svc.GetEnvironment(ctx, id)
	}
	switch {
	case err != nil && sandbox.CodeOf(err) != sandbox.NotFound:
		return fmt.Sprintf("environment %s could not be read (%s)", id, err)
	case err != nil || env.Status == sandbox.EnvironmentDestroyed:
		return fmt.Sprintf("environment %s does not exist", id)
	case env.Status == sandbox.EnvironmentClosed:
		return fmt.Sprintf("environment %s ended by %s at %s and has no live lease that ends on the condition",
			id, env.EndedBy, value.Time(env.EndedAt).ValueString())
	default:
		return fmt.Sprintf("environment %s has no live lease that ends on it", id)
	}
}

func (a *Action) expire(ctx context.Context, c sandbox.Condition, progress func(string)) (sandbox.Receipt, error) {
	svc, err := a.provider.Open(ctx)
	if err != nil {
		return sandbox.Receipt{}, err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return sandbox.Receipt{}, fmt.Errorf("encode condition %s: %w", c.Type, err)
	}
	receipt, err := svc.Deliver(ctx,
		sandbox.Delivery{ID: a.provider.NewMessage(), Body: body, Source: "terraform", Condition: c})
	if err != nil {
		return receipt, err
	}
	progress(fmt.Sprintf("%d leases ended by %s", receipt.Matched, c.Type))
	return receipt, settle(ctx, svc, receipt.Status, c.Data)
}

// settle waits until the leases that the condition ended have no sandbox. In process, where no reconciler runs, it also
// drives the removal. A condition that ended nothing, and a lease that is kept after its crash, have nothing to settle.
func settle(ctx context.Context, svc service.Leases, status sandbox.DeliveryStatus, about sandbox.ConditionData) error {
	if status != sandbox.DeliveryApplied {
		return nil
	}
	f := sandbox.LeaseFilter{
		EnvironmentID: about.EnvironmentID,
		AgentDID:      about.AgentDID,
		Status:        sandbox.LeaseExpired,
	}
	for l, err := range service.EachLease(ctx, svc, f) {
		if err == nil && !l.KeptUntil.IsZero() {
			continue
		}
		if err == nil {
			_, err = svc.Release(ctx, sandbox.LeaseRef{ID: l.ID, Generation: l.Generation})
		}
		if err != nil && sandbox.ReasonOf(err) != sandbox.ReasonOtherGeneration {
			return err
		}
	}
	return nil
}
