package environments_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
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
	w.lease(kira, thorn)
	w.console("host/enroll.py", "kira.pem", w.key(kira))

	// The relay announces a turn, and the agent's action becomes one record of its repository.
	w.model.say(uses("use_item", map[string]any{
		"item": "healing potion", "reason": "One more hit could kill me.", "remember": "The orc hits for up to 8.",
	}))
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

	// The turn of the guide.
	w.model.say(uses("use_item", map[string]any{"item": "healing potion", "reason": "One more hit could kill me."}))
	w.console("host/turn.py did:plc:kira")

	// The game server itself asks for a turn, in which the agent uses what it remembers. The relay may cut the connection
	// at the same time.
	w.relay.cut()
	w.model.say(uses("attack", map[string]any{"target": "orc"}))
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
	w.wakes(thorn)

	// Nothing else is reachable.
	var reached atomic.Bool
	evil, _ := w.outside.serve(t, "evil.test",
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	said := w.shell(kira, "python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=60)' "+evil)
	if reached.Load() || !strings.Contains(said, "HTTP Error 403") {
		t.Errorf("a host that is not allowed: reached %v, %s", reached.Load(), said)
	}

	// A death ends one sandbox, and the end of the game ends all.
	w.send("agent.death", kira)
	if n := w.running(); n != 1 {
		t.Errorf("%d sandboxes remain after the death of one of two agents", n)
	}
	if a := w.turn(kira, room); a["action"] != "skip_turn" || !strings.Contains(a["reason"].(string), "lease_ended") {
		t.Errorf("the turn of the dead is %v", a)
	}
	w.console("sandbox send")
	w.until("no sandbox is there after the end of the game", func() bool { return w.running() == 0 })
	w.destroy()
}

// skips tests every reason for which a turn is skipped.
func (w *world) skips() {
	w.Helper()
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	for name, c := range map[string]struct {
		answer func([]message) answer
		reason string
		args   []string
	}{
		"words": {always(says("I attack the orc!")), "the model called no tool: I attack the orc!", nil},
		"work without end": {always(uses("read", map[string]any{"path": "map.txt"})),
			"the turn has taken 20 steps without an action, its limit (TURN_MAX_STEPS)", nil},
		"a refused call": {always(answer{http.StatusForbidden, strings.Repeat("no ", 400), nil}),
			"http://127.0.0.1:3128/llm/main/v1/chat/completions was asked 1 times: 403", nil},
		"a model that hangs": {func([]message) answer { <-released; return says("") },
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

// wakes makes the host listen to the relay for an agent that sleeps.
func (w *world) wakes(agent string) {
	w.Helper()
	said := w.watchRelay(agent)
	w.until("the host listens for "+agent, func() bool { return len(w.relay.listening(agent, "game.turn.notify")) == 1 })
	if l, err := w.service.Sleep(w.Context(), sandbox.LeaseRef{ID: w.leaseID(agent)}); err != nil ||
		l.Phase != sandbox.PhaseAsleep {
		w.Fatalf("%s sleeps: phase %s, %v", agent, l.Phase, err)
	}
	w.model.say(uses("bash", map[string]any{"command": "echo $((5 - 4)) wool is left"}), uses("rest", none))
	if record := w.tell(agent, "game.turn.notify", 14, room); compact(w.T, record.Record.Action) != `{"action":"rest"}` {
		w.Errorf("the record is %s", record.Record.Action)
	}
	if l, err := w.service.GetLease(w.Context(), w.leaseID(agent)); err != nil || l.Phase != sandbox.PhaseAwake {
		w.Errorf("after its turn, %s is %s, %v", agent, l.Phase, err)
	}
	if log := said(); !strings.Contains(log, "Turn 14 of "+agent+": rest") {
		w.Errorf("the host says\n%s", log)
	}
	w.tools(agent, "bash", "rest")
}

// always returns the same answer to all questions.
func always(is answer) func([]message) answer { return func([]message) answer { return is } }

func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var v map[string]any
	must(t, json.Unmarshal(raw, &v))
	text, err := json.Marshal(v)
	must(t, err)
	return string(text)
}
