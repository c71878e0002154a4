package sandbox_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// FuzzShellState: the state of a shell line comes from a sandbox. Whatever it contains, the session must stay usable.
func FuzzShellState(f *testing.F) {
	f.Add(`{"Cwd":"/workspace/a","Set":{"A":"1"},"Unset":["B"]}`)
	f.Add(`{"Cwd":"/workspace/../etc","Set":{"DB_PASSWORD":"1","A=B":"2","C":"a\u0000"}}`)
	f.Add(`{"Outside":"/etc","Set":{"MINE":"3"}}`)
	f.Add(`{"Problem":"too much"}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		var left *sandbox.ShellState
		if json.Unmarshal([]byte(text), &left) != nil {
			return
		}
		before := map[string]string{"A": "0", "B": "0"}
		env, cwd, _ := left.Apply(before, "/data", []string{"MINE"})
		if !maps.Equal(before, map[string]string{"A": "0", "B": "0"}) {
			t.Errorf("the session's own variables were changed to %v", before)
		}
		next := sandbox.CreateSession{Env: env, Cwd: cwd}
		if got, err := next.Normalize(""); err != nil || got.Cwd != cwd {
			t.Errorf("no command can begin in %q with %v: %v", cwd, env, err)
		}
		if _, has := env["MINE"]; has {
			t.Error("a blocked variable is kept")
		}
		if left != nil && left.Problem != "" && (cwd != "/data" || !maps.Equal(env, before)) {
			t.Errorf("of what has a problem, %q and %v are kept", cwd, env)
		}
	})
}
