"""The watcher with a relay that it does not trust."""

import asyncio
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import jwt
import websockets
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

import relay_watcher
from settings import Settings, SettingsError

AGENT = "did:plc:kira"
STATE = {"did": AGENT, "collection": "game.turn.notify", "record": {"environment": "dungeon-3", "turn": 12, "state": {"hp": 5}}}
ECHO = [sys.executable, "-c", "import json, sys; print(json.dumps({'action': 'saw', 'state': json.load(sys.stdin)}))"]


def script(text):
    return [sys.executable, "-c", text]


class Watching(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        key = ec.generate_private_key(ec.SECP256R1())
        self.public = key.public_key()
        self.key_file = Path(directory.name) / "key.pem"
        self.key_file.write_bytes(key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))

    def watcher(self, command=None, **variables):
        settings = Settings({"AGENT_DID": AGENT, "ENVIRONMENT_ID": "dungeon-3", "RELAY_URL": "http://relay.test", "RELAY_DID": "did:web:relay", **variables})
        watcher = relay_watcher.Watcher(settings, self.key_file, command or ECHO)
        self.posted = []
        watcher.post = lambda number, action: self.posted.append((number, action))
        return watcher

    def claims(self, token):
        return jwt.decode(token, self.public, algorithms=["ES256"], audience="did:web:relay")

    def test_a_token_names_agent_method_and_relay_and_ends_soon(self):
        claims = self.claims(self.watcher().token("com.atproto.repo.createRecord"))
        self.assertEqual((claims["iss"], claims["lxm"]), (AGENT, "com.atproto.repo.createRecord"))
        self.assertEqual(claims["exp"] - claims["iat"], 60)

    def test_a_key_that_is_none_is_told(self):
        self.key_file.write_text("nothing")
        with self.assertRaisesRegex(relay_watcher.RelayError, "no P-256 key"):
            self.watcher().token("x")

    def test_a_turn_is_the_agents_in_this_environment(self):
        watcher = self.watcher()
        self.assertTrue(watcher.is_turn(STATE))
        for change in ({"did": "did:plc:thorn"}, {"record": None}, {"record": {**STATE["record"], "environment": "dungeon-4"}},
                       {"record": {**STATE["record"], "turn": "12"}}, {"record": {**STATE["record"], "state": []}}):
            self.assertFalse(watcher.is_turn({**STATE, **change}), change)
        for text in ("", "{", "[]", "7", "[" * 100_000):
            self.assertEqual(relay_watcher.parse(text), {})

    async def test_a_turn_is_taken_once(self):
        watcher = self.watcher()
        await watcher.turn(STATE["record"])
        await watcher.turn(STATE["record"])
        self.assertEqual(self.posted, [(12, {"action": "saw", "state": {"hp": 5}})])

    async def test_a_turn_that_was_not_posted_is_taken_again(self):
        watcher = self.watcher()
        with mock.patch.object(watcher, "post", side_effect=relay_watcher.RelayError("down")), self.assertRaises(relay_watcher.RelayError):
            await watcher.turn(STATE["record"])
        await watcher.turn(STATE["record"])
        self.assertEqual(len(self.posted), 1)

    async def test_a_turn_that_fails_is_skipped(self):
        for command, reason in (
            (script("import sys; sys.exit('x' * 600)"), "x" * 500),
            (script("import sys; sys.exit(3)"), "the turn ended with 3"),
            (script("print('attack')"), "the turn gave no JSON"),
            (script("print('[]')"), "the turn gave no action"),
        ):
            self.assertEqual(await self.watcher(command).act({}), {"action": "skip_turn", "reason": reason})

    async def test_a_turn_that_hangs_is_ended(self):
        action = await self.watcher(script("import time; time.sleep(600)"), TURN_TIMEOUT="0.2").act({})
        self.assertEqual(action, {"action": "skip_turn", "reason": "the turn took more than 0.2 s"})

    async def test_it_subscribes_as_the_agent_and_takes_what_comes(self):
        heard = {}

        async def relay(socket):
            heard["path"] = socket.path
            heard["claims"] = self.claims(socket.request_headers["Authorization"].removeprefix("Bearer "))
            heard["subscribe"] = json.loads(await socket.recv())
            for message in ({"type": "subscribed"}, "no object", {**STATE, "did": "did:plc:thorn"}, STATE):
                await socket.send(json.dumps(message))

        async with websockets.serve(relay, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            watcher = self.watcher(RELAY_URL=f"http://127.0.0.1:{port}/", RELAY_COLLECTIONS="game.turn.*,env.state.*")
            with mock.patch("relay_watcher.say") as say:
                await asyncio.wait_for(watcher.listen(), 60)
        self.assertEqual(heard["path"], "/relay/firehose")
        self.assertEqual(heard["claims"]["iss"], AGENT)
        self.assertEqual(heard["subscribe"], {"type": "subscribe", "collections": ["game.turn.*", "env.state.*"], "dids": [AGENT]})
        self.assertEqual(say.call_args_list[0].args[0], f"Connected to relay as {AGENT}, subscribed to game.turn.*, env.state.*")
        self.assertEqual(self.posted, [(12, {"action": "saw", "state": {"hp": 5}})])

    async def test_a_refusal_of_the_relay_is_told(self):
        async def relay(socket):
            await socket.recv()
            await socket.send('{"type": "error", "error": "who are you"}')

        async with websockets.serve(relay, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with self.assertRaisesRegex(relay_watcher.RelayError, "who are you"):
                await asyncio.wait_for(self.watcher(RELAY_URL=f"http://127.0.0.1:{port}").listen(), 60)

    def test_settings_are_checked_before_it_connects(self):
        for wrong in ({"RELAY_URL": "wss://relay.test"}, {"RELAY_URL": ""}, {"RELAY_DID": ""}, {"TURN_TIMEOUT": "-1"}):
            with self.assertRaises(SettingsError):
                self.watcher(**wrong)


if __name__ == "__main__":
    unittest.main()
