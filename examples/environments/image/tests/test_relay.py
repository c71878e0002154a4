"""An agent with a relay that it does not trust."""

import asyncio
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import jwt
import websockets
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

import relay

AGENT = "did:plc:kira"
STATE = {"did": AGENT, "collection": "game.turn.notify", "record": {"environment": "dungeon-3", "turn": 12, "state": {"hp": 5}}}


class Watching(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        key = ec.generate_private_key(ec.SECP256R1())
        self.public = key.public_key()
        self.key_file = Path(directory.name) / "key.pem"
        self.key_file.write_bytes(key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))

    def watcher(self, url="http://relay.test"):
        async def act(number, state):
            return {"action": "saw", "turn": number, "state": state}

        watcher = relay.Watcher(relay.Subscription(
            url, "did:web:relay", AGENT, "dungeon-3", ["game.turn.*", "env.state.*"], "game.action", self.key_file), act)
        self.posted = []
        post = mock.patch.object(relay.Subscription, "post", lambda _, number, action: self.posted.append((number, action)))
        post.start()
        self.addCleanup(post.stop)
        return watcher

    def claims(self, token):
        return jwt.decode(token, self.public, algorithms=["ES256"], audience="did:web:relay")

    def test_a_token_names_agent_method_and_relay_and_ends_soon(self):
        claims = self.claims(self.watcher().subscription.token("com.atproto.repo.createRecord"))
        self.assertEqual((claims["iss"], claims["lxm"]), (AGENT, "com.atproto.repo.createRecord"))
        self.assertEqual(claims["exp"] - claims["iat"], 60)

    def test_a_key_that_is_none_is_told(self):
        self.key_file.write_text("nothing")
        with self.assertRaisesRegex(relay.RelayError, "no P-256 key"):
            self.watcher().subscription.token("x")

    def test_a_turn_is_the_agents_in_this_environment(self):
        watcher = self.watcher()
        self.assertTrue(watcher.subscription.is_turn(STATE))
        for change in ({"did": "did:plc:thorn"}, {"record": None}, {"record": {**STATE["record"], "environment": "dungeon-4"}},
                       {"record": {**STATE["record"], "turn": "12"}}, {"record": {**STATE["record"], "state": []}}):
            self.assertFalse(watcher.subscription.is_turn({**STATE, **change}), change)
        for text in ("", "{", "[]", "7", "[" * 100_000):
            self.assertEqual(relay.parse(text), {})

    async def test_a_turn_is_taken_once(self):
        watcher = self.watcher()
        await watcher.turn(STATE["record"])
        await watcher.turn(STATE["record"])
        self.assertEqual(self.posted, [(12, {"action": "saw", "turn": 12, "state": {"hp": 5}})])

    async def test_a_turn_that_was_not_posted_is_taken_again(self):
        watcher = self.watcher()
        with mock.patch.object(relay.Subscription, "post", side_effect=relay.RelayError("down")), self.assertRaises(relay.RelayError):
            await watcher.turn(STATE["record"])
        await watcher.turn(STATE["record"])
        self.assertEqual(len(self.posted), 1)

    async def test_it_subscribes_as_the_agent_and_takes_what_comes(self):
        heard = {}

        async def serve(socket):
            heard["path"] = socket.path
            heard["claims"] = self.claims(socket.request_headers["Authorization"].removeprefix("Bearer "))
            heard["subscribe"] = json.loads(await socket.recv())
            for message in ({"type": "subscribed"}, "no object", {**STATE, "did": "did:plc:thorn"}, STATE):
                await socket.send(json.dumps(message))

        async with websockets.serve(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            watcher = self.watcher(f"http://127.0.0.1:{port}/")
            with mock.patch("relay.say") as say:
                await asyncio.wait_for(watcher.listen(), 60)
        self.assertEqual(heard["path"], "/relay/firehose")
        self.assertEqual(heard["claims"]["iss"], AGENT)
        self.assertEqual(heard["subscribe"], {"type": "subscribe", "collections": ["game.turn.*", "env.state.*"], "dids": [AGENT]})
        self.assertEqual(say.call_args_list[0].args[0], f"Connected to relay as {AGENT}, subscribed to game.turn.*, env.state.*")
        self.assertEqual(self.posted, [(12, {"action": "saw", "turn": 12, "state": {"hp": 5}})])

    async def test_a_refusal_of_the_relay_is_told(self):
        async def serve(socket):
            await socket.recv()
            await socket.send('{"type": "error", "error": "who are you"}')

        async with websockets.serve(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with self.assertRaisesRegex(relay.RelayError, "who are you"):
                await asyncio.wait_for(self.watcher(f"http://127.0.0.1:{port}").listen(), 60)

    def test_an_address_of_another_kind_is_refused(self):
        with self.assertRaisesRegex(relay.RelayError, "must be an http"):
            self.watcher("wss://relay.test")


if __name__ == "__main__":
    unittest.main()
