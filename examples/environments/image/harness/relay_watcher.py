#!/usr/bin/env python3
"""The relay watcher of a sandbox: subscribes to the relay as the agent, and takes each turn with the turn processor.

Without RELAY_AUTH_TOKEN, it waits for the agent's key, which the agent's host writes into the sandbox. It runs until it
is stopped.
`sandbox process wait … --log '^Connected to relay'` waits until it listens.
"""

import asyncio
import json
import re
import sys

import games
from relay import RelayError, Subscription, Watcher, say
from settings import Settings, SettingsError

TAKE_TURN = [sys.executable, "/workspace/take_turn.py"]
# How much longer than TURN_MAX_SECONDS the turn processor may take to end by itself, in seconds.
GRACE = 10
# How much of the end of its standard error is kept for the reason of a skipped turn, in bytes.
KEPT = 4096


async def act(command: list[str], seconds: float, state: dict) -> dict:
    """Runs the turn processor. If it fails, the agent skips the turn and the game continues."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    try:
        process.stdin.write(json.dumps(state).encode())
        process.stdin.close()
        out, last, code = await asyncio.wait_for(
            asyncio.gather(process.stdout.read(), _pass_on(process.stderr), process.wait()), seconds)
    except asyncio.TimeoutError:
        return games.skip_turn(f"the turn took more than {seconds:g} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code != 0:
        return games.skip_turn(last or f"the turn ended with {code}")
    try:
        action = json.loads(out)
    except (ValueError, RecursionError):
        return games.skip_turn("the turn gave no JSON")
    return action if isinstance(action, dict) and "action" in action else games.skip_turn("the turn gave no action")


async def _pass_on(errors: asyncio.StreamReader) -> str:
    """Writes the standard error of the turn processor, with its tool events, to our own. Returns its last line."""
    kept = b""
    while chunk := await errors.read(1 << 16):
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
        kept = (kept + chunk)[-KEPT:]
    lines = kept.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def subscription(settings: Settings) -> Subscription:
    """The subscription of an environment. Errors: SettingsError, RelayError."""
    token = settings.environment.get("RELAY_AUTH_TOKEN", "")
    url = settings.variable("RELAY_URL").removesuffix("/relay/firehose")
    return Subscription(
        re.sub("^ws(s?)://", r"http\1://", url), settings.variable("RELAY_DID", "none" if token else None), settings.agent,
        settings.environment_id, settings.variable("RELAY_COLLECTIONS", "game.turn.*").split(","),
        settings.variable("RELAY_RECORD_TYPE", "game.action"), settings.key_file, token)


async def main() -> None:
    settings = Settings()
    seconds = settings.limits.seconds + GRACE
    watcher = Watcher(subscription(settings), lambda _, state: act(TAKE_TURN, seconds, state))
    if not watcher.subscription.fixed_token and not settings.key_file.is_file():
        say(f"Waiting for the key of {settings.agent} in {settings.key_file}")
        while not settings.key_file.is_file():
            await asyncio.sleep(0.2)
    await watcher.watch()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (SettingsError, RelayError) as err:
        print(f"relay_watcher: {err}", file=sys.stderr)
        sys.exit(1)
