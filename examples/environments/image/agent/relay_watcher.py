#!/usr/bin/env python3
"""The relay watcher: listens to the relay as the agent, takes each turn of the agent, and posts the action as a record
of the agent's repository.

It authenticates as AT Protocol services do, with short-lived tokens. A token names the agent's DID and is signed with
the DID's key (P-256), which the agent's host writes to KEY_FILE. The watcher runs until it is stopped, and reconnects
after each lost connection. `reconciler processes wait … --log '^Connected to relay'` waits until it listens.
"""

import asyncio
import json
import re
import secrets
import sys
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import jwt
import websockets

import games
from settings import Settings, SettingsError

# The path of the agent's key. The files API writes it for one agent; secrets are the same for all in an environment.
KEY_FILE = Path("/workspace/.agent/did-key.pem")
TAKE_TURN = [sys.executable, str(Path(__file__).with_name("take_turn.py"))]
SUBSCRIBE = "network.agent.relay.subscribe"
CREATE_RECORD = "com.atproto.repo.createRecord"
# The lifetime of a token, and the longest pause before a reconnect, in seconds.
TOKEN_SECONDS = 60
MAX_PAUSE = 30
# How many taken turns are remembered, and the maximum size of a message, in bytes.
TURNS_KNOWN = 1024
MAX_MESSAGE = 1 << 20


class RelayError(Exception):
    """A request to the relay failed or could not be signed. The message says why."""


def say(text: str) -> None:
    print(text, flush=True)


def parse(text: str | bytes) -> dict:
    """A message of the relay; empty if it is not a JSON object."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


@dataclass
class Watcher:
    """Watches the relay for one agent."""

    settings: Settings
    key_file: Path = KEY_FILE
    command: list[str] = field(default_factory=lambda: list(TAKE_TURN))
    taken: OrderedDict = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.agent = self.settings.agent
        self.relay = self.settings.variable("RELAY_URL").rstrip("/")
        self.audience = self.settings.variable("RELAY_DID")
        self.collections = self.settings.variable("RELAY_COLLECTIONS", "game.turn.*").split(",")
        self.record_type = self.settings.variable("RELAY_RECORD_TYPE", "game.action")
        self.turn_seconds = self.settings.seconds("TURN_TIMEOUT", 120)
        if not re.match(r"https?://", self.relay):
            raise SettingsError(f"RELAY_URL must be an http(s) URL, not {self.relay!r}")

    async def watch(self) -> None:
        """Listens for ever. It ends only with an error that a reconnect does not fix."""
        pause = 1
        while True:
            started = time.monotonic()
            try:
                await self.listen()
                problem = "the relay closed the connection"
            except (OSError, RelayError, asyncio.TimeoutError, websockets.WebSocketException) as err:
                problem = f"{type(err).__name__}: {err}"
            if time.monotonic() - started > MAX_PAUSE:
                pause = 1
            say(f"Disconnected from relay ({problem}); connecting again in {pause} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)

    async def listen(self) -> None:
        """Connects, subscribes, and takes turns until the connection ends."""
        headers = {"Authorization": "Bearer " + self.token(SUBSCRIBE)}
        url = "ws" + self.relay.removeprefix("http") + "/relay/firehose"
        async with websockets.connect(url, extra_headers=headers, max_size=MAX_MESSAGE) as socket:
            await socket.send(json.dumps({"type": "subscribe", "collections": self.collections, "dids": [self.agent]}))
            async for text in socket:
                message = parse(text)
                if message.get("type") == "subscribed":
                    say(f"Connected to relay as {self.agent}, subscribed to {', '.join(self.collections)}")
                elif message.get("type") == "error":
                    raise RelayError(f"the relay says {message.get('error')!r}")
                elif self.is_turn(message):
                    await self.turn(message["record"])

    def is_turn(self, message: dict) -> bool:
        """Whether a message is a turn of this agent. A relay may send more than the watcher has subscribed to."""
        record = message.get("record")
        return (
            message.get("did") == self.agent
            and isinstance(record, dict)
            and isinstance(record.get("turn"), int)
            and record.get("environment") == self.settings.environment_id
            and isinstance(record.get("state"), dict)
        )

    async def turn(self, record: dict) -> None:
        """Takes a turn and posts its action, once, even if the relay repeats the message."""
        number = record["turn"]
        if number in self.taken:
            return
        action = await self.act(record["state"])
        say(f"Turn {number}: {action['action']}")
        await asyncio.to_thread(self.post, number, action)
        self.taken[number] = True
        while len(self.taken) > TURNS_KNOWN:
            self.taken.popitem(last=False)

    async def act(self, state: dict) -> dict:
        """Runs the turn processor. If it fails, the agent skips the turn and the game continues."""
        process = await asyncio.create_subprocess_exec(
            *self.command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        try:
            out, err = await asyncio.wait_for(process.communicate(json.dumps(state).encode()), self.turn_seconds)
        except asyncio.TimeoutError:
            return games.skip_turn(f"the turn took more than {self.turn_seconds:g} s")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            return games.skip_turn(err.decode(errors="replace").strip() or f"the turn ended with {process.returncode}")
        try:
            action = json.loads(out)
        except ValueError:
            return games.skip_turn("the turn gave no JSON")
        return action if isinstance(action, dict) and "action" in action else games.skip_turn("the turn gave no action")

    def post(self, number: int, action: dict) -> None:
        """Creates the record of a turn. Its key contains the turn, so a repeated post creates no second record."""
        body = {
            "repo": self.agent,
            "collection": self.record_type,
            "rkey": f"{self.settings.environment_id}.{number}",
            "record": {
                "$type": self.record_type,
                "environment": self.settings.environment_id,
                "turn": number,
                "action": action,
                "createdAt": datetime.now(timezone.utc).isoformat(),
            },
        }
        request = urllib.request.Request(
            f"{self.relay}/xrpc/{CREATE_RECORD}", data=json.dumps(body).encode(),
            headers={"Authorization": "Bearer " + self.token(CREATE_RECORD), "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                response.read()
        except urllib.error.HTTPError as err:
            if err.code != 409:  # the record exists: posted before a restart
                raise RelayError(f"the record of turn {number} was refused: {err.code} {err.read(300)!r}") from err

    def token(self, method: str) -> str:
        """A token of the agent for one method of the relay."""
        now = int(time.time())
        claims = {"iss": self.agent, "aud": self.audience, "iat": now, "exp": now + TOKEN_SECONDS, "lxm": method, "jti": secrets.token_hex(16)}
        try:
            return jwt.encode(claims, self.key_file.read_bytes(), algorithm="ES256")
        except (ValueError, jwt.PyJWTError) as err:
            raise RelayError(f"{self.key_file} is no P-256 key in PEM: {err}") from err


async def main() -> None:
    watcher = Watcher(Settings())
    if not watcher.key_file.is_file():
        say(f"Waiting for the key of {watcher.agent} in {watcher.key_file}")
        while not watcher.key_file.is_file():
            await asyncio.sleep(0.2)
    await watcher.watch()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except SettingsError as err:
        print(f"relay_watcher: {err}", file=sys.stderr)
        sys.exit(1)
