#!/usr/bin/env python3
"""The turn processor: reads the state of a game, or a task, as JSON from standard input, asks the model, and
writes the agent's action as JSON to standard output.

If the model gives no valid action, the action is {"action": "skip_turn", "reason": …}. Without a state, a skill, a key
or a model, the processor ends with exit code 1 and writes the cause to standard error.
"""

import json
import sys

import coding
import games
import llm
from settings import Settings, SettingsError

# How often the model is asked: once, and once more with the error of its answer.
ATTEMPTS = 2

FORM = """Answer with one JSON object and nothing else: "action", the fields of that action, "reason" (one sentence),
and, if you want to know something in later turns, "remember" (one sentence)."""


class StateError(Exception):
    """Standard input is not a valid state."""


def take_turn(settings: Settings, state: dict, ask=llm.ask) -> dict:
    """Returns the action for a state. Errors: SettingsError, llm.ModelError, StateError."""
    kind = settings.environment_type
    if kind == "coding":
        return coding.propose(settings, state, ask)
    if kind not in games.ACTIONS:
        raise SettingsError(f"an environment of type {kind} has no turns: rpg, catan and coding have")
    messages = [
        {"role": "system", "content": settings.prompt() + "\n\n" + FORM},
        {"role": "user", "content": json.dumps({"you": settings.agent, "state": state}, ensure_ascii=False)},
    ]
    for _ in range(ATTEMPTS):
        answer = ask(settings, messages)
        try:
            found = llm.json_object(answer)
            action = games.check(kind, state, found)
        except (ValueError, games.BadAction) as err:
            problem = str(err)
            messages += [
                {"role": "assistant", "content": answer[:2000]},
                {"role": "user", "content": f"That is no action: {problem}. {FORM}"},
            ]
            continue
        if isinstance(found.get("remember"), str) and found["remember"].strip():
            settings.remember(found["remember"][: games.MAX_TEXT])
        return action
    return games.skip_turn(f"the model gave no action: {problem}")


def read_state(text: str) -> dict:
    try:
        state = json.loads(text)
    except ValueError as err:
        raise StateError(f"standard input must be the state as JSON: {err}") from err
    if not isinstance(state, dict):
        raise StateError(f"standard input must be the state as a JSON object, not a {type(state).__name__}")
    return state


def main() -> int:
    try:
        action = take_turn(Settings(), read_state(sys.stdin.read()))
    except (SettingsError, StateError, llm.ModelError, coding.TaskError) as err:
        print(f"take_turn: {err}", file=sys.stderr)
        return 1
    json.dump(action, sys.stdout, ensure_ascii=False)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
