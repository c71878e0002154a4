package environments_test

import (
	"strings"
	"testing"
)

const (
	ada  = "did:plc:ada"
	brin = "did:plc:brin"
)

func TestCatan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "catan")
	w.apply(ada, brin)
	table := map[string]any{
		"hand":          map[string]int{"brick": 1, "lumber": 1, "wool": 5},
		"free_vertices": []any{map[string]any{"id": "V17", "pips": 10}},
		"legal_actions": []string{"trade_bank", "offer_trade", "end_turn"},
	}

	// The agent uses tools. This turn does not allow its first action. The model learns that, and chooses another one.
	w.model.say(
		uses("bash", map[string]any{"command": "echo $((5 - 4)) wool is left | tee /data/plan.txt"}),
		uses("read", map[string]any{"path": "/data/plan.txt"}),
		uses("build_settlement", map[string]any{"vertex": "V17"}),
		uses("trade_bank", map[string]any{"give": map[string]int{"wool": 4}, "receive": map[string]int{"grain": 1}}),
	)
	record := w.tell(ada, "game.turn.notify", 3, table)
	if got := compact(t, record.Record.Action); got != `{"action":"trade_bank","give":{"wool":4},"receive":{"grain":1}}` {
		t.Errorf("the action is %s", got)
	}
	asked := w.model.questions()
	if len(asked) != 4 || !strings.Contains(asked[0][0].Content, "# Skill: playing Catan") {
		t.Fatalf("the model was asked %+v", asked)
	}
	if results := seen(asked[3]); results[0] != "1 wool is left\n" || results[1] != "1 wool is left\n" ||
		!strings.HasSuffix(results[2], "edit, trade_bank, offer_trade, end_turn, skip_turn") {
		t.Errorf("the model has seen %q", results)
	}
	if log := w.logs(); !strings.Contains(log, `{"event": "tool.invoke", "id": "call-1", "tool": "bash"`) {
		t.Errorf("the watcher's log lacks the agent's actions:\n%s", log)
	}

	// The game server itself asks for the other player's turn, so there is no record.
	w.model.say(uses("end_turn", none))
	if a := w.turn(brin, table); a["action"] != "end_turn" {
		t.Errorf("the action is %v", a)
	}
	if got := w.model.latestTurn(); got != w.name+":1" {
		t.Errorf("the call is for %q", got)
	}
	if posted := w.relay.posted(brin); len(posted) > 0 {
		t.Errorf("brin has posted %+v", posted)
	}

	// One condition ends the leases of all players.
	if n := w.running(); n != 2 {
		t.Errorf("two players have %d sandboxes", n)
	}
	w.send("game.finished", "")
	if n := w.running(); n != 0 {
		t.Errorf("%d sandboxes remain after the end of the game", n)
	}
	if p := w.terraform.Plan(); len(p.Changes) > 0 {
		t.Errorf("an ended game plans %v", p.Changes)
	}
	w.bill(ada, brin)
	w.shownBill(ada, brin)
	w.destroy()
}
