"""A relay of AT Protocol, as one agent uses it: receives the agent's turns, and posts each action as a record of the
agent's repository.

It authenticates with short-lived tokens. A token names the agent's DID and is signed with the DID's key (P-256). A relay
that gives its agents tokens itself gets that token instead.
"""

import asyncio
import json
import re
import secrets
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import jwt
import websockets

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


@dataclass(frozen=True)
class Subscription:
    """What an agent receives from a relay, and what it posts there."""

    url: str
    did: str
    agent: str
    environment: str
    collections: list[str]
    record_type: str
    key_file: Path
    # The token that the relay gave to the agent; "" for tokens signed with the key.
    fixed_token: str = ""

    def __post_init__(self) -> None:
        if not re.match(r"https?://", self.url):
            raise RelayError(f"the address of the relay must be an http(s) URL, not {self.url!r}")

    def token(self, method: str) -> str:
        """A token of the agent for one method of the relay."""
        if self.fixed_token:
            return self.fixed_token
        now = int(time.time())
        claims = {"iss": self.agent, "aud": self.did, "iat": now, "exp": now + TOKEN_SECONDS, "lxm": method, "jti": secrets.token_hex(16)}
        try:
            return jwt.encode(claims, self.key_file.read_bytes(), algorithm="ES256")
        except (ValueError, jwt.PyJWTError) as err:
            raise RelayError(f"{self.key_file} is no P-256 key in PEM: {err}") from err

    def is_turn(self, message: dict) -> bool:
        """Whether a message is a turn of this agent. A relay may send more than was subscribed to."""
        record = message.get("record")
        return (
            message.get("did") == self.agent
            and isinstance(record, dict)
            and isinstance(record.get("turn"), int)
            and record.get("environment") == self.environment
            and isinstance(record.get("state"), dict)
        )

    def post(self, number: int, action: dict) -> None:
        """Creates the record of a turn. Its key contains the turn, so a repeated post creates no second record."""
        body = {
            "repo": self.agent,
            "collection": self.record_type,
            "rkey": f"{self.environment}.{number}",
            "record": {
                "$type": self.record_type,
                "environment": self.environment,
                "turn": number,
                "action": action,
                "createdAt": datetime.now(timezone.utc).isoformat(),
            },
        }
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/xrpc/{CREATE_RECORD}", data=json.dumps(body).encode(),
            headers={"Authorization": "Bearer " + self.token(CREATE_RECORD), "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                response.read()
        except urllib.error.HTTPError as err:
            if err.code != 409:  # the record exists: posted before a restart
                raise RelayError(f"the record of turn {number} was refused: {err.code} {err.read(300)!r}") from err


@dataclass
class Watcher:
    """Takes each turn of an agent with act, which gets its number and its state, and posts the action."""

    subscription: Subscription
    act: Callable[[int, dict], Awaitable[dict]]
    taken: OrderedDict = field(default_factory=OrderedDict)

    async def watch(self) -> None:
        """Listens for ever, and connects again after each lost connection."""
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
        its = self.subscription
        headers = {"Authorization": "Bearer " + its.token(SUBSCRIBE)}
        url = "ws" + its.url.rstrip("/").removeprefix("http") + "/relay/firehose"
        async with websockets.connect(url, extra_headers=headers, max_size=MAX_MESSAGE) as socket:
            await socket.send(json.dumps({"type": "subscribe", "collections": its.collections, "dids": [its.agent]}))
            async for text in socket:
                message = parse(text)
                if message.get("type") == "subscribed":
                    say(f"Connected to relay as {its.agent}, subscribed to {', '.join(its.collections)}")
                elif message.get("type") == "error":
                    raise RelayError(f"the relay says {message.get('error')!r}")
                elif its.is_turn(message):
                    await self.turn(message["record"])

    async def turn(self, record: dict) -> None:
        """Takes a turn and posts its action, once, even if the relay repeats the message."""
        number = record["turn"]
        if number in self.taken:
            return
        action = await self.act(number, record["state"])
        say(f"Turn {number} of {self.subscription.agent}: {action['action']}")
        await asyncio.to_thread(self.subscription.post, number, action)
        self.taken[number] = True
        while len(self.taken) > TURNS_KNOWN:
            self.taken.popitem(last=False)
