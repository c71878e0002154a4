"""What the agent does, for those who watch: one line of JSON for each tool call and each result.

The lines go to standard error, which the recording of the turn's session keeps. Standard output has only the action.
"""

import json
import sys
from collections.abc import Callable
from typing import TextIO

from tools import bounded

# How much of arguments and outputs is shown, in characters.
MAX_SHOWN = 2_000


class Events:
    """Writes events. Texts of hidden are replaced in all that it writes, and in what it returns for the model."""

    def __init__(self, hidden: Callable[[], list[str]], out: TextIO | None = None) -> None:
        self._hidden, self._out = hidden, out or sys.stderr

    def invoke(self, call: str, tool: str, arguments: object) -> None:
        shown = self.clean(arguments)
        text = json.dumps(shown, ensure_ascii=False)
        self._write({"event": "tool.invoke", "id": call, "tool": tool,
                     "arguments": shown if len(text) <= MAX_SHOWN else bounded(text, MAX_SHOWN)})

    def result(self, call: str, tool: str, ok: bool, output: str, seconds: float) -> None:
        self._write({"event": "tool.result", "id": call, "tool": tool, "ok": ok,
                     "output": bounded(self.clean(output), MAX_SHOWN), "duration_ms": round(seconds * 1000)})

    def clean(self, value: object) -> object:
        """The value without hidden texts."""
        return _replaced(value, self._hidden())

    def _write(self, event: dict) -> None:
        print(json.dumps(event, ensure_ascii=False), file=self._out, flush=True)


def _replaced(value: object, hidden: list[str]) -> object:
    if isinstance(value, str):
        for text in hidden:
            value = value.replace(text, "***")
    elif isinstance(value, dict):
        value = {_replaced(name, hidden): _replaced(entry, hidden) for name, entry in value.items()}
    elif isinstance(value, list):
        value = [_replaced(entry, hidden) for entry in value]
    return value
