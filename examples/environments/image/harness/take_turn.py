#!/usr/bin/env python3
"""The turn processor: reads the state of a game, or a task, as JSON from standard input or else from TURN_DATA, lets
the model work with tools, and writes the agent's action as JSON to standard output.

If the turn ends without an action, the action is {"action": "skip_turn", "reason": …}. Without a state, a skill or a
setting, the processor ends with exit code 1 and writes the cause to standard error.
"""

import json
import sys
import time

import coding
import games
import llm
from events import Events
from files import Files
from loop import Ask, Loop
from settings import Settings, SettingsError
from shell import Shell

HOW = """# How a turn goes
Work with the tools bash, read, write and edit as far as you need them, in several steps. Your turn ends when you call
the tool of your action. A call that is answered with an error has not ended it: correct it. You have at most {steps}
steps and {seconds:g} seconds."""


class StateError(Exception):
    """The state is missing, or not a JSON object."""


def take_turn(settings: Settings, state: dict, ask: Ask = llm.ask, events: Events | None = None) -> dict:
    """Returns the action for a state. Errors: SettingsError."""
    kind, limits = settings.environment_type, settings.limits
    if kind != "coding" and kind not in games.ACTIONS:
        raise SettingsError(f"an environment of type {kind} has no turns: rpg, catan and coding have")
    deadline = time.monotonic() + limits.seconds
    system = settings.prompt() + "\n\n" + HOW.format(steps=limits.steps, seconds=limits.seconds)
    try:
        if kind == "coding":
            work = coding.Work.begin(settings, coding.Task.of(state))
            shell = Shell(work.tree, settings.public_environment(), deadline)
            ends, question = [work.tool(shell), games.skip_tool()], work.message()
        else:
            shell = Shell(settings.workspace, settings.public_environment(), deadline)
            ends = games.tools(kind, state, settings.remember)
            question = json.dumps({"you": settings.agent, "state": state}, ensure_ascii=False)
        files = Files(shell.cwd, (settings.workspace, settings.data))
        loop = Loop(settings, [shell.tool(), *files.tools(), *ends], limits, deadline, events or Events(settings.hidden), ask)
        return loop.run([{"role": "system", "content": system}, {"role": "user", "content": question}])
    except (coding.TaskError, llm.ModelError) as err:
        return games.skip_turn(str(err))


def read_state(text: str) -> dict:
    """Parses the state. Errors: StateError."""
    try:
        state = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise StateError(f"standard input, or TURN_DATA, must be the state as JSON: {err}") from err
    if not isinstance(state, dict):
        raise StateError(f"the state must be a JSON object, not a {type(state).__name__}")
    return state


def main() -> int:
    settings = Settings()
    try:
        action = take_turn(settings, read_state(sys.stdin.read() or settings.environment.get("TURN_DATA", "")))
    except (SettingsError, StateError) as err:
        print(f"take_turn: {err}", file=sys.stderr)
        return 1
    json.dump(action, sys.stdout, ensure_ascii=False)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
