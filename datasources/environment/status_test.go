package environment_test

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
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The data source shows what only the service knows of an environment: the use of budget and warm pool, and the names
// of secrets.
func TestAccEnvironmentReportsItsStatus(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	r := w.Reconciler()
	svc, err := client.New(client.Config{URL: r.URL, Token: r.Token})
	w.Must(err)
	for name, put := range map[string]sandbox.PutEnvironment{
		w.Name: {
			EnvironmentSpec: sandbox.EnvironmentSpec{
				WarmPool: &sandbox.WarmPool{Size: 3, Paused: true}, Budget: &sandbox.Budget{Monthly: 25e8},
			},
			SecretValues: map[string]sandbox.Secret{"token": "hunter2"},
		},
		w.Name + "-plain": {},
	} {
		put.ID, put.Image, put.Network, put.TTL = name, w.Image, sandbox.NetworkNone, sandbox.Duration(time.Hour)
		_, err := svc.PutEnvironment(t.Context(), put)
		w.Must(err)
		t.Cleanup(func() {
			w.Must(svc.DeleteEnvironment(context.WithoutCancel(t.Context()), sandbox.DeleteEnvironment{ID: name}))
		})
	}
	at := func(name, attribute string, check knownvalue.Check) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.sandbox_environment."+name, tfjsonpath.New(attribute), check)
	}
	text, figure := knownvalue.StringExact, knownvalue.Int64Exact
	resource.Test(t, resource.TestCase{ProtoV6ProviderFactories: w.Providers(), Steps: []resource.TestStep{{
		Config: r.Configuration + fmt.Sprintf("data \"sandbox_environment\" \"game\" { name = %q }\n"+
			"data \"sandbox_environment\" \"plain\" { name = %q }\n", w.Name, w.Name+"-plain"),
		ConfigStateChecks: []statecheck.StateCheck{
			at("game", "secrets", knownvalue.SetExact([]knownvalue.Check{text("token")})),
			at("game", "budget", knownvalue.ObjectExact(map[string]knownvalue.Check{
				"month":        knownvalue.StringRegexp(regexp.MustCompile(`^\d{4}-\d{2}$`)),
				"monthly_usd":  text("2.50"),
				"spent_usd":    text("0.00"),
				"reserved_usd": text("0.00"),
				"left_usd":     text("2.50"),
			})),
			at("game", "warm_pool", knownvalue.ObjectExact(map[string]knownvalue.Check{
				"size":       figure(3),
				"max_size":   knownvalue.Null(),
				"mode":       text("paused"),
				"paused":     knownvalue.Bool(true),
				"ready":      figure(0),
				"pending":    figure(0),
				"failures":   figure(0),
				"last_error": knownvalue.Null(),
			})),
			at("plain", "secrets", knownvalue.SetSizeExact(0)), at("plain", "budget", knownvalue.Null()),
			at("plain", "warm_pool", knownvalue.Null()),
		},
	}}})
}
