"""The loop of a turn: asks the model, runs the tools that it calls, and ends with the action that a tool returns."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import games
import llm
from events import Events
from settings import Limits, Settings
from tools import Tool, ToolError, bounded

# How much of a tool's output the model sees, in characters.
MAX_OUTPUT = 20_000
# How many answers in a row may call no tool.
SILENT = 2

Ask = Callable[[Settings, list[dict], list[dict], float], llm.Answer]


@dataclass
class Loop:
    """One turn, until its deadline, a time of time.monotonic."""

    settings: Settings
    tools: list[Tool]
    limits: Limits
    deadline: float
    events: Events
    ask: Ask = llm.ask

    def run(self, messages: list[dict]) -> dict:
        """Returns the action; skip_turn with the reason, if the turn reaches a limit. Errors: llm.ModelError."""
        schemas, used, silent = [tool.schema() for tool in self.tools], 0, 0
        for _ in range(self.limits.steps):
            if used >= self.limits.tokens:
                return games.skip_turn(f"the turn has used {used} tokens, its limit is {self.limits.tokens} (TURN_MAX_TOKENS)")
            if self._is_over():
                return self._too_long()
            answer = self.ask(self.settings, messages, schemas, self.deadline)
            used += answer.tokens
            messages.append(answer.message())
            silent = 0 if answer.calls else silent + 1
            if silent == SILENT:
                return games.skip_turn(f"the model called no tool: {answer.text}")
            if silent:
                messages.append({"role": "user", "content": "Call a tool. The turn ends with the tool of your action, or with skip_turn."})
            for call in answer.calls:
                if self._is_over():
                    return self._too_long()
                found = self._call(call)
                if isinstance(found, dict):
                    return found
                messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
        return games.skip_turn(f"the turn has taken {self.limits.steps} steps without an action, its limit (TURN_MAX_STEPS)")

    def _call(self, call: llm.Call) -> str | dict:
        """Runs one tool. Returns what the model sees of it, or the action."""
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = call.arguments  # which no tool takes
        started, found, ok = time.monotonic(), "", True
        self.events.invoke(call.id, call.tool, arguments)
        try:
            found = self._tool(call.tool).call(arguments)
        except ToolError as err:
            found, ok = f"Error: {err}", False
        shown = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        self.events.result(call.id, call.tool, ok, shown, time.monotonic() - started)
        return bounded(self.events.clean(found), MAX_OUTPUT) if isinstance(found, str) else found

    def _tool(self, name: str) -> Tool:
        for tool in self.tools:
            if tool.name == name:
                return tool
        raise ToolError(f"there is no tool {name[:60]!r}, only {', '.join(tool.name for tool in self.tools)}")

    def _is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    def _too_long(self) -> dict:
        return games.skip_turn(f"the turn has taken {self.limits.seconds:g} s without an action, its limit (TURN_MAX_SECONDS)")
