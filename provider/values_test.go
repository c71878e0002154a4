package provider_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// values are the attributes of a configuration.
type values = map[string]any

// A lease and an environment with labels = {} have none, and the next plan changes nothing.
func TestNoLabelsMayBeWritten(t *testing.T) {
	t.Parallel()
	server, schemas, _ := leasedInMemory(t)
	for kind, v := range map[string]values{
		"sandbox_lease":       {"agent_did": "did:plc:ann", "environment_id": "leased"},
		"sandbox_environment": {"name": "game", "image": "player", "network": values{"mode": "none"}},
	} {
		c := newCore(server, schemas, kind)
		for _, labels := range []any{values{}, values{"seat": "north"}, values{}, nil, values{}} {
			v["labels"] = labels
			config := valueOf(c.block.ValueType(), v)
			err := c.change(t.Context(), config, config)
			if err == nil {
				err = c.settled(t.Context(), config)
			}
			if err != nil {
				t.Errorf("%s with labels %v: %v", kind, labels, err)
			}
		}
		must(t, c.destroy(t.Context()))
	}
	p, schemas := unconfigured(t)
	lease := schemas.EphemeralResourceSchemas["sandbox_lease"].Block
	got, err := p.ValidateEphemeralResourceConfig(t.Context(), &tfprotov6.ValidateEphemeralResourceConfigRequest{
		TypeName: "sandbox_lease",
		Config:   dynamic(lease, values{"agent_did": "did:plc:ann", "environment_id": "leased", "labels": values{}}),
	})
	if must(t, err); len(got.Diagnostics) > 0 {
		t.Errorf("the ephemeral lease: %s", text(got.Diagnostics))
	}
}

// wantRefused checks that the provider refuses an environment, with one error, at an attribute. "" means that it
// accepts it.
func wantRefused(t *testing.T, c *core, v values, at, says string) {
	t.Helper()
	full := values{"name": "game", "image": "player", "network": values{"mode": "none"}}
	for name, one := range v {
		full[name] = one
	}
	err := c.validate(t.Context(), valueOf(c.block.ValueType(), full))
	var r refusal
	errors.As(err, &r)
	named := slices.ContainsFunc(r, func(d *tfprotov6.Diagnostic) bool {
		return d.Attribute.String() == at && strings.Contains(d.Detail, says)
	})
	if accepts := at == ""; accepts && err != nil || !accepts && (len(r) != 1 || !named) {
		t.Errorf("%v: %v", v, err)
		for _, d := range r {
			t.Logf("at %s", d.Attribute)
		}
	}
}

// A health check without command and port would check nothing.
func TestAHealthCheckThatChecksNothingIsRefused(t *testing.T) {
	t.Parallel()
	server, schemas, _, _ := newInMemory(t)
	c := newCore(server, schemas, "sandbox_environment")
	const at = `AttributeName("companions").ElementKeyString("db").AttributeName("health_check")`
	const says = `companions["db"].health_check must have command or port: without them, it checks nothing`
	for _, row := range []struct {
		check    any
		at, says string
	}{
		{values{}, at, says},
		{values{"start_period": "1m"}, at, says},
		{values{"start_period": "2m"}, at, says},
		{values{"interval": "2s", "timeout": "2s"}, at, says},
		{values{"interval": "0s"}, at, says},
		{values{"command": []any{}}, at, says},
		{nil, "", ""},
		{unknown{}, "", ""},
		{values{"port": 1}, "", ""},
		{values{"port": unknown{}}, "", ""},
		{values{"command": unknown{}}, "", ""},
		{values{"command": []any{"true"}, "interval": "2s"}, "", ""},
	} {
		wantRefused(t, c, values{"companions": values{"db": values{"image": "db", "health_check": row.check}}}, row.at,
			row.says)
	}
}

// An ephemeral lease with no time to open would fail after it has been acquired.
func TestNoTimeToOpenIsRefused(t *testing.T) {
	t.Parallel()
	p, schemas := unconfigured(t)
	for open, says := range map[string]string{
		"0s": `timeouts.open must be more than 0s, not "0s"`, "-1m": `timeouts.open must be more than 0s, not "-1m"`, "1m": "",
	} {
		got, err := p.ValidateEphemeralResourceConfig(t.Context(), &tfprotov6.ValidateEphemeralResourceConfigRequest{
			TypeName: "sandbox_lease",
			Config: dynamic(schemas.EphemeralResourceSchemas["sandbox_lease"].Block, values{
				"agent_did": "did:plc:ann", "environment_id": "leased", "timeouts": values{"open": open},
			}),
		})
		if must(t, err); says == "" && len(got.Diagnostics) > 0 || !strings.Contains(text(got.Diagnostics), says) {
			t.Errorf("open = %s: %s", open, text(got.Diagnostics))
		}
	}
}

// While the size of a warm pool is unknown, the rest of it is checked.
func TestAWarmPoolOfUnknownSizeIsChecked(t *testing.T) {
	t.Parallel()
	server, schemas, _, _ := newInMemory(t)
	c := newCore(server, schemas, "sandbox_environment")
	at := func(name string) string { return `AttributeName("warm_pool").AttributeName("` + name + `")` }
	for _, row := range []struct {
		pool     values
		at, says string
	}{
		{values{"mode": "awake"}, at("mode"), `warm_pool.mode must be paused or running, not "awake"`},
		{values{"ttl": "0s"}, at("ttl"), "warm_pool.ttl must be between 1m and 8760h"},
		{values{"max_size": 500}, at("max_size"), "warm_pool.max_size must be between warm_pool.size and 100, not 500"},
		{values{"max_size": 5, "mode": "running", "ttl": "1h", "paused": true}, "", ""},
		{values{}, "", ""},
	} {
		row.pool["size"] = unknown{}
		wantRefused(t, c, values{"warm_pool": row.pool}, row.at, row.says)
	}
	wantRefused(t, c, values{"warm_pool": unknown{}}, "", "")
}

// Errors show what was given and why it is refused.
func TestErrorsShowWhatWasGiven(t *testing.T) {
	t.Parallel()
	server, schemas, _, dir := newInMemory(t)
	c := newCore(server, schemas, "sandbox_environment")
	copies := make([]any, 17)
	for i := range copies {
		copies[i] = values{"source": dir, "target": "/workspace"}
	}
	for _, row := range []struct {
		v        values
		at, says string
	}{
		{
			values{"max_monthly_cost_usd": "1.0000000001", "expected_usage": values{}}, `AttributeName("max_monthly_cost_usd")`,
			`not "1.0000000001", which has more than nine digits after the point or is too large`,
		},
		{
			values{"max_monthly_cost_usd": "much", "expected_usage": values{}}, `AttributeName("max_monthly_cost_usd")`,
			`must be an amount of US dollars such as "15.61", not "much".`,
		},
		{
			values{"max_monthly_cost_usd": "-1", "expected_usage": values{}}, `AttributeName("max_monthly_cost_usd")`,
			`must be an amount of US dollars such as "15.61", not "-1".`,
		},
		{
			values{"expected_usage": values{"hours_per_day": 25}},
			`AttributeName("expected_usage").AttributeName("hours_per_day")`,
			`expected_usage.hours_per_day must be between 0 and 24, not 25.`,
		},
		{values{"copy": copies}, `AttributeName("copy")`, "copy must be at most 16, not 17"},
	} {
		wantRefused(t, c, row.v, row.at, row.says)
	}
}

// The password of a proxy is in no message.
func TestTheURLOfAProxyIsShownWithoutItsPassword(t *testing.T) {
	t.Parallel()
	p, schemas := unconfigured(t)
	for given, shown := range map[string]string{
		"proxy:3128":                            `not "proxy:3128"`,
		"ftp://proxy.example.com":               `not "ftp://proxy.example.com"`,
		"ftp://ann:hidden@proxy.example.com":    `not "ftp://ann:xxxxx@proxy.example.com"`,
		"ann:hidden@proxy.example.com:3128":     `not "xxxxx@proxy.example.com:3128"`,
		"http://ann:hidden@proxy.example.com:x": `not "xxxxx@proxy.example.com:x"`,
		"ftp://ann:1/hidden@proxy.example.com":  `not "xxxxx@proxy.example.com"`,
	} {
		got, err := p.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{
			Config: dynamic(schemas.Provider.Block, values{
				"reconciler": values{"url": "http://127.0.0.1:1", "token": "token", "proxy_url": given},
			}),
		})
		must(t, err)
		said := text(got.Diagnostics)
		if !strings.Contains(said, shown) || strings.Contains(said, "hidden") {
			t.Errorf("%s: it says %s, want %s", given, said, shown)
		}
	}
}
