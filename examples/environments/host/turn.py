#!/usr/bin/env python3
"""Takes one turn of an agent for a game server: runs the turn processor in the agent's sandbox and prints the action
that it chose. If anything fails, the action is skip_turn with the reason, so that the game continues.

    turn.py did:plc:kira rpg-3 12 <state.json

SANDBOX_RECONCILER_URL and SANDBOX_RECONCILER_TOKEN name the reconciler; the token needs the scope lease. The exit code
is 0 unless the arguments or the state are wrong: a skipped turn is a turn too.
"""

import argparse
import json
import os
import re
import secrets
import sys

from reconciler import Problem, Reconciler, lease_id

# The longest reason, in characters.
MAX_REASON = 500
COMMAND = ["python3", "take_turn.py"]  # in /workspace, where a session begins


def take(reconciler: Reconciler, agent: str, environment: str, turn: str, state: dict, timeout: float = 60,
         env: dict[str, str] | None = None) -> dict:
    """Returns the action of a turn: what the turn processor wrote, or skip_turn if it exits with a code other than
    0, times out, writes no JSON, or its sandbox is gone. take always closes the session."""
    lease = lease_id(agent, environment)
    session = f"turn-{re.sub('[^a-z0-9._-]', '-', turn.lower())[:40]}-{secrets.token_hex(4)}"
    try:
        try:
            reconciler.open_session(lease, session, {"GAME_ID": environment, "TURN_NUMBER": turn, **(env or {})})
            result = reconciler.run(lease, session, COMMAND, json.dumps(state), timeout)
        finally:  # also if the answer to open_session was lost
            _close(reconciler, lease, session)
    except Problem as problem:
        return skip_turn(f"{problem.code}: {problem}")
    if result.get("timed_out"):
        return skip_turn(f"the turn took more than {timeout:g} s")
    if result["exit_code"] != 0:
        # Lines before the last are what the agent did (see image/harness/events.py).
        last = result.get("stderr", "").strip().rpartition("\n")[2]
        return skip_turn(last or f"the turn processor ended with {result['exit_code']}")
    return _action(result.get("stdout", ""))


def skip_turn(reason: str) -> dict:
    return {"action": "skip_turn", "reason": reason[:MAX_REASON]}


def _close(reconciler: Reconciler, lease: str, session: str) -> None:
    """Closes the session, with one retry. A failure must not cost the agent a turn that it has taken. So it is only
    reported on standard error; the session closes with its sandbox at the latest."""
    for last in (False, True):
        try:
            return reconciler.close_session(lease, session)
        except Problem as problem:
            if problem.code == "not_found":  # it was never opened, or is gone with its sandbox
                return None
            if last:
                print(f"turn: session {session} of {lease} is not closed: {problem}", file=sys.stderr)
    return None


def _action(stdout: str) -> dict:
    try:
        action = json.loads(stdout)
    except (ValueError, RecursionError) as err:
        return skip_turn(f"the turn processor wrote no JSON: {err}")
    if not isinstance(action, dict) or not isinstance(action.get("action"), str):
        return skip_turn("the turn processor wrote no action")
    return action


def main() -> int:
    parser = argparse.ArgumentParser(description="Take one turn of an agent; the state comes from standard input.")
    parser.add_argument("agent", help="the agent's DID")
    parser.add_argument("environment", help="the environment's name")
    parser.add_argument("turn", help="number or name of the turn")
    parser.add_argument("--timeout", type=float, default=60, help="seconds (default 60)")
    parser.add_argument("--env", action="append", default=[], metavar="NAME", help="variable of this program that the turn gets too")
    args = parser.parse_args()
    if unset := [name for name in args.env if name not in os.environ]:
        parser.error(f"--env {unset[0]}: this program has no such variable")
    try:
        state = json.load(sys.stdin)
    except ValueError as err:
        parser.error(f"standard input must be the state as JSON: {err}")
    action = take(Reconciler.of_environment(), args.agent, args.environment, args.turn, state, args.timeout,
                  {name: os.environ[name] for name in args.env})
    json.dump(action, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
