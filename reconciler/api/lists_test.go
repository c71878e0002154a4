package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestEveryListChecksItsPageSize finds the lists in the document. Each documents the bounds of its limit and enforces
// them.
func TestEveryListChecksItsPageSize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	w.do("POST", annIn+"/sessions", `{"id":"s"}`)
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name   string `json:"name"`
				Schema struct{ Minimum, Maximum float64 }
			} `json:"parameters"`
		} `json:"paths"`
	}
	if err := json.Unmarshal([]byte(w.do("GET", "/openapi.json", "").body), &doc); err != nil {
		t.Fatal(err)
	}
	lists := 0
	for path, methods := range doc.Paths {
		for _, p := range methods["get"].Parameters {
			if p.Name != "limit" {
				continue
			}
			lists++
			if p.Schema.Minimum != 1 || p.Schema.Maximum < 100 || p.Schema.Maximum > 1000 {
				t.Errorf("%s says %v to %v", path, p.Schema.Minimum, p.Schema.Maximum)
			}
			path := strings.NewReplacer("{id}", "did:plc:ann::catan-7", "{session}", "s").Replace(path) + "?"
			if strings.Contains(path, "/files/") {
				path += "path=/workspace&"
			}
			for _, limit := range []string{"-1", "0", "1001", "100000"} {
				w.wantProblem(w.do("GET", path+"limit="+limit, ""), 422, sandbox.Invalid, "limit")
			}
			if a := w.do("GET", path+"limit=1", ""); a.StatusCode != 200 {
				t.Errorf("%s: %d %s", path, a.StatusCode, a.body)
			}
		}
	}
	if lists < 10 {
		t.Errorf("there are %d lists", lists)
	}
}

func TestAnUnknownStateIsNoFilter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	for path, valid := range map[string]string{
		annIn + "/sessions?state=": "[open closed]",
		annIn + "/execs?state=":    "[running finished failed cancelled]",
	} {
		a := w.do("GET", path+"foo", "")
		if w.wantProblem(a, 422, sandbox.Invalid, "state"); !strings.Contains(a.body, valid) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

func TestASessionIsNewOnceAndNotAfterItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	open := func() answer { return w.do("POST", annIn+"/sessions", `{"id":"s"}`) }
	if s := want[sandbox.Session](w, open(), 201); !s.IsNew {
		t.Errorf("the new session is %+v", s)
	}
	if s := want[sandbox.Session](w, open(), 200); s.IsNew {
		t.Errorf("the repeated one is %+v", s)
	}
	want[sandbox.Session](w, w.do("DELETE", annIn+"/sessions/s", ""), 200)
	if p := w.wantProblem(open(), 409, sandbox.Conflict); p.Reason != sandbox.ReasonSessionClosed {
		t.Errorf("the closed one is refused with %+v", p)
	}
}
