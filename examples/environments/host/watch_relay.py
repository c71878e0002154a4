#!/usr/bin/env python3
"""Subscribes to a relay for agents whose sandboxes sleep: a turn wakes the agent's sandbox, and its action becomes a record.

    watch_relay.py dungeon-3 --relay https://relay.example.com --did did:web:relay.example.com \\
      did:plc:kira=kira.pem did:plc:thorn=thorn.pem

It replaces the relay watcher inside of a sandbox, which receives nothing while the sandbox sleeps. The keys of the DIDs
stay on the host. It runs until it is stopped. SANDBOX_RECONCILER_URL and SANDBOX_RECONCILER_TOKEN name the reconciler.
"""

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "image" / "harness"))

import turn
from reconciler import Problem, Reconciler, lease_id
from relay import RelayError, Subscription, Watcher


def act(reconciler: Reconciler, agent: str, environment: str, number: int, state: dict, timeout: float) -> dict:
    """Wakes the agent's sandbox and takes a turn there. If that fails, the agent skips the turn."""
    try:
        reconciler.wake(lease_id(agent, environment))  # before the turn, whose seconds are for the agent
    except Problem as problem:
        return turn.skip_turn(f"{problem.code}: {problem}")
    return turn.take(reconciler, agent, environment, str(number), state, timeout)


async def watch(reconciler: Reconciler, subscriptions: list[Subscription], timeout: float) -> None:
    """Subscribes for all agents, each over its own connection, which the relay authenticates by the agent's key."""
    def watcher(its: Subscription) -> Watcher:
        return Watcher(its, lambda number, state: asyncio.to_thread(
            act, reconciler, its.agent, its.environment, number, state, timeout))

    await asyncio.gather(*(watcher(its).watch() for its in subscriptions))


def agent_and_key(text: str) -> tuple[str, Path]:
    agent, separator, key = text.rpartition("=")
    if not separator or not agent.startswith("did:") or not Path(key).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} must be a DID, '=', and the file of its key")
    return agent, Path(key)


def main() -> int:
    parser = argparse.ArgumentParser(description="Subscribe to a relay for agents whose sandboxes sleep.")
    parser.add_argument("environment", help="the environment's name")
    parser.add_argument("agents", nargs="+", type=agent_and_key, metavar="DID=KEY", help="an agent and its P-256 key, a PEM file")
    parser.add_argument("--relay", required=True, help="URL of the relay")
    parser.add_argument("--did", required=True, help="DID of the relay")
    parser.add_argument("--collections", default="game.turn.*", help="collections to subscribe to, with ',' between them (default game.turn.*)")
    parser.add_argument("--record-type", default="game.action", help="type of the records (default game.action)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds of a turn (default 60)")
    args = parser.parse_args()
    try:
        subscriptions = [Subscription(args.relay, args.did, agent, args.environment, args.collections.split(","), args.record_type, key)
                         for agent, key in args.agents]
    except RelayError as err:
        parser.error(str(err))
    try:
        asyncio.run(watch(Reconciler.of_environment(), subscriptions, args.timeout))
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
