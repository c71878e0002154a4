"""Turns with a fake model, whose answers the test sets."""

import io
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import games
import llm
import take_turn
from events import Events
from fake import Model, calls, says
from settings import Settings, SettingsError


class Turn(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        self.data = self.root / "data"
        (self.root / "workspace").mkdir()
        self.skill("player", "# How to play\n")

    def skill(self, name, text):
        (self.data / "skills" / name).mkdir(parents=True)
        (self.data / "skills" / name / "prompt.md").write_text(text)

    def turn(self, *answers, kind="rpg", state=None, **variables):
        self.model, self.out = Model(*answers), io.StringIO()
        settings = Settings({"ENVIRONMENT_TYPE": kind, "AGENT_DID": "did:plc:kira", "PATH": "/usr/bin:/bin", **variables},
                            self.root / "secrets", self.data, self.root / "workspace")
        return take_turn.take_turn(settings, state or {}, self.model, Events(settings.hidden, self.out))

    def events(self):
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    def test_a_tool_of_the_game_ends_the_turn_with_its_action(self):
        attack = {"target": "orc", "weapon": "bow", "reason": "it is near"}
        self.assertEqual(self.turn(calls(("attack", attack), ("flee", {}))), {"action": "attack", **attack})
        self.assertEqual(self.model.tools, ["bash", "read", "write", "edit", *games.ACTIONS["rpg"], "skip_turn"])

    def test_the_model_is_told_skills_state_and_who_it_is(self):
        (self.data / "character.json").write_text('{"class": "ranger"}')
        self.turn(calls(("rest", {})), state={"hp": 7})
        system, user = self.model.asked[0]
        self.assertIn("# How to play", system["content"])
        self.assertIn("ranger", system["content"])
        self.assertIn("at most 20\nsteps and 50 seconds", system["content"])
        self.assertEqual(json.loads(user["content"]), {"you": "did:plc:kira", "state": {"hp": 7}})

    def test_the_skill_of_the_type_is_the_prompt_and_others_are_named(self):
        self.skill("rpg", "# How to adventure\n")
        self.turn(calls(("rest", {})))
        system = self.model.asked[0][0]["content"]
        self.assertIn("# How to adventure", system)
        self.assertNotIn("# How to play", system)
        self.assertIn(f"{self.data}/skills/player/prompt.md", system)

    def test_an_agent_works_with_tools_before_it_acts(self):
        action = self.turn(
            calls(("write", {"path": str(self.data / "map.txt"), "content": "a door\n"})),
            calls(("edit", {"path": str(self.data / "map.txt"), "old": "door", "new": "cave"}), ("read", {"path": str(self.data / "map.txt")})),
            calls(("bash", {"command": f"tr a-z A-Z <{self.data}/map.txt; pwd"})),
            calls(("search", {"where": "the cave"})))
        self.assertEqual(action, {"action": "search", "where": "the cave"})
        self.assertEqual(self.model.results()[2:], ["a cave\n", f"A CAVE\n{self.root}/workspace\n"])

    def test_each_call_and_each_result_is_an_event(self):
        self.turn(calls(("bash", {"command": "echo hello"})), calls(("fly", {})), calls(("rest", {})))
        self.assertEqual([(e["event"], e["tool"]) for e in self.events()],
                         [(event, tool) for tool in ("bash", "fly", "rest") for event in ("tool.invoke", "tool.result")])
        invoked, bash, _, fly, _, rest = self.events()
        self.assertEqual((invoked["arguments"], bash["ok"], bash["output"]), ({"command": "echo hello"}, True, "hello\n"))
        self.assertGreaterEqual(bash["duration_ms"], 0)
        self.assertEqual((fly["ok"], fly["output"][:24]), (False, "Error: there is no tool "))
        self.assertEqual(rest["output"], '{"action": "rest"}')

    def test_no_event_and_no_model_has_a_secret(self):
        (self.root / "secrets").mkdir()
        (self.root / "secrets" / "token").write_text("of-the-secret\n")
        key = self.root / "workspace" / ".agent" / "did-key.pem"
        key.parent.mkdir()
        key.write_text("-----BEGIN KEY-----\nMIGHAgEA\n-----END KEY-----\n")
        self.turn(calls(("bash", {"command": f"echo of-the-secret; cat {self.root}/secrets/token {key}; env"})), calls(("rest", {})),
                  OPENROUTER_API_KEY="sk-real-key", OPENAI_API_KEY="sandbox")
        for text in (self.out.getvalue(), *self.model.results()):
            for secret in ("of-the-secret", "MIGHAgEA", "sk-real-key"):
                self.assertNotIn(secret, text)
            self.assertIn("***", text)
            self.assertIn("OPENAI_API_KEY=sandbox", text)

    def test_events_are_bounded(self):
        self.turn(calls(("bash", {"command": "head -c 100000 /dev/zero | tr '\\0' x; : " + "y" * 50_000})), calls(("rest", {})))
        self.assertLess(len(self.out.getvalue()), 6_000)
        self.assertLess(len(self.model.results()[0]), 21_000)

    def test_what_is_wrong_with_a_call_is_told_and_the_next_may_be_right(self):
        long = "x" * 501
        for tool, arguments, reason in (
            ("attack", {}, "attack needs the argument target"),
            ("attack", {"target": 3}, "attack.target must be of type string"),
            ("attack", {"target": ""}, "attack.target must have 1 to 500 characters"),
            ("attack", {"target": "orc", "damage": 99}, "attack has no argument 'damage'"),
            ("attack", "orc!", "the arguments of attack must be a JSON object"),
            ("attack", "[" * 100_000, "the arguments of attack must be a JSON object"),
            ("talk", {"to": "all", "say": long}, "talk.say must have 1 to 500 characters"),
            ("win", {}, "there is no tool 'win', only bash, read, write, edit, attack"),
        ):
            with self.subTest(reason):
                self.assertEqual(self.turn(calls((tool, arguments)), calls(("flee", {}))), {"action": "flee"})
                self.assertIn(reason, self.model.results()[0])

    def test_only_legal_actions_are_tools(self):
        self.turn(calls(("rest", {})), calls(("flee", {})), state={"legal_actions": ["flee", "attack", "bash", 7]})
        self.assertEqual(self.model.tools[4:], ["flee", "attack", "skip_turn"])
        self.assertIn("there is no tool 'rest'", self.model.results()[0])

    def test_an_agent_may_pass(self):
        self.assertEqual(self.turn(calls(("skip_turn", {"reason": "z" * 900}))), {"action": "skip_turn", "reason": "z" * 500})

    def test_words_are_asked_for_a_tool_once_and_then_skip_the_turn(self):
        self.assertEqual(self.turn(says("I attack!"), calls(("rest", {}))), {"action": "rest"})
        self.assertIn("Call a tool", self.model.asked[1][-1]["content"])
        self.assertEqual(self.turn(says("I attack!"))["reason"], "the model called no tool: I attack!")

    def test_a_limit_skips_the_turn_and_is_named(self):
        work = calls(("bash", {"command": "true"}), tokens=400)
        for variables, reason, asked in (
            ({"TURN_MAX_STEPS": "3"}, "the turn has taken 3 steps without an action, its limit (TURN_MAX_STEPS)", 3),
            ({"TURN_MAX_TOKENS": "1000"}, "the turn has used 1200 tokens, its limit is 1000 (TURN_MAX_TOKENS)", 3),
        ):
            self.assertEqual(self.turn(work, **variables), {"action": "skip_turn", "reason": reason})
            self.assertEqual(len(self.model.asked), asked)
        action = self.turn(calls(("bash", {"command": "sleep 600"})), TURN_MAX_SECONDS="1")
        self.assertEqual(action["reason"], "the turn has taken 1 s without an action, its limit (TURN_MAX_SECONDS)")
        self.assertIn("took more than 1 s", self.events()[1]["output"])

    def test_a_model_that_fails_skips_the_turn(self):
        def fail():
            raise llm.ModelError("https://llm.test was asked 1 times: 401")

        self.assertEqual(self.turn(fail), {"action": "skip_turn", "reason": "https://llm.test was asked 1 times: 401"})

    def test_notes_are_kept_for_later_turns(self):
        self.turn(calls(("rest", {"remember": "the door\nis locked"})))
        self.turn(calls(("rest", {"remember": "  "})))
        self.turn(calls(("rest", {})))
        self.assertIn("# What you remember\n- the door is locked", self.model.asked[-1][0]["content"])
        self.assertEqual((self.data / "memory" / "notes.md").read_text(), "- the door is locked\n")

    def test_a_catan_action_counts_its_resources(self):
        trade = {"give": {"wool": 4}, "receive": {"grain": 1}}
        self.assertEqual(self.turn(calls(("trade_bank", trade)), kind="catan"), {"action": "trade_bank", **trade})
        for wrong in ({"wool": -4}, {"wool": "four"}, {"wool": True}, "4 wool", {str(n): 1 for n in range(40)}):
            with self.assertRaises(games.BadAction):
                games.check("catan", {}, {"action": "trade_bank", **trade, "give": wrong})

    def test_settings_that_are_missing_or_wrong_are_errors(self):
        with self.assertRaisesRegex(SettingsError, "an environment of type custom has no turns"):
            self.turn(kind="custom")
        for name in ("TURN_MAX_STEPS", "TURN_MAX_TOKENS", "TURN_MAX_SECONDS"):
            for wrong in ("0", "-1", "many", "nan", "1e12"):
                with self.assertRaisesRegex(SettingsError, f"variable {name} must be a number"):
                    self.turn(says(""), **{name: wrong})
        (self.data / "skills" / "player" / "prompt.md").unlink()
        with self.assertRaisesRegex(SettingsError, "there is no skill in"):
            self.turn(says(""))

    def test_a_task_that_is_none_skips_the_turn(self):
        self.assertEqual(self.turn(says(""), kind="coding")["reason"], "the task must have a text called task")

    def test_what_is_no_state_is_refused(self):
        for text in ("", "{", "[1]", "null", "[" * 100_000):
            with self.assertRaises(take_turn.StateError):
                take_turn.read_state(text)

    def test_the_state_comes_from_standard_input_or_from_a_variable(self):
        for stdin, variable in (('{"hp": 5}', '{"hp": 4}'), ("", '{"hp": 5}')):
            with mock.patch("sys.stdin", io.StringIO(stdin)), mock.patch("sys.stdout", io.StringIO()) as out, \
                    mock.patch.dict("os.environ", {"TURN_DATA": variable}), \
                    mock.patch("take_turn.take_turn", side_effect=lambda _, state: state):
                self.assertEqual(take_turn.main(), 0)
            self.assertEqual(out.getvalue(), '{"hp": 5}\n')


if __name__ == "__main__":
    unittest.main()
