package harness

import (
	"encoding/json"
	"testing"
)

// Lines as Terraform 1.11.4 prints them, shortened.
const stream = `{"@level":"info","@message":"Terraform 1.11.4","type":"version","ui":"1.2"}
{"@level":"warn","@message":"Warning: Lease Ended","type":"diagnostic","diagnostic":{"severity":"warning","summary":"Lease Ended","detail":"by game.finished","address":"sandbox_lease.a"}}
{"@level":"info","@message":"Plan: 1 to add, 0 to change, 0 to destroy.","type":"change_summary","changes":{"add":1,"change":0,"import":0,"remove":0,"operation":"plan"}}
`

func TestWarningsAndSummaryAreReadFromThePlansLines(t *testing.T) {
	t.Parallel()
	p, err := readStream(stream)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Diagnostic{"warning", "Lease Ended", "by game.finished", "sandbox_lease.a"}); len(p.Warnings) != 1 ||
		p.Warnings[0] != want {
		t.Errorf("warnings = %+v, want %+v", p.Warnings, want)
	}
	if p.Summary != "Plan: 1 to add, 0 to change, 0 to destroy." {
		t.Errorf("summary = %q", p.Summary)
	}
	if _, err := readStream("Error: not JSON"); err == nil {
		t.Error("a line that is not JSON was accepted")
	}
}

func TestNoOpsAndReadsAreNotEffective(t *testing.T) {
	t.Parallel()
	var p Plan
	changes := `[{"address":"a","change":{"actions":["no-op"]}},{"address":"b","change":{"actions":["read"]}},{"address":"c","change":{"actions":["delete","create"]}}]`
	if err := json.Unmarshal([]byte(changes), &p.Changes); err != nil {
		t.Fatal(err)
	}
	if got := p.Effective(); len(got) != 1 || got[0].Address != "c" {
		t.Errorf("effective changes = %+v, want c alone", got)
	}
}
