package environments_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

const (
	kira  = "did:plc:kira"
	thorn = "did:plc:thorn"
)

// room is the state of a turn.
var room = map[string]any{
	"hp":        5,
	"max_hp":    24,
	"inventory": map[string]int{"healing potion": 1},
	"enemies":   []any{map[string]any{"name": "orc", "hp": 12}},
}

func TestRPG(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "rpg")
	w.apply(kira, thorn)

	// The relay tells of a turn: the agent's action is a record of its repository, once.
	w.model.say("```json\n{\"action\": \"use_item\", \"item\": \"healing potion\", \"reason\": \"One more hit could " +
		"kill me.\", \"remember\": \"The orc hits for up to 8.\"}\n```")
	record := w.tell(kira, "game.turn.notify", 12, room)
	if want := `{"action":"use_item","item":"healing potion","reason":"One more hit could kill me."}`; compact(t,
		record.Record.Action) != want || record.Collection != "game.action" {
		t.Errorf("the record is %s in %s", record.Record.Action, record.Collection)
	}
	asked := w.model.questions()
	if len(asked) != 1 || !strings.Contains(asked[0][0].Content, "# Skill: playing a role-playing campaign") ||
		!strings.Contains(asked[0][0].Content, "hunting knife") ||
		!strings.Contains(asked[0][1].Content, `"healing potion": 1`) {
		t.Errorf("the model was asked %+v", asked)
	}

	// A turn that the game server asks for itself, with what the agent remembers; the relay may cut the
	// connection meanwhile.
	w.relay.cut()
	w.model.say(`{"action": "attack", "target": "orc"}`)
	if a := w.turn(kira, room); a["action"] != "attack" || a["target"] != "orc" {
		t.Errorf("the action is %v", a)
	}
	if asked := w.model.questions(); len(asked) != 1 ||
		!strings.Contains(asked[0][0].Content, "The orc hits for up to 8.") {
		t.Errorf("the model was asked %+v", asked)
	}
	w.until("the watcher listens again", func() bool { return len(w.relay.listening(kira, "game.turn.notify")) == 1 })
	w.relay.tell(t, kira, "game.turn.notify", map[string]any{"environment": w.name, "turn": 12, "state": room})
	w.tell(kira, "game.turn.notify", 13, room)
	if posted := w.relay.posted(kira); len(posted) != 2 {
		t.Errorf("two turns have the records %+v", posted)
	}
	w.skips()

	// Nothing else can be reached.
	var reached atomic.Bool
	evil, _ := w.outside.serve(t, "evil.test",
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	said := w.shell(kira, "python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=60)' "+evil)
	if reached.Load() || !strings.Contains(said, "HTTP Error 403") {
		t.Errorf("a host that is not allowed: reached %v, %s", reached.Load(), said)
	}

	// A death ends one sandbox, the end of the game all.
	w.send("agent.death", kira)
	if n := w.running(); n != 1 {
		t.Errorf("after the death of one of two, %d sandboxes are there", n)
	}
	if a := w.turn(kira, room); a["action"] != "skip_turn" || !strings.Contains(a["reason"].(string), "lease_ended") {
		t.Errorf("the turn of the dead is %v", a)
	}
	w.send("game.finished", "")
	if n := w.running(); n != 0 {
		t.Errorf("after the end of the game, %d sandboxes are there", n)
	}
	w.destroy()
}

// skips looks at every way in which a turn is skipped.
func (w *world) skips() {
	w.Helper()
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	for name, c := range map[string]struct {
		answer func([]message) (int, string)
		reason string
		args   []string
	}{
		"words": {func([]message) (int, string) { return http.StatusOK, "I attack the orc!" },
			"the model gave no action: it is not one JSON object", nil},
		"an unknown action": {func([]message) (int, string) { return http.StatusOK, `{"action": "win"}` },
			"the model gave no action: action must be one of attack, cast,", nil},
		"a refused key": {func([]message) (int, string) { return http.StatusForbidden, strings.Repeat("no ", 400) },
			"take_turn: " + w.model.url + "/v1/chat/completions was asked 1 times: 403", nil},
		"a model that hangs": {func([]message) (int, string) { <-released; return http.StatusOK, "{}" },
			"the turn took more than 2 s", []string{"--timeout", "2"}},
	} {
		w.model.reply(c.answer)
		a := w.turn(kira, room, c.args...)
		if c.args != nil {
			release()
		}
		reason, _ := a["reason"].(string)
		if a["action"] != "skip_turn" || !strings.HasPrefix(reason, c.reason) || len([]rune(reason)) > 500 {
			w.Errorf("%s: the action is %v", name, a)
		}
	}
}

func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var v map[string]any
	must(t, json.Unmarshal(raw, &v))
	text, err := json.Marshal(v)
	must(t, err)
	return string(text)
}
