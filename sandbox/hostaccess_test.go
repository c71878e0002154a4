package sandbox_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestABlockedVariableIsRefusedWhereverItStands(t *testing.T) {
	t.Parallel()
	type spec = sandbox.EnvironmentSpec
	for name, row := range map[string]struct {
		change         func(s *spec)
		field, problem string
	}{
		"set and free": {change: func(s *spec) { s.Env = map[string]string{"SEED": "42"} }},
		"passed and set": {
			change: func(s *spec) { s.Env, s.EnvPassthrough = map[string]string{"LANG": "C"}, []string{"LANG"} },
		},
		"set": {func(s *spec) { s.Env = map[string]string{"AWS_SECRET_ACCESS_KEY": "x"} },
			"env.AWS_SECRET_ACCESS_KEY", "blocked in every sandbox"},
		"set in small letters": {func(s *spec) { s.Env = map[string]string{"database_url": "x"} },
			"env.database_url", "blocked"},
		"passed": {func(s *spec) { s.EnvPassthrough = []string{"LANG", "JWT_SECRET"} },
			"env_passthrough[1]", "JWT_SECRET"},
		"of this program": {func(s *spec) { s.EnvPassthrough = []string{"SANDBOX_RECONCILER_TOKEN"} },
			"env_passthrough[0]", "blocked"},
		"blocked by the user": {func(s *spec) { s.Env, s.EnvBlocked = map[string]string{"SEED": "42"}, []string{"SEED"} },
			"env.SEED", "env_blocked"},
		"passed and blocked by the user": {func(s *spec) {
			s.EnvPassthrough, s.EnvBlocked = []string{"LANG"}, []string{"LANG"}
		},
			"env_passthrough[0]", "env_blocked"},
		"in a list that names others": {func(s *spec) {
			s.Env, s.EnvBlocked = map[string]string{"SECRET_KEY": "x"}, []string{"SEED"}
		},
			"env.SECRET_KEY", "every sandbox"}, // the user's list does not replace ours
		"of the system":       {func(s *spec) { s.Env = map[string]string{"AGENT_DID": "x"} }, "env.AGENT_DID", "by the system"},
		"a bad name":          {func(s *spec) { s.EnvPassthrough = []string{"A=B"} }, "env_passthrough[0]", "not a valid name"},
		"a bad name to block": {func(s *spec) { s.EnvBlocked = []string{"A B"} }, "env_blocked[0]", "not a valid name"},
	} {
		field, problem := wrongField(t, put(row.change))
		if field != row.field || !strings.Contains(problem, row.problem) {
			t.Errorf("%s: %q is wrong: %q; want %q and %q", name, field, problem, row.field, row.problem)
		}
	}
	_, err := sandbox.ExecRequest{Command: []string{"env"}, Env: map[string]string{"STRIPE_SECRET_KEY": "x"}}.Normalize()
	if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "env.STRIPE_SECRET_KEY") {
		t.Errorf("of a command: %v", err)
	}
}

func many[T any](n int, one func(i int) T) (all []T) {
	for i := range n {
		all = append(all, one(i))
	}
	return all
}

func TestPathsThatHideOrEscapeAreRefusedByName(t *testing.T) {
	t.Parallel()
	mounts := func(m ...sandbox.Mount) sandbox.HostAccess { return sandbox.HostAccess{Mounts: m} }
	copies := func(c ...sandbox.Copy) sandbox.HostAccess { return sandbox.HostAccess{Copies: c} }
	mount := func(i int) sandbox.Mount { return sandbox.Mount{Source: "/srv", Target: fmt.Sprintf("/mnt/%d", i)} }
	copyOf := func(i int) sandbox.Copy { return sandbox.Copy{Source: "/srv", Target: fmt.Sprintf("/workspace/%d", i)} }
	for name, row := range map[string]struct {
		a     sandbox.HostAccess
		field string
	}{
		"a mount":                  {a: mounts(sandbox.Mount{Source: "/srv/rules", Target: "/mnt/rules"})},
		"a mount in the workspace": {a: mounts(sandbox.Mount{Source: "/srv/rules", Target: "/workspace/rules"})},
		"a relative source":        {mounts(sandbox.Mount{Source: "rules", Target: "/mnt"}), "mounts[0].source"},
		"a source with ..":         {mounts(sandbox.Mount{Source: "/srv/../etc", Target: "/mnt"}), "mounts[0].source"},
		"a target with ..":         {mounts(sandbox.Mount{Source: "/srv", Target: "/mnt/../proc"}), "mounts[0].target"},
		"the root for a target":    {mounts(sandbox.Mount{Source: "/srv", Target: "/"}), "mounts[0].target"},
		"the workspace itself":     {mounts(sandbox.Mount{Source: "/srv", Target: "/workspace"}), "mounts[0].target"},
		"kept data":                {mounts(sandbox.Mount{Source: "/srv", Target: "/data/x"}), "mounts[0].target"},
		"over the guest":           {mounts(sandbox.Mount{Source: "/srv", Target: "/.sandbox"}), "mounts[0].target"},
		"over the channel": {mounts(sandbox.Mount{Source: "/srv", Target: "/.sandbox-channel"}),
			"mounts[0].target"},
		"over the egress path": {mounts(sandbox.Mount{Source: "/srv", Target: "/.sandbox-egress/x"}),
			"mounts[0].target"},
		"over the lease's file": {mounts(sandbox.Mount{Source: "/srv", Target: "/workspace/config.json"}),
			"mounts[0].target"},
		"over secrets":    {mounts(sandbox.Mount{Source: "/srv", Target: "/run/secrets"}), "mounts[0].target"},
		"over the kernel": {mounts(sandbox.Mount{Source: "/srv", Target: "/proc/sys"}), "mounts[0].target"},
		"one over another": {mounts(sandbox.Mount{Source: "/a", Target: "/mnt"},
			sandbox.Mount{Source: "/b", Target: "/mnt/b"}), "mounts[1].target"},
		"a copy":                      {a: copies(sandbox.Copy{Source: "/srv/rules.txt", Target: "/workspace/rules.txt"})},
		"a copy out of the workspace": {copies(sandbox.Copy{Source: "/srv", Target: "/etc"}), "copies[0].target"},
		"a copy over the lease's file": {copies(sandbox.Copy{Source: "/srv/c", Target: "/workspace/config.json"}),
			"copies[0].target"},
		"a copy below the lease's file": {copies(sandbox.Copy{Source: "/srv/c", Target: "/workspace/config.json/c"}),
			"copies[0].target"},
		"a copy of a relative source": {copies(sandbox.Copy{Source: "srv", Target: "/data"}), "copies[0].source"},
		"a copy to a relative target": {copies(sandbox.Copy{Source: "/srv", Target: "rules"}), "copies[0].target"},
		"too many mounts":             {mounts(many(17, mount)...), "mounts"},
		"too many copies":             {copies(many(17, copyOf)...), "copies"},
		"as many as there may be":     {a: sandbox.HostAccess{Mounts: many(16, mount), Copies: many(16, copyOf)}},
	} {
		if field, problem := wrongField(t,
			put(func(s *sandbox.EnvironmentSpec) { s.HostAccess = row.a })); field != row.field {
			t.Errorf("%s: %q is wrong: %q; want %q", name, field, problem, row.field)
		}
	}
}
