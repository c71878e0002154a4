package environments_test

import (
	"net/http"
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

	// The first answer is no action that this turn allows; told so, the model gives another.
	answers := []string{
		`{"action": "build_settlement", "vertex": "V17"}`,
		`{"action": "trade_bank", "give": {"wool": 4}, "receive": {"grain": 1}}`,
	}
	w.model.say(answers...)
	record := w.tell(ada, "game.turn.notify", 3, table)
	if got := compact(t, record.Record.Action); got != `{"action":"trade_bank","give":{"wool":4},"receive":{"grain":1}}` {
		t.Errorf("the action is %s", got)
	}
	asked := w.model.questions()
	if len(asked) != 2 || !strings.Contains(asked[0][0].Content, "# Skill: playing Catan") ||
		!strings.Contains(asked[1][3].Content, "one of end_turn, offer_trade, trade_bank or skip_turn") {
		t.Errorf("the model was asked %+v", asked)
	}

	// The other player's turn is the game server's own call, and no record.
	w.model.reply(func([]message) (int, string) { return http.StatusOK, `{"action": "end_turn"}` })
	if a := w.turn(brin, table); a["action"] != "end_turn" {
		t.Errorf("the action is %v", a)
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
		t.Errorf("after the end of the game, %d sandboxes are there", n)
	}
	if p := w.terraform.Plan(); len(p.Changes) > 0 {
		t.Errorf("an ended game plans %v", p.Changes)
	}
	w.destroy()
}
