package provider_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"pgregory.net/rapid"
)

// two are secrets of an environment.
var two = values{
	"api_key":     values{"value_wo": "a", "value_wo_version": 1},
	"db_password": values{"value_wo": "b", "value_wo_version": 1},
}

// Rules about two fields refuse nothing that the unknown one may make valid.
func TestUnknownValuesAreTakenForValid(t *testing.T) {
	t.Parallel()
	server, schemas, _, _ := newInMemory(t)
	c := newCore(server, schemas, "sandbox_environment")
	git := func(v values) values { return values{"git": v} }
	llm := func(credential any) values {
		prices := values{"input_usd_per_million": "1", "output_usd_per_million": "1"}
		return values{"main": values{"api": "openai", "credential": credential, "models": values{"m": prices}}}
	}
	db := func(secrets any) values { return values{"db": values{"image": "db", "secrets": secrets}} }
	token := values{"github.com": values{"secret": "t"}}
	const (
		keys  = "git.example.com ssh-ed25519 AAAA"
		https = "https://git.example.com/team/app.git"
	)
	for _, v := range []values{
		{"secrets": two, "workspace": git(values{"url": unknown{}, "credential_secret": "api_key", "known_hosts": keys})},
		{"secrets": two, "workspace": git(values{"url": unknown{}, "credential_secret": unknown{}, "known_hosts": keys})},
		{"workspace": git(values{"url": https, "known_hosts": unknown{}})},
		{"workspace": values{"git": values{"url": "file:///srv/app"}, "push_prefix": unknown{}}},
		{"workspace": values{"git": values{"url": unknown{}}, "push_prefix": "agents/"}},
		{"workspace": values{"git": values{"url": https}, "path": unknown{}}, "mount": []any{
			values{"source": "/srv/app", "target": "/workspace/app"}}},
		{"workspace": git(values{"url": unknown{}}), "copy": []any{values{"source": "/srv/app", "target": unknown{}}}},
		{"secrets": unknown{}, "network": values{"mode": unknown{}, "allow": []any{"github.com"}, "credentials": token}},
		{"secrets": unknown{}, "network": values{"mode": unknown{}, "allow": unknown{}, "credentials": token}},
		{"secrets": unknown{}, "network": values{"allow": []any{"github.com", unknown{}}, "credentials": token}},
		{"secrets": unknown{}, "network": values{"allow": []any{"github.com:80", unknown{}}, "credentials": token}},
		{"network": values{"mode": "none", "allow": unknown{}}},
		{"network": values{
			"mode": "full", "allow": unknown{}, "private_cidrs": unknown{}, "credentials": unknown{}, "authorities": unknown{}}},
		{"secrets": two, "llm": llm("api_key"), "companions": db([]any{unknown{}})},
		{"secrets": two, "llm": llm(unknown{}), "companions": db([]any{"api_key"})},
		{"secrets": two, "llm": llm(unknown{}), "companions": db([]any{unknown{}})},
		{"secrets": unknown{}, "llm": llm(unknown{}), "companions": db([]any{"api_key", unknown{}})},
		{"secrets": two, "companions": db([]any{"api_key"}),
			"workspace": git(values{"url": https, "credential_secret": unknown{}})},
		{"secrets": two, "companions": db([]any{"api_key", "db_password"}),
			"workspace": git(values{"url": https, "credential_secret": unknown{}})},
		{"secrets": two, "companions": db([]any{"api_key"}), "archive": []any{values{"url": "https://a.example.com/a.tar",
			"sha256": unknown{}, "target": "/workspace", "credential_secret": unknown{}, "credential_header": "X-Key"}}},
		{"backend": "cloudflare", "confinement": unknown{}},
		{"backend": "cloudflare", "confinement": values{"allow_root": unknown{}}},
		{"backend": "cloudflare", "workspace": unknown{}},
		{"backend": "cloudflare", "warm_pool": unknown{}},
		{"confinement": values{"allow_root": unknown{}, "user": "0:0"}},
	} {
		wantRefused(t, c, v, "", "")
	}
	const at, companion = `AttributeName("workspace").AttributeName(`,
		`AttributeName("companions").ElementKeyString("db").AttributeName("secrets")`
	for _, row := range []struct {
		v        values
		at, says string
	}{
		{
			values{"workspace": git(values{"url": https, "known_hosts": keys}), "network": unknown{}},
			at + `"git").AttributeName("known_hosts")`, "must not be set without ssh",
		},
		{
			values{"workspace": values{"git": values{"url": "file:///srv/app"}, "push_prefix": "a/", "path": unknown{}}},
			at + `"push_prefix")`, "must not be set with file://",
		},
		{
			values{"secrets": unknown{}, "llm": llm("api_key"), "companions": db([]any{"api_key", unknown{}})},
			companion, `must not be "api_key"`,
		},
		{
			values{"backend": "cloudflare", "confinement": values{"allow_root": unknown{}, "user": "1000"}},
			`AttributeName("confinement")`, "must not be set on Cloudflare",
		},
		{
			values{"network": values{"mode": "none", "allow": unknown{}, "private_cidrs": []any{"10.0.0.0/8"}}},
			`AttributeName("network").AttributeName("private_cidrs")`, `requires network.mode "restricted"`,
		},
	} {
		wantRefused(t, c, row.v, row.at, row.says)
	}
}

// blur makes some values unknown, and some of the omitted ones.
func blur(t *rapid.T, attributes []*tfprotov6.SchemaAttribute, known map[string]any, at string) map[string]any {
	blurred := map[string]any{}
	for _, a := range attributes {
		here := at + a.Name
		v, set := known[a.Name]
		switch {
		case !a.Required && !a.Optional:
		case rapid.IntRange(0, 9).Draw(t, here+" is unknown") == 0:
			blurred[a.Name] = unknown{}
		case set:
			blurred[a.Name] = blurWithin(t, a, v, here)
		}
	}
	return blurred
}

// blurWithin blurs the elements of a value. Objects in lists and maps stay known: for an unknown one, the framework
// reports each required attribute as missing.
func blurWithin(t *rapid.T, a *tfprotov6.SchemaAttribute, v any, here string) any {
	one := func(v any) any {
		object, ok := v.(map[string]any)
		switch {
		case ok && a.NestedType != nil:
			return blur(t, a.NestedType.Attributes, object, here+".")
		case rapid.IntRange(0, 4).Draw(t, here+" has an unknown element") == 0:
			return unknown{}
		default:
			return v
		}
	}
	switch v := v.(type) {
	case []any:
		blurred := make([]any, len(v))
		for i := range v {
			blurred[i] = one(v[i])
		}
		return blurred
	case map[string]any:
		if a.NestedType != nil && a.NestedType.Nesting == tfprotov6.SchemaObjectNestingModeSingle {
			return blur(t, a.NestedType.Attributes, v, here+".")
		}
		blurred := map[string]any{}
		for key := range v {
			blurred[key] = one(v[key])
		}
		return blurred
	default:
		return v
	}
}

// An environment that may be created may be planned while any of its values are unknown.
func TestUnknownValuesOfAValidEnvironmentAreNotRefused(t *testing.T) {
	t.Parallel()
	server, schemas, _, dir := newInMemory(t)
	c := newCore(server, schemas, "sandbox_environment")
	of := soundEnvironment(dir)
	of["network.mode"] = []any{"restricted", "none", "full"}
	of["companions.secrets"] = []any{[]any{"one"}, []any{"api_key"}, []any{"api_key", "db_password"}}
	of["workspace.git.url"] = []any{
		"https://git.example.com/team/app.git", "ssh://git@git.example.com/team/app.git", "file:///srv/app",
	}
	cases, valid := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		known := of.consistent(rt, c)
		if secrets, ok := known["secrets"].(map[string]any); ok {
			secrets["api_key"], secrets["db_password"] = two["api_key"], two["db_password"]
		}
		if rapid.IntRange(0, 3).Draw(rt, "on Cloudflare") == 0 {
			known["backend"] = "cloudflare"
			for _, name := range []string{
				"archive", "companions", "confinement", "image_pull", "mount", "network", "sleep_mode", "warm_pool", "workspace",
			} {
				delete(known, name)
			}
		}
		cases++
		kind := c.block.ValueType()
		if _, _, _, err := c.plan(t.Context(), c.state, valueOf(kind, known)); err != nil {
			return
		}
		valid++
		if _, _, _, err := c.plan(t.Context(), c.state, valueOf(kind, blur(rt, c.fields, known, ""))); err != nil {
			rt.Fatalf("%v: %v", known, err)
		}
	})
	t.Logf("%d of %d cases are valid", valid, cases)
	if valid == 0 {
		t.Error("no case is valid")
	}
}
