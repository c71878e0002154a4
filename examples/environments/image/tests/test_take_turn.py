"""Turns with a fake model, whose answers the test sets."""

import json
import tempfile
import unittest
from pathlib import Path

import games
import take_turn
from settings import Settings, SettingsError


class Turn(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.data = Path(directory.name)
        (self.data / "skills" / "player").mkdir(parents=True)
        (self.data / "skills" / "player" / "prompt.md").write_text("# How to play\n")
        self.asked = []

    def settings(self, kind="rpg"):
        return Settings({"ENVIRONMENT_TYPE": kind, "AGENT_DID": "did:plc:kira"}, data=self.data)

    def turn(self, *answers, kind="rpg", state=None):
        remaining = list(answers)

        def ask(_, messages):
            self.asked.append(list(messages))
            return remaining.pop(0)

        return take_turn.take_turn(self.settings(kind), state or {}, ask)

    def test_an_action_is_what_the_game_knows_of_the_answer(self):
        answer = {"action": "attack", "target": "orc", "weapon": "bow", "damage": 99, "reason": "it is near"}
        self.assertEqual(self.turn(json.dumps(answer)), {"action": "attack", "target": "orc", "weapon": "bow", "reason": "it is near"})

    def test_the_model_is_told_skills_state_and_who_it_is(self):
        (self.data / "character.json").write_text('{"class": "ranger"}')
        self.turn('{"action": "rest"}', state={"hp": 7})
        system, user = self.asked[0]
        self.assertIn("# How to play", system["content"])
        self.assertIn("ranger", system["content"])
        self.assertEqual(json.loads(user["content"]), {"you": "did:plc:kira", "state": {"hp": 7}})

    def test_a_code_block_is_an_answer_too(self):
        self.assertEqual(self.turn('I think:\n```json\n{"action": "flee"}\n```\n'), {"action": "flee"})

    def test_a_wrong_answer_is_told_to_the_model_once(self):
        self.assertEqual(self.turn("I attack!", '{"action": "attack", "target": "orc"}'), {"action": "attack", "target": "orc"})
        self.assertIn("That is no action: it is not one JSON object", self.asked[1][-1]["content"])

    def test_two_wrong_answers_skip_the_turn(self):
        for wrong, reason in {
            "": "it is not one JSON object",
            "[]": "it is not a JSON object but a list",
            "[" * 100_000: "it is not one JSON object",
            '{"action": 7}': "action must be one of",
            '{"action": "attack"}': "attack needs the field target",
            '{"action": "attack", "target": 3}': "attack.target must be a str",
            '{"action": "attack", "target": ""}': "attack.target must have 1 to 500 characters",
            '{"action": "talk", "to": "all", "say": "%s"}' % ("x" * 501): "talk.say must have 1 to 500 characters",
            '{"action": "%s"}' % ("y" * 5000): "action must be one of",
        }.items():
            with self.subTest(wrong[:40]):
                action = self.turn(wrong, wrong)
                self.assertEqual(action["action"], "skip_turn")
                self.assertIn(reason, action["reason"])
                self.assertLessEqual(len(action["reason"]), 500)

    def test_only_legal_actions_are_taken(self):
        action = self.turn('{"action": "rest"}', '{"action": "flee"}', state={"legal_actions": ["flee", "attack"]})
        self.assertEqual(action, {"action": "flee"})
        self.assertIn("one of attack, flee or skip_turn", self.asked[1][-1]["content"])

    def test_an_agent_may_pass(self):
        self.assertEqual(self.turn('{"action": "skip_turn", "reason": "%s"}' % ("z" * 900))["reason"], "z" * 500)

    def test_notes_are_kept_for_later_turns(self):
        self.turn('{"action": "rest", "remember": "the door\\nis locked"}')
        self.turn('{"action": "rest", "remember": "  "}')
        self.turn('{"action": "rest"}')
        self.assertIn("# What you remember\n- the door is locked", self.asked[-1][0]["content"])
        self.assertEqual((self.data / "memory" / "notes.md").read_text(), "- the door is locked\n")

    def test_a_catan_action_counts_its_resources(self):
        trade = {"action": "trade_bank", "give": {"wool": 4}, "receive": {"grain": 1}}
        self.assertEqual(self.turn(json.dumps(trade), kind="catan"), trade)
        for wrong in ({"wool": -4}, {"wool": "four"}, {"wool": True}, "4 wool", {str(n): 1 for n in range(40)}):
            with self.assertRaises(games.BadAction):
                games.check("catan", {}, {**trade, "give": wrong})

    def test_a_type_without_turns_and_missing_skills_are_errors(self):
        with self.assertRaisesRegex(SettingsError, "an environment of type custom has no turns"):
            self.turn(kind="custom")
        (self.data / "skills" / "player" / "prompt.md").unlink()
        with self.assertRaisesRegex(SettingsError, "there is no skill in"):
            self.turn()

    def test_what_is_no_state_is_refused(self):
        for text in ("", "{", "[1]", "null"):
            with self.assertRaises(take_turn.StateError):
                take_turn.read_state(text)


if __name__ == "__main__":
    unittest.main()
