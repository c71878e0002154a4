"""The watcher in a sandbox: it runs the turn processor, and reads its subscription from the environment."""

import contextlib
import io
import sys
import unittest

import relay_watcher
from relay import RelayError
from settings import Settings, SettingsError


def script(text):
    return [sys.executable, "-c", text]


class Errors(io.TextIOWrapper):
    """A standard error that can be read."""

    def text(self):
        return self.buffer.getvalue().decode()


class Acting(unittest.IsolatedAsyncioTestCase):
    async def act(self, text, seconds=60):
        with contextlib.redirect_stderr(Errors(io.BytesIO())) as errors:
            action = await relay_watcher.act(script(text), seconds, {"hp": 5})
        self.errors = errors.text()
        return action

    async def test_the_turn_processor_gets_the_state_and_its_events_are_passed_on(self):
        action = await self.act("import json, sys; print(json.dumps({'action': 'saw', 'state': json.load(sys.stdin)})); "
                                "sys.stderr.write('{\"event\": 1}\\n')")
        self.assertEqual(action, {"action": "saw", "state": {"hp": 5}})
        self.assertEqual(self.errors, '{"event": 1}\n')

    async def test_a_turn_that_fails_is_skipped(self):
        for text, reason in (
            ("import sys; sys.exit('{}\\n' + 'x' * 600 + '\\n')", "x" * 500),
            ("import sys; sys.exit(3)", "the turn ended with 3"),
            ("print('attack')", "the turn gave no JSON"),
            ("print('[]')", "the turn gave no action"),
        ):
            self.assertEqual(await self.act(text), {"action": "skip_turn", "reason": reason})

    async def test_a_turn_that_hangs_is_ended_and_what_it_did_is_passed_on(self):
        action = await self.act("import sys, time; print('began', file=sys.stderr, flush=True); time.sleep(600)", 1)
        self.assertEqual(action, {"action": "skip_turn", "reason": "the turn took more than 1 s"})
        self.assertEqual(self.errors, "began\n")

    def test_the_subscription_is_checked_before_it_connects(self):
        good = {"AGENT_DID": "did:plc:kira", "ENVIRONMENT_ID": "dungeon-3", "RELAY_URL": "http://relay.test", "RELAY_DID": "did:web:relay"}
        its = relay_watcher.subscription(Settings({**good, "RELAY_COLLECTIONS": "a.*,b.*"}))
        self.assertEqual((its.agent, its.environment, its.collections, its.record_type),
                         ("did:plc:kira", "dungeon-3", ["a.*", "b.*"], "game.action"))
        for wrong in ({"RELAY_URL": "ftp://relay.test"}, {"RELAY_URL": ""}, {"RELAY_DID": ""}, {"AGENT_DID": ""}):
            with self.assertRaises((SettingsError, RelayError)):
                relay_watcher.subscription(Settings({**good, **wrong}))

    def test_a_relay_may_give_the_agent_a_token(self):
        its = relay_watcher.subscription(Settings({
            "AGENT_DID": "did:plc:kira", "ENVIRONMENT_ID": "dungeon-3", "RELAY_AUTH_TOKEN": "of-the-relay",
            "RELAY_URL": "wss://relay.test/relay/firehose"}))
        self.assertEqual((its.url, its.token("any")), ("https://relay.test", "of-the-relay"))


if __name__ == "__main__":
    unittest.main()
