package lease_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/echoprovider"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// opened is an environment with an ephemeral lease, whose values an echo resource keeps.
func opened(w *providertest.World, more string) string {
	return environment(w) + fmt.Sprintf(`
ephemeral "sandbox_lease" "test" {
  agent_did      = %q
  environment_id = sandbox_environment.test.id
  %s
}
provider "echo" {
  data = ephemeral.sandbox_lease.test
}
resource "echo" "test" {}
`, agent, more)
}

func ephemeralTest(t *testing.T, w *providertest.World, steps ...resource.TestStep) {
	t.Helper()
	providers := w.Providers()
	providers["echo"] = echoprovider.NewProviderServer()
	resource.Test(t, resource.TestCase{
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_10_0)},
		ProtoV6ProviderFactories: providers,
		CheckDestroy:             gone(w),
		Steps:                    steps,
	})
}

func echoed(name string, c knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue("echo.test", tfjsonpath.New("data").AtMapKey(name), c)
}

// The lease is held while Terraform runs and gone when Terraform is done, at plan and at apply.
func TestAccEphemeralLeaseEndsWithTerraform(t *testing.T) {
	t.Parallel()
	providertest.OverBothServices(t, func(t *testing.T, w *providertest.World, provider string) {
		released := func() {
			l, err := w.Service().GetLease(t.Context(), leaseID(w))
			w.Must(err)
			if l.EndedBy != sandbox.EndedByRelease || l.Status != sandbox.LeaseDestroyed || len(w.Containers(w.Name)) > 0 {
				t.Errorf("once Terraform is done the lease is %s by %q, with the containers %v",
					l.Status, l.EndedBy, w.Containers(w.Name))
			}
		}
		ephemeralTest(t, w,
			resource.TestStep{
				Config: provider + opened(w, `ttl = "10m"`),
				ConfigStateChecks: []statecheck.StateCheck{
					echoed("id", text(leaseID(w))), echoed("generation", knownvalue.NotNull()), echoed("leased_at",
						knownvalue.NotNull()), echoed("sandbox_id", knownvalue.StringRegexp(regexp.MustCompile(`^[a-z2-7]{26}$`))),
					echoed("image", text(w.Image)), echoed("ttl", text("10m")),
				},
			},
			resource.TestStep{PreConfig: released, Config: provider + opened(w, `ttl = "10m"`), PlanOnly: true},
			resource.TestStep{PreConfig: released, Config: provider + environment(w)},
		)
	})
}

func TestAccEphemeralLeaseOfAnotherOwner(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		ephemeralTest(t, w,
			resource.TestStep{Config: provider + environment(w)},
			resource.TestStep{
				PreConfig: func() {
					_, err := w.Service().Acquire(t.Context(),
						sandbox.Acquire{AgentDID: agent, EnvironmentID: w.Name, Owner: "orchestrator"})
					w.Must(err)
				},
				Config:      provider + opened(w, ""),
				ExpectError: regexp.MustCompile(`(?s)Opening Lease Failed.*held\s+(│\s+)?by\s+(│\s+)?orchestrator`),
			},
			resource.TestStep{
				PreConfig: func() {
					l, err := w.Service().Release(t.Context(), sandbox.LeaseRef{ID: leaseID(w), Owner: "orchestrator", Generation: 1})
					w.Must(err)
					if l.EndReason != "released by orchestrator" {
						t.Errorf("the other owner's lease had ended before: %s", l.EndReason)
					}
				},
				Config: provider + environment(w),
			},
		)
	})
}

// Terraform opens the lease at plan, before it could reopen the environment. The error names the way out.
func TestAccEphemeralLeaseOfAnEndedEnvironment(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		ephemeralTest(t, w,
			resource.TestStep{Config: provider + environment(w)},
			resource.TestStep{
				PreConfig:   func() { w.Condition(w.Service(), "game.finished", w.Name, "") },
				Config:      provider + opened(w, ""),
				ExpectError: regexp.MustCompile(`(?s)Opening Lease Failed.*apply\s+(│\s+)?-target.*destroy\s+(│\s+)?-refresh=false`),
			},
			resource.TestStep{Config: provider + environment(w)},
		)
	})
}

// Terraform does not close what failed to open.
func TestAccEphemeralLeaseThatDoesNotStartLeavesNothing(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, provider string) {
		ref := w.Name + ":latest"
		w.Must(w.Docker.ImageTag(t.Context(), w.Image, ref))
		untag := func() {
			_, err := w.Docker.ImageRemove(context.Background(), ref, dockerapi.ImageRemoveOptions{})
			w.Must(err)
		}
		onRef := func(s string) string { return provider + strings.Replace(s, w.Image, ref, 1) }
		ephemeralTest(t, w,
			resource.TestStep{Config: onRef(environment(w))},
			resource.TestStep{
				PreConfig:   untag,
				Config:      onRef(opened(w, "")),
				ExpectError: regexp.MustCompile(`(?s)Opening Lease Failed.*` + ref),
			}, resource.TestStep{
				PreConfig: func() {
					l, err := w.Service().GetLease(t.Context(), leaseID(w))
					w.Must(err)
					if l.Status != sandbox.LeaseDestroyed || len(w.Containers(w.Name)) > 0 {
						t.Errorf("the lease that failed to open is %s, with the containers %v", l.Status, w.Containers(w.Name))
					}
				},
				Config: onRef(environment(w)),
			},
		)
	})
}

func TestAccEphemeralLeaseErrorsOfThePlan(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	var steps []resource.TestStep
	for _, tt := range []struct{ agent, more, says string }{
		{"alice", "", "agent_did must be a DID such as did:plc:abc"},
		{agent, `ttl = "0s"`, "ttl must be at least 1s"},
		{agent, `max_lifetime = "1 day"`, `"1 day" is not a duration`},
		{agent, `expiry_conditions = ["death"]`, "Every expiry condition must be a dotted name"},
		{agent, "timeouts {\n open = \"long\"\n}", `Invalid Attribute Value Time Duration`},
		{agent, "timeouts {\n open = \"0s\"\n}", `timeouts.open must be more than 0s, not "0s"`},
	} {
		steps = append(steps, resource.TestStep{
			Config: w.Embedded() + fmt.Sprintf("ephemeral \"sandbox_lease\" \"test\" {\n  agent_did = %q\n"+
				"  environment_id = \"catan-7\"\n  %s\n}\n", tt.agent, tt.more),
			PlanOnly: true, ExpectError: regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(tt.says), " ", `\s+`)),
		})
	}
	ephemeralTest(t, w, steps...)
	if w.LedgerExists() {
		t.Errorf("validating made a ledger")
	}
}

// session calls the provider as Terraform does, but renews and closes when the test says so.
type session struct {
	*providertest.World
	server tfprotov6.ProviderServer
}

func newSession(w *providertest.World) session {
	w.Helper()
	p := provider.New("test")()
	if c, ok := p.(interface{ Close() error }); ok {
		w.Cleanup(func() { w.Must(c.Close()) })
	}
	server, err := providerserver.NewProtocol6WithError(p)()
	w.Must(err)
	s := session{w, server}
	schemas, err := server.GetProviderSchema(w.Context(), &tfprotov6.GetProviderSchemaRequest{})
	w.Must(err)
	resp, err := server.ConfigureProvider(w.Context(), &tfprotov6.ConfigureProviderRequest{
		Config: s.value(schemas.Provider, map[string]any{"ledger": w.LedgerURL}),
	})
	w.Must(err)
	s.succeed(resp.Diagnostics)
	return s
}

func (s session) succeed(diags []*tfprotov6.Diagnostic) {
	s.Helper()
	for _, d := range diags {
		s.Fatalf("%s: %s", d.Summary, d.Detail)
	}
}

// value returns a configuration with the set values. Everything else is null.
func (s session) value(of *tfprotov6.Schema, set map[string]any) *tfprotov6.DynamicValue {
	s.Helper()
	for _, a := range of.Block.Attributes {
		if _, ok := set[a.Name]; !ok {
			set[a.Name] = nil
		}
	}
	for _, b := range of.Block.BlockTypes {
		set[b.TypeName] = nil
	}
	encoded, err := json.Marshal(set)
	s.Must(err)
	return &tfprotov6.DynamicValue{JSON: encoded}
}

func (s session) open(ttl string) *tfprotov6.OpenEphemeralResourceResponse {
	s.Helper()
	schemas, err := s.server.GetProviderSchema(s.Context(), &tfprotov6.GetProviderSchemaRequest{})
	s.Must(err)
	resp, err := s.server.OpenEphemeralResource(s.Context(), &tfprotov6.OpenEphemeralResourceRequest{
		TypeName: "sandbox_lease",
		Config: s.value(schemas.EphemeralResourceSchemas["sandbox_lease"], map[string]any{
			"agent_did": agent, "environment_id": s.Name, "ttl": ttl, "max_lifetime": "1h",
		}),
	})
	s.Must(err)
	s.succeed(resp.Diagnostics)
	return resp
}

func (s session) close(private []byte) {
	s.Helper()
	resp, err := s.server.CloseEphemeralResource(s.Context(),
		&tfprotov6.CloseEphemeralResourceRequest{TypeName: "sandbox_lease", Private: private})
	s.Must(err)
	s.succeed(resp.Diagnostics)
}

// withEnvironment creates an environment without Terraform.
func withEnvironment(w *providertest.World) service.Service {
	w.Helper()
	service := w.Service()
	_, err := service.PutEnvironment(w.Context(), sandbox.PutEnvironment{
		ID:    w.Name,
		Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type:      sandbox.TypeRPG,
			Image:     w.Image,
			Network:   sandbox.NetworkNone,
			Resources: sandbox.Resources{MemoryMB: 512, CPUMillis: 500},
		},
	})
	w.Must(err)
	w.Cleanup(func() {
		w.Must(service.DeleteEnvironment(context.Background(), sandbox.DeleteEnvironment{ID: w.Name, Force: true}))
	})
	return service
}

func TestAccEphemeralLeaseIsRenewedByHalfOfItsTime(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	service := withEnvironment(w)
	s := newSession(w)
	open := s.open("10m")
	before, err := service.GetLease(t.Context(), leaseID(w))
	w.Must(err)
	if want := before.LastActivity.Add(5 * time.Minute); !open.RenewAt.Equal(want) {
		t.Errorf("it is to be renewed at %v, not at %v", open.RenewAt, want)
	}
	renewed, err := s.server.RenewEphemeralResource(t.Context(),
		&tfprotov6.RenewEphemeralResourceRequest{TypeName: "sandbox_lease", Private: open.Private})
	w.Must(err)
	s.succeed(renewed.Diagnostics)
	after, err := service.GetLease(t.Context(), leaseID(w))
	w.Must(err)
	if !after.ExpiresAt.After(before.ExpiresAt) || !renewed.RenewAt.After(open.RenewAt) {
		t.Errorf("renewing moved the end from %v to %v, and the next renewal from %v to %v",
			before.ExpiresAt, after.ExpiresAt, open.RenewAt, renewed.RenewAt)
	}
	s.close(renewed.Private)
	renewed, err = s.server.RenewEphemeralResource(t.Context(),
		&tfprotov6.RenewEphemeralResourceRequest{TypeName: "sandbox_lease", Private: open.Private})
	w.Must(err)
	if len(renewed.Diagnostics) != 1 || renewed.Diagnostics[0].Summary != "Renewing Lease Failed" ||
		!strings.Contains(renewed.Diagnostics[0].Detail, "ended by release") {
		t.Errorf("renewing a lease that has ended says %+v", renewed.Diagnostics)
	}
}

// Terraform stops renewing a lease once no renewal extends it.
func TestAccEphemeralLeaseThatLivesOutItsTimeIsNotRenewed(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	withEnvironment(w)
	s := newSession(w)
	open := s.open("2h") // longer than its max_lifetime
	if !open.RenewAt.IsZero() {
		t.Errorf("it is to be renewed at %v", open.RenewAt)
	}
	s.close(open.Private)
}

func TestAccEphemeralLeaseClosesOnlyWhatItOpened(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	service := withEnvironment(w)
	s := newSession(w)
	open := s.open("10m")
	_, err := service.Release(t.Context(), sandbox.LeaseRef{ID: leaseID(w)})
	w.Must(err)
	next, err := service.Acquire(t.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: w.Name, Owner: "next"})
	w.Must(err)
	s.close(open.Private)
	l, err := service.GetLease(t.Context(), leaseID(w))
	w.Must(err)
	if l.Status != sandbox.LeaseActive || l.SandboxID != next.Lease.SandboxID || l.Generation != 2 {
		t.Errorf("closing generation 1 left generation %d of %s %s", l.Generation, l.Owner, l.Status)
	}
	w.Container(l.SandboxID)
}
