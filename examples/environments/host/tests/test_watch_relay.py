"""The relay's turns for agents whose sandboxes sleep, with a fake reconciler."""

import argparse
import asyncio
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import watch_relay
from reconciler import Problem
from relay import Subscription

LEASE = "did:plc:kira::dungeon-3"


class Sleeping:
    """A reconciler with one sleeping sandbox, which takes a turn only once it was woken."""

    def __init__(self, refuse=None):
        self.calls, self.refuse = [], refuse

    def wake(self, lease):
        self.calls.append(("wake", lease))
        if self.refuse:
            raise self.refuse

    def open_session(self, lease, session, env):
        self.calls.append(("open", lease, env))

    def run(self, lease, session, command, stdin, timeout):
        self.calls.append(("run", lease, stdin, timeout))
        return {"exit_code": 0, "stdout": '{"action": "rest"}'}

    def close_session(self, lease, session):
        self.calls.append(("close", lease))


class Watching(unittest.TestCase):
    def act(self, reconciler):
        return watch_relay.act(reconciler, "did:plc:kira", "dungeon-3", 12, {"hp": 5}, 60)

    def test_a_turn_wakes_the_sandbox_and_gets_the_event(self):
        sleeping = Sleeping()
        self.assertEqual(self.act(sleeping), {"action": "rest"})
        self.assertEqual(sleeping.calls, [("wake", LEASE), ("open", LEASE, {"GAME_ID": "dungeon-3", "TURN_NUMBER": "12"}), ("run", LEASE, '{"hp": 5}', 60), ("close", LEASE)])

    def test_a_sandbox_that_does_not_wake_skips_the_turn(self):
        ended = Sleeping(Problem("lease_ended", "the game is over"))
        self.assertEqual(self.act(ended), {"action": "skip_turn", "reason": "lease_ended: the game is over"})
        self.assertEqual(ended.calls, [("wake", LEASE)])

    def test_each_agent_has_a_watcher_with_its_own_key(self):
        acted = []

        async def one_turn(watcher):
            its = watcher.subscription
            acted.append((its.agent, its.key_file.name, await watcher.act(7, {"hp": 1})))

        subscriptions = [Subscription("https://relay.test", "did:web:relay", agent, "dungeon-3", ["game.turn.*"], "game.action", Path(key))
                         for agent, key in (("did:plc:kira", "kira.pem"), ("did:plc:thorn", "thorn.pem"))]
        with mock.patch.object(watch_relay.Watcher, "watch", one_turn):
            asyncio.run(watch_relay.watch(Sleeping(), subscriptions, 60))
        self.assertEqual(sorted(acted), [("did:plc:kira", "kira.pem", {"action": "rest"}), ("did:plc:thorn", "thorn.pem", {"action": "rest"})])

    def test_an_agent_is_given_with_its_key(self):
        with tempfile.NamedTemporaryFile() as key:
            self.assertEqual(watch_relay.agent_and_key("did:plc:kira=" + key.name), ("did:plc:kira", Path(key.name)))
            for wrong in ("did:plc:kira", "kira=" + key.name, "did:plc:kira=/no/such/key"):
                with self.assertRaises(argparse.ArgumentTypeError):
                    watch_relay.agent_and_key(wrong)


if __name__ == "__main__":
    unittest.main()
