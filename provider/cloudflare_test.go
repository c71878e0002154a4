package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
)

// TestTheSchedulingPolicyIsDefaultOrDurableObject: the plan refuses other policies, and a configured policy reaches the
// account.
func TestTheSchedulingPolicyIsDefaultOrDurableObject(t *testing.T) {
	t.Parallel()
	var resp provider.SchemaResponse
	(&Provider{}).Schema(t.Context(), provider.SchemaRequest{}, &resp)
	block, _ := resp.Schema.Attributes["cloudflare"].(schema.SingleNestedAttribute)
	attribute, _ := block.Attributes["scheduling_policy"].(schema.StringAttribute)
	if len(attribute.Validators) == 0 {
		t.Fatal("the policy is not checked")
	}
	at := path.Root("cloudflare").AtName("scheduling_policy")
	for policy, accepted := range map[string]bool{
		"default": true, "durable_object": true, "": false, "durable-object": false, "Default": false,
	} {
		req := validator.StringRequest{Path: at, ConfigValue: types.StringValue(policy)}
		var got validator.StringResponse
		for _, v := range attribute.Validators {
			v.ValidateString(t.Context(), req, &got)
		}
		if got.Diagnostics.HasError() == accepted {
			t.Errorf("policy %q: %v", policy, got.Diagnostics)
		}
	}
	const id = "0123456789abcdef0123456789abcdef"
	configured := &cloudflareModel{AccountID: text(id), Token: text("t"), Policy: text("durable_object")}
	s, diags := model{Cloudflare: configured}.resolve(env())
	if diags.HasError() || s.cloudflare.SchedulingPolicy != cloudflare.PolicyDurableObject {
		t.Errorf("the account is configured with %+v: %v", s.cloudflare, diags)
	}
	if s.cloudflare.MaxInstances != 0 {
		t.Errorf("without max_instances the account has %d", s.cloudflare.MaxInstances)
	}
	configured.MaxInstances = types.Int64Value(100)
	if s, diags = (model{Cloudflare: configured}).resolve(env()); diags.HasError() || s.cloudflare.MaxInstances != 100 {
		t.Errorf("with max_instances = 100 the account has %d: %v", s.cloudflare.MaxInstances, diags)
	}
	configured.MaxInstances = types.Int64Unknown()
	s, diags = model{Cloudflare: configured}.resolve(env())
	if diags.HasError() || !strings.Contains(strings.Join(s.serviceUnknown, " "), "cloudflare.max_instances") {
		t.Errorf("a number of instances that is not known: %v, %v", s.serviceUnknown, diags)
	}
	configured.Policy = types.StringUnknown()
	s, diags = model{Cloudflare: configured}.resolve(env())
	if diags.HasError() || !strings.Contains(strings.Join(s.serviceUnknown, " "), "cloudflare.scheduling_policy") {
		t.Errorf("a policy that is not known: %v, %v", s.serviceUnknown, diags)
	}
}
