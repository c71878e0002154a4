package api_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestOutputThatIsNoLongerKeptIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	want[sandbox.Session](w, w.do("POST", annIn+"/sessions", `{"id":"shell"}`), 201)
	want[wire.ExecResult](w, w.do("POST", annIn+"/sessions/shell/exec", `{"id":"build","command":["echo","hello"]}`), 200)
	for _, path := range []string{annIn + "/execs/build/stdout", annIn + "/sessions/shell/events"} {
		if a := w.do("GET", path, ""); a.StatusCode != 200 {
			t.Fatalf("%s is answered with %d: %s", path, a.StatusCode, a.body)
		}
	}
	err := w.store.Write(t.Context(), func(tx *ledger.Tx) error {
		return execs.In(tx).DropKept(ledger.KeptOfLedger, "", 0, 100, func(*execs.Exec) []string { return nil }, tx.Now)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{annIn + "/execs/build/stdout", annIn + "/sessions/shell/events"} {
		w.wantProblem(w.do("GET", path, ""), 410, sandbox.OutputExpired)
	}
	if a := w.do("GET", annIn+"/execs/build/stderr", ""); a.StatusCode != 200 || a.body != "" {
		t.Errorf("of what it did not write, %d: %s", a.StatusCode, a.body)
	}
	if x := want[sandbox.Exec](w, w.do("GET", annIn+"/execs/build", ""), 200); !x.DroppedAt.Equal(w.Now()) ||
		x.State != sandbox.ExecFinished || !x.Truncated {
		t.Errorf("the command is %+v", x)
	}
	if s := want[sandbox.Session](w, w.do("GET", annIn+"/sessions/shell", ""), 200); !s.DroppedAt.Equal(w.Now()) {
		t.Errorf("the session is %+v", s)
	}
}
