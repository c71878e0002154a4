package provider_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The plan refuses a written size of /tmp or /run above its part of the memory, whatever gives the memory: the
// configuration, its default, or a former default that the environment keeps. It refuses no default.
func TestDirectoriesAboveTheirPartOfTheMemoryAreRefusedAtPlan(t *testing.T) {
	t.Parallel()
	server, schemas, engine, _ := newInMemory(t)
	config := func(more map[string]any) tftypes.Value {
		more["name"], more["image"], more["network"] = "game", "player", map[string]any{"mode": "none"}
		return valueOf(schemas.ResourceSchemas["sandbox_environment"].Block.ValueType(), more)
	}
	type object = map[string]any
	memory := func(mb any) object { return object{"memory_mb": mb} }
	tests := map[string]struct {
		config object
		former bool   // the environment exists, with the former default of 4096 MiB
		says   string // "" if it is accepted
	}{
		"defaults":                {config: object{"confinement": object{"open_files": 99}}},
		"defaults of a small one": {config: object{"confinement": object{"open_files": 99}, "resources": memory(64)}},
		"the most":                {config: object{"confinement": object{"tmp_mb": 256, "run_mb": 32}}},
		"too large a /tmp": {
			config: object{"confinement": object{"tmp_mb": 32768}},
			says:   "confinement.tmp_mb must be at most 256, half of the 512 MiB of memory, not 32768",
		},
		// Generated configuration has the defaults.
		"the defaults, but written": {config: object{"confinement": object{"tmp_mb": 512, "run_mb": 16}}},
		"the default, but written, of a small one": {
			config: object{"confinement": object{"run_mb": 16}, "instance_type": "lite", "type": "rpg"},
		},
		"too large a /run": {
			config: object{"confinement": object{"run_mb": 17}, "instance_type": "lite"},
			says:   "confinement.run_mb must be at most 16, a sixteenth of the 256 MiB of memory, not 17",
		},
		"a part of what is written": {
			config: object{"confinement": object{"tmp_mb": 513}, "resources": memory(1024)},
			says:   "confinement.tmp_mb must be at most 512, half of the 1024 MiB of memory, not 513",
		},
		"an unknown memory":        {config: object{"confinement": object{"tmp_mb": 2000}, "resources": memory(unknown{})}},
		"an unknown size":          {config: object{"confinement": object{"tmp_mb": 2000}, "resources": unknown{}}},
		"an unknown instance type": {config: object{"confinement": object{"tmp_mb": 2000}, "instance_type": unknown{}}},
		"an unknown /tmp":          {config: object{"confinement": object{"tmp_mb": unknown{}}}},
		"a kept memory":            {config: object{"confinement": object{"tmp_mb": 2048}}, former: true},
		"nothing's /tmp": {
			config: object{"confinement": object{"tmp_mb": 32769}, "resources": memory(unknown{})},
			says:   "confinement.tmp_mb must be between 1 and 32768, not 32769",
		},
		"on Cloudflare": {config: object{"confinement": object{"tmp_mb": 512}, "backend": "cloudflare"}},
		"a kept memory, named in part": {
			config: object{"confinement": object{"tmp_mb": 2048}, "resources": object{"pids_limit": 99}}, former: true,
		},
		"above a kept memory": {
			config: object{"confinement": object{"tmp_mb": 2049}}, former: true,
			says: "confinement.tmp_mb must be at most 2048, half of the 4096 MiB of memory, not 2049",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCore(server, schemas, "sandbox_environment")
			if tt.former {
				begin := config(object{})
				must(t, c.change(t.Context(), begin, begin))
				env, err := engine.GetEnvironment(t.Context(), "game")
				must(t, err)
				env.Resources = sandbox.FormerDefaultResources
				_, err = engine.PutEnvironment(t.Context(),
					sandbox.PutEnvironment{ID: env.ID, Owner: env.Owner, EnvironmentSpec: env.EnvironmentSpec})
				must(t, err)
				must(t, c.refresh(t.Context()))
				defer func() { must(t, c.destroy(t.Context())) }()
			}
			if strings.Contains(name, "named in part") { // the state has kept the size, as figures
				whole := config(object{"resources": object{"memory_mb": 4096, "cpus": 2}})
				must(t, c.change(t.Context(), whole, whole))
			}
			_, _, _, err := c.plan(t.Context(), c.state, config(tt.config))
			var r refusal
			switch {
			case tt.says == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case tt.says == "":
			case !errors.As(err, &r) || len(r) != 1 || !strings.Contains(r[0].Detail, tt.says):
				t.Errorf("it says %v, want %s", err, tt.says)
			case !strings.HasPrefix(r[0].Attribute.String(), `AttributeName("confinement").AttributeName("`):
				t.Errorf("the error is at %s", r[0].Attribute)
			}
		})
	}
}
