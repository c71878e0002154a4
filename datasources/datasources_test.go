// Package datasources_test reads one small world through all data sources.
package datasources_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	alice = "did:plc:alice"
	bob   = "did:plc:bob"
)

// world creates an environment in which alice's lease is active and bob's sandbox has vanished.
func world(t *testing.T, w *providertest.World) {
	t.Helper()
	service := w.Service()
	_, err := service.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:    w.Name,
		Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type:        sandbox.TypeRPG,
			Image:       w.Image,
			Network:     sandbox.NetworkNone,
			Labels:      map[string]string{"team": "games"},
			Resources:   sandbox.Resources{MemoryMB: 512, CPUMillis: 500},
			Budget:      &sandbox.Budget{Monthly: 25e9},
			Skills:      map[string]string{"trade": "Trade well."},
			HostAccess:  sandbox.HostAccess{EnvBlocked: []string{"AWS_TOKEN"}},
			Confinement: sandbox.Confinement{TmpMB: 32},
			PostStart:   []sandbox.PostStart{{Command: []string{"true"}}},
			Processes:   []sandbox.ProcessSpec{{Name: "bot", Command: []string{"sleep", "9999"}}},
		},
	})
	w.Must(err)
	t.Cleanup(func() {
		w.Must(service.DeleteEnvironment(context.Background(), sandbox.DeleteEnvironment{ID: w.Name, Force: true}))
	})
	acquire := func(agent string) {
		_, err := service.Acquire(t.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: w.Name, Owner: "test"})
		w.Must(err)
	}
	acquire(bob)
	w.RemoveContainers(w.Name)
	acquire(alice)
	_, err = service.ObserveLease(t.Context(), sandbox.LeaseID(bob, w.Name))
	w.Must(err)
}

func TestAccDataSources(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"embedded", "reconciler"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			provider := w.Embedded()
			world(t, w)
			if over == "reconciler" {
				provider = w.Reconciler().Configuration
			}
			read(t, w, provider)
		})
	}
}

func read(t *testing.T, w *providertest.World, provider string) {
	at := func(address string, p tfjsonpath.Path, c knownvalue.Check) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.sandbox_"+address, p, c)
	}
	top := tfjsonpath.New[string]
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	moment := knownvalue.StringRegexp(regexp.MustCompile(`^\d{4}-\d\d-\d\dT.*Z$`))
	dollars := knownvalue.StringRegexp(regexp.MustCompile(`^\d+\.\d{2,9}$`))
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{{
			Config: provider + fmt.Sprintf(`
locals { name = %q }
data "sandbox_environment" "e" { name = local.name }
data "sandbox_lease" "by_names" {
  agent_did      = "did:plc:alice"
  environment_id = local.name
}
data "sandbox_lease" "by_id" { id = "did:plc:bob::${local.name}" }
data "sandbox_leases" "all" { environment_id = local.name }
data "sandbox_leases" "active" {
  environment_id = local.name
  status         = "active"
}
data "sandbox_leases" "labelled" {
  environment_id = local.name
  labels         = { team = "games" }
}
data "sandbox_leases" "other_label" { labels = { team = "none" } }
data "sandbox_environments" "other_label" { labels = { team = "none" } }
data "sandbox_events" "other_label" { labels = { team = "none" } }
data "sandbox_cost" "by_team" {
  environment_id = local.name
  group_by       = "label:team"
}
data "sandbox_leases" "bob" { agent_did = "did:plc:bob" }
data "sandbox_cost" "by_environment" {
  environment_id = local.name
  group_by       = "environment"
}
data "sandbox_cost" "by_agent" {
  environment_id = local.name
  group_by       = "agent"
  from           = %q
}
data "sandbox_cost" "of_none" { environment_id = "no-such-game" }
data "sandbox_cost" "future" { from = "2100-01-01T00:00:00Z" }
data "sandbox_drift" "bob" { lease_id = "did:plc:bob::${local.name}" }
data "sandbox_drift" "alice" { lease_id = "did:plc:alice::${local.name}" }
data "sandbox_environments" "open" {
  type   = "rpg"
  status = "open"
}
data "sandbox_environments" "ended" { status = "ended" }
data "sandbox_environments" "coding" { type = "coding" }
data "sandbox_events" "all" { environment_id = local.name }
data "sandbox_events" "first" {
  environment_id = local.name
  limit          = 1
}
data "sandbox_events" "next" {
  environment_id = local.name
  after_id       = data.sandbox_events.first.next_after_id
}
data "sandbox_events" "ended" {
  lease_id = "did:plc:bob::${local.name}"
  type     = "lease.*"
}
data "sandbox_events" "alice" { sandbox_id = data.sandbox_lease.by_names.sandbox_id }
data "sandbox_price_book" "docker" {}
data "sandbox_container_image" "used" { name = data.sandbox_environment.e.image }
data "sandbox_drift" "all" { environment_id = local.name }
data "sandbox_drift" "vanished" {
  environment_id = local.name
  kind           = "vanished"
}
data "sandbox_drift" "changed" {
  environment_id = local.name
  kind           = "changed"
}
data "sandbox_drift" "resolved" {
  environment_id = local.name
  status         = "resolved"
}
data "sandbox_drift" "elsewhere" { environment_id = "no-such-game" }
data "sandbox_drift" "open" {
  status         = "open"
  environment_id = local.name
}
`, w.Name, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)),
			ConfigStateChecks: []statecheck.StateCheck{
				at("environment.e", top("type"), text("rpg")), at("environment.e", top("status"), text("open")),
				at("environment.e", top("owner"), text("test")),
				at("environment.e", top("memory_mb"), number(512)), at("environment.e", top("cpus"), knownvalue.Float64Exact(0.5)),
				at("environment.e", top("ttl"), text("24h")), at("environment.e", top("network"), text("none")),
				at("environment.e", top("created_at"), moment),
				at("environment.e", top("labels").AtMapKey("team"), text("games")),
				at("environment.e", top("ended_at"), knownvalue.Null()),

				at("lease.by_names", top("id"), text(sandbox.LeaseID(alice, w.Name))),
				at("lease.by_names", top("status"), text("active")),
				at("lease.by_names", top("phase"), text("awake")), at("lease.by_names", top("expires_at"), moment),
				at("lease.by_names", top("last_activity"), moment),
				at("lease.by_names", top("cost_usd"), dollars), at("lease.by_names", top("ended_at"), knownvalue.Null()),
				at("lease.by_id", top("agent_did"), text(bob)), at("lease.by_id", top("ended_by"), text("vanished")),
				at("lease.by_id", top("ended_at"), moment),

				at("leases.all", top("leases"), knownvalue.ListSizeExact(2)),
				at("leases.labelled", top("leases"), knownvalue.ListSizeExact(2)),
				at("leases.labelled", top("leases").AtSliceIndex(0).AtMapKey("labels").AtMapKey("team"), text("games")),
				at("leases.other_label", top("leases"), knownvalue.ListSizeExact(0)),
				at("environments.other_label", top("environments"), knownvalue.ListSizeExact(0)),
				at("events.other_label", top("events"), knownvalue.ListSizeExact(0)),
				at("cost.by_team", top("rows"), knownvalue.ListSizeExact(1)),
				at("cost.by_team", top("rows").AtSliceIndex(0).AtMapKey("label"), text("games")),
				at("leases.active", top("leases"), knownvalue.ListSizeExact(1)),
				at("leases.active", top("leases").AtSliceIndex(0).AtMapKey("agent_did"), text(alice)),
				at("leases.bob", top("leases").AtSliceIndex(0).AtMapKey("generation"), number(1)),

				at("cost.by_environment", top("rows"), knownvalue.ListSizeExact(1)),
				at("cost.by_environment", top("rows").AtSliceIndex(0).AtMapKey("lease_id"), knownvalue.Null()),
				at("cost.by_environment", top("total").AtMapKey("gross_usd"), dollars),
				at("cost.by_environment", top("accounts").AtSliceIndex(0).AtMapKey("shadow").AtMapKey("plan_fee_usd"), text("5.00")),
				at("cost.by_environment",
					top("accounts").AtSliceIndex(0).AtMapKey("lines").AtSliceIndex(0).AtMapKey("unit"), text("GiB-hours")),
				at("cost.by_environment", top("accounts").AtSliceIndex(0).AtMapKey("shadow").AtMapKey("price_book"),
					text("cloudflare-containers")),
				at("cost.by_agent", top("rows").AtSliceIndex(0).AtMapKey("agent_did"), text(alice)),
				at("cost.by_agent", top("total").AtMapKey("awake_hours"), knownvalue.NotNull()),
				at("cost.by_agent", top("as_of"), moment),
				at("cost.by_environment", top("environments"), knownvalue.ListSizeExact(1)),
				at("cost.by_environment", top("environments").AtSliceIndex(0).AtMapKey("environment_id"), text(w.Name)),
				at("cost.by_environment", top("environments").AtSliceIndex(0).AtMapKey("spent_usd"), dollars),
				at("cost.by_environment", top("environments").AtSliceIndex(0).AtMapKey("projected_usd"), dollars),
				at("cost.by_environment", top("environments").AtSliceIndex(0).AtMapKey("budget_usd"), text("25.00")),
				at("cost.by_environment", top("environments").AtSliceIndex(0).AtMapKey("left_usd"), dollars),
				at("cost.of_none", top("environments"), knownvalue.ListSizeExact(0)),
				at("environment.e", top("allow"), knownvalue.Null()), at("environment.e", top("post_mortem"), text("1h")),
				at("environment.e", top("skills"), knownvalue.MapExact(map[string]knownvalue.Check{"trade": text("Trade well.")})),
				at("environment.e", top("initial_state"), knownvalue.Null()), at("environment.e", top("mount"), knownvalue.Null()),
				at("environment.e", top("state"), knownvalue.Null()),
				at("environment.e", top("confinement").AtMapKey("tmp_mb"), number(32)),
				at("environment.e", top("post_start").AtSliceIndex(0).AtMapKey("timeout"), text("2m")),
				at("environment.e", top("process").AtSliceIndex(0).AtMapKey("restart"), text("no")),
				at("environment.e", top("env_blocked"), knownvalue.SetExact([]knownvalue.Check{text("AWS_TOKEN")})),
				at("cost.future", top("rows"), knownvalue.ListSizeExact(0)),
				at("cost.future", top("total").AtMapKey("total_usd"), text("0.00")),

				at("drift.bob", top("findings"), knownvalue.ListSizeExact(1)),
				at("drift.alice", top("findings"), knownvalue.ListSizeExact(0)),
				at("environments.open", top("environments"), knownvalue.ListSizeExact(1)),
				at("environments.open", top("environments").AtSliceIndex(0).AtMapKey("name"), text(w.Name)),
				at("environments.open", top("environments").AtSliceIndex(0).AtMapKey("owner"), text("test")),
				at("environments.coding", top("environments"), knownvalue.ListSizeExact(0)),
				at("environments.ended", top("environments"), knownvalue.ListSizeExact(0)),

				at("events.all", top("events").AtSliceIndex(0).AtMapKey("type"), text("environment.created")),
				at("events.all", top("events").AtSliceIndex(0).AtMapKey("at"), moment),
				at("events.all", top("events").AtSliceIndex(0).AtMapKey("sandbox_id"), knownvalue.Null()),
				at("events.all", top("next_after_id"), knownvalue.Null()),
				at("events.first", top("events"), knownvalue.ListSizeExact(1)),
				at("events.first", top("next_after_id"), knownvalue.NotNull()),
				at("events.next", top("events").AtSliceIndex(0).AtMapKey("type"), text("sandbox.accepted")),
				at("events.next", top("events").AtSliceIndex(0).AtMapKey("sequence"), number(1)),
				at("events.ended", top("events"), knownvalue.ListSizeExact(1)),
				at("events.ended", top("events").AtSliceIndex(0).AtMapKey("type"), text("lease.ended")),
				at("events.ended", top("events").AtSliceIndex(0).AtMapKey("data"),
					knownvalue.StringRegexp(regexp.MustCompile("vanished"))),
				at("events.ended", top("events").AtSliceIndex(0).AtMapKey("actor"), knownvalue.Null()),
				at("events.ended", top("events").AtSliceIndex(0).AtMapKey("address"), knownvalue.Null()),
				at("events.alice", top("events").AtSliceIndex(0).AtMapKey("lease_id"), text(sandbox.LeaseID(alice, w.Name))),
				at("events.alice", top("events").AtSliceIndex(0).AtMapKey("generation"), number(1)),

				at("price_book.docker", top("backend"), text("docker")), at("price_book.docker", top("name"), text("free")),
				at("price_book.docker", top("cpu_second_usd"), text("0.00")),
				at("price_book.docker", top("included").AtMapKey("cpu_seconds"), number(0)),
				at("price_book.docker", top("as_of"), knownvalue.Null()),
				at("container_image.used", top("reference"), knownvalue.StringRegexp(regexp.MustCompile("^sha256:[0-9a-f]{64}$"))),
				at("container_image.used", top("instance"), knownvalue.NotNull()),
				at("container_image.used", top("context_hash"), knownvalue.Null()),

				at("drift.all", top("findings"), knownvalue.ListSizeExact(1)),
				at("drift.all", top("findings").AtSliceIndex(0).AtMapKey("kind"), text("vanished")),
				at("drift.all", top("findings").AtSliceIndex(0).AtMapKey("lease_id"), text(sandbox.LeaseID(bob, w.Name))),
				at("drift.vanished", top("findings"), knownvalue.ListSizeExact(1)),
				at("drift.changed", top("findings"), knownvalue.ListSizeExact(0)),
				// when the finding is resolved depends on the service
				at("drift.open", top("findings"), knownvalue.NotNull()),
				at("drift.resolved", top("findings"), knownvalue.NotNull()),
				at("drift.elsewhere", top("findings"), knownvalue.ListSizeExact(0)),
			},
		}},
	})
}

func TestAccDataSourcesErrors(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []resource.TestStep{
			{
				Config:      w.Embedded() + `data "sandbox_environment" "e" { name = "nope" }`,
				ExpectError: regexp.MustCompile(`there is no environment "nope" on this ledger: check the name and the ledger\.`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_lease" "l" { id = "did:plc:a::nope" }`,
				ExpectError: regexp.MustCompile(`there is no lease did:plc:a::nope on this ledger: check the id and the\s+ledger\.`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_lease" "l" { id = "nope" }`,
				ExpectError: regexp.MustCompile(`is not of the form`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_lease" "l" { agent_did = "did:plc:a" }`,
				ExpectError: regexp.MustCompile(`environment_id`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_lease" "l" {}`,
				ExpectError: regexp.MustCompile(`Invalid Attribute Combination`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_leases" "l" { status = "dead" }`,
				ExpectError: regexp.MustCompile(`status value must be one of`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_environments" "e" { type = "chess" }`,
				ExpectError: regexp.MustCompile(`type value must be one of`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_events" "e" { limit = 0 }`,
				ExpectError: regexp.MustCompile(`limit value must be between 1 and 1000`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_events" "e" { after_id = 99 }`,
				ExpectError: regexp.MustCompile(`(?s)Reading Events Failed.*99`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_drift" "d" { kind = "moved" }`,
				ExpectError: regexp.MustCompile(`(?s)kind value must be one of.*"leftover"`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_drift" "d" { status = "closed" }`,
				ExpectError: regexp.MustCompile(`(?s)status value must be one of.*"resolved"`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_price_book" "b" { backend = "kubernetes" }`,
				ExpectError: regexp.MustCompile(`(?s)backend value must be one of.*"cloudflare"`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_container_image" "i" { name = "no-such-image" }`,
				ExpectError: regexp.MustCompile(`(?s)Reading Image Failed.*no-such-image`),
			},
			{
				Config:      w.Embedded() + `data "sandbox_cost" "c" { from = "yesterday" }`,
				ExpectError: regexp.MustCompile(`must be a time in RFC 3339`),
			},
		},
	})
}
