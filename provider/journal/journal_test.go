package journal_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
)

func lease(id string) journal.Object {
	return journal.Object{Kind: journal.Lease, LedgerID: "ledger", ID: id}
}

// begin begins a Create in its own run.
func begin(t *testing.T, dir string, o journal.Object, fresh string) (string, bool) {
	t.Helper()
	owner, resumed, err := journal.In(dir).Begin(o, fresh)
	if err != nil {
		t.Fatal(err)
	}
	return owner, resumed
}

func TestTheNextRunUsesTheOwnerOfACreateWhoseStateWasLost(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	a := lease("did:plc:a::game")
	if owner, resumed := begin(t, dir, a, "first"); owner != "first" || resumed {
		t.Errorf("the first run creates it as %q (resumed: %v)", owner, resumed)
	}
	if owner, resumed := begin(t, dir, a, "second"); owner != "first" || !resumed {
		t.Errorf("the second run creates it as %q (resumed: %v)", owner, resumed)
	}
	for name, other := range map[string]journal.Object{
		"lease":  lease("did:plc:b::game"),
		"ledger": {Kind: journal.Lease, LedgerID: "other", ID: a.ID},
		"kind":   {Kind: journal.Environment, LedgerID: "ledger", ID: a.ID},
	} {
		if owner, resumed := begin(t, dir, other, name); owner != name || resumed {
			t.Errorf("another %s is created as %q (resumed: %v)", name, owner, resumed)
		}
	}
}

// An entry that a killed process left half-written is replaced by the next one.
func TestAnEntryThatWasNotWrittenToItsEndLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "creating")
	a := lease("did:plc:a::game")
	begin(t, dir, a, "first")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the journal has %v, %v", files, err)
	}
	if err := os.Rename(files[0], files[0]+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(files[0]+".new", 3); err != nil {
		t.Fatal(err)
	}
	if owner, resumed := begin(t, dir, a, "second"); owner != "second" || resumed {
		t.Errorf("the next run creates it as %q (resumed: %v)", owner, resumed)
	}
	if err := journal.In(dir).Held(a, "second"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); !os.IsNotExist(err) {
		t.Errorf("the journal still has %v, %v", left, err)
	}
}

// An object that a state holds belongs to another resource: no Create takes it over.
func TestWhatAStateHoldsIsNotTakenOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := lease("did:plc:a::game")
	begin(t, dir, a, "first")
	if err := journal.In(dir).Held(a, "another"); err != nil {
		t.Fatal(err)
	}
	if owner, _ := begin(t, dir, a, "second"); owner != "first" {
		t.Errorf("a state that holds it of another owner ended its entry: %q", owner)
	}
	if err := journal.In(dir).Held(a, "first"); err != nil {
		t.Fatal(err)
	}
	if owner, resumed := begin(t, dir, a, "third"); owner != "third" || resumed {
		t.Errorf("the lease of a state is created as %q (resumed: %v)", owner, resumed)
	}
}

// Two resources of one configuration with the same lease are a mistake, which the service refuses.
func TestASecondResourceOfTheSameRunHasItsOwnOwner(t *testing.T) {
	t.Parallel()
	j := journal.In(t.TempDir())
	a := lease("did:plc:a::game")
	for _, fresh := range []string{"first", "second"} {
		if owner, resumed, err := j.Begin(a, fresh); owner != fresh || resumed || err != nil {
			t.Errorf("%s is %q (resumed: %v, %v)", fresh, owner, resumed, err)
		}
	}
}

func TestReplacingAnObjectStartsAgain(t *testing.T) {
	t.Parallel()
	j := journal.In(t.TempDir())
	a := lease("did:plc:a::game")
	for _, fresh := range []string{"first", "second"} {
		owner, resumed, err := j.Begin(a, fresh)
		if owner != fresh || resumed || err != nil {
			t.Errorf("%s is %q (resumed: %v, %v)", fresh, owner, resumed, err)
		}
		if err := j.Held(a, owner); err != nil { // its Delete
			t.Fatal(err)
		}
	}
}

func TestLostLeasesOfAnEnvironmentAreListed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin(t, dir, lease("did:plc:a::game"), "one")
	begin(t, dir, lease("did:plc:b::other"), "two")
	begin(t, dir, journal.Object{Kind: journal.Environment, LedgerID: "ledger", ID: "game"}, "three")
	begin(t, dir, journal.Object{Kind: journal.Lease, LedgerID: "other", ID: "did:plc:c::game"}, "four")
	if err := os.WriteFile(filepath.Join(dir, "1.new"), []byte("{"), 0o600); err != nil { // from a killed process
		t.Fatal(err)
	}
	lost, err := journal.In(dir).Lost("ledger", "game")
	if err != nil || len(lost) != 1 || lost[0].ID != "did:plc:a::game" || lost[0].Owner != "one" {
		t.Errorf("lost are %+v (%v)", lost, err)
	}
	if lost, err := journal.In(filepath.Join(dir, "none")).Lost("ledger", "game"); err != nil || len(lost) != 0 {
		t.Errorf("without a directory, lost are %+v (%v)", lost, err)
	}
}

func TestEachWorkspaceHasItsJournal(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	env := map[string]string{"TF_DATA_DIR": data}
	dir := func() string { return journal.Dir(func(name string) string { return env[name] }) }
	byDefault := dir()
	if err := os.WriteFile(filepath.Join(data, "environment"), []byte("staging\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	staging := dir()
	env["TF_WORKSPACE"] = "default"
	if again := dir(); again != byDefault || staging == byDefault {
		t.Errorf("default is in %s and %s, staging in %s", byDefault, again, staging)
	}
}

func TestNoJournalRemembersNothing(t *testing.T) {
	t.Parallel()
	var none *journal.Journal
	if owner, resumed, err := none.Begin(lease("did:plc:a::game"), "fresh"); owner != "fresh" || resumed || err != nil {
		t.Errorf("%q, %v, %v", owner, resumed, err)
	}
	if err := none.Held(lease("did:plc:a::game"), "fresh"); err != nil {
		t.Error(err)
	}
	if lost, err := none.Lost("ledger", "game"); err != nil || lost != nil {
		t.Errorf("%v, %v", lost, err)
	}
}
