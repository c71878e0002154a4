"""The model: an API of OpenAI's form with tools. In a sandbox it answers at the environment's LLM route, without a key."""

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from settings import Settings

# The model of an environment that names none.
MODEL = "anthropic/claude-sonnet-4"
# The variables of an LLM route, by its protocol: its address, and its key, which is a placeholder.
ROUTES = (("OPENROUTER_BASE_URL", "OPENROUTER_API_KEY"), ("OPENAI_BASE_URL", "OPENAI_API_KEY"))
# The address without a route. Its key must then be in the sandbox.
WITHOUT_ROUTE = "https://openrouter.ai/api/v1"
# The statuses after which a retry may succeed, and the maximum number of attempts.
TRANSIENT = {408, 429, 500, 502, 503, 504}
ATTEMPTS = 3
# How much of an answer is read, in bytes.
MAX_ANSWER = 4 << 20


class ModelError(Exception):
    """The model gave no answer. The message has the URL and the cause."""


@dataclass(frozen=True)
class Call:
    """A tool that the model calls. arguments is JSON, as the model wrote it."""

    id: str
    tool: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """An answer of the model, and the tokens of question and answer."""

    text: str
    calls: tuple[Call, ...]
    tokens: int

    def message(self) -> dict:
        """The answer as a message of the conversation."""
        message = {"role": "assistant", "content": self.text}
        if self.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
                for call in self.calls]
        return message


def ask(settings: Settings, messages: list[dict], tools: list[dict], deadline: float, sleep=time.sleep) -> Answer:
    """Returns the model's answer to a conversation. deadline is a time of time.monotonic. Errors: ModelError."""
    address, key = _route(settings)
    url = address.rstrip("/") + "/chat/completions"
    body = json.dumps({"model": settings.variable("MODEL", MODEL), "messages": messages, "tools": tools}).encode()
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    if settings.turn:
        headers["X-Sandbox-Session"] = settings.turn  # the gateway records it with the call
    request = urllib.request.Request(url, data=body, headers=headers)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=max(deadline - time.monotonic(), 0.1)) as response:
                return _answer(url, body, response.read(MAX_ANSWER))
        except urllib.error.HTTPError as err:
            said = err.read(300).decode(errors="replace")
            problem, pause = f"{err.code} {err.reason}: {said}", _pause(err, attempt)
            if err.code not in TRANSIENT:
                break
        except (urllib.error.URLError, TimeoutError, ConnectionError) as err:
            problem, pause = str(getattr(err, "reason", err)), attempt
        if attempt == ATTEMPTS or time.monotonic() + pause >= deadline:
            break
        sleep(pause)
    raise ModelError(f"{url} was asked {attempt} times: {problem}")


def _route(settings: Settings) -> tuple[str, str]:
    """The address and the key of the model's API."""
    for address, key in ROUTES:
        if settings.environment.get(address):
            return settings.variable(address), settings.variable(key)
    return WITHOUT_ROUTE, settings.variable(ROUTES[0][1])


def _pause(err: urllib.error.HTTPError, attempt: int) -> float:
    """The pause that the server asks for, at most 10 s; without one, 1 s more after each attempt."""
    text = err.headers.get("Retry-After", "")
    return min(int(text), 10) if text.isdigit() else attempt


def _answer(url: str, question: bytes, body: bytes) -> Answer:
    try:
        completion = json.loads(body)
        message = completion["choices"][0]["message"]
        calls = tuple(Call(call["id"], call["function"]["name"], call["function"]["arguments"])
                      for call in message.get("tool_calls") or ())
        if not all(isinstance(text, str) for call in calls for text in (call.id, call.tool, call.arguments)):
            raise TypeError("a tool call has other values than texts")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as err:
        raise ModelError(f"{url} gave no chat completion: {body[:200]!r}") from err
    text = message.get("content")
    return Answer(text if isinstance(text, str) else "", calls, _tokens(completion, len(question) + len(body)))


def _tokens(completion: dict, size: int) -> int:
    """The tokens that the API counted. For an API that counts none, a token is four bytes."""
    usage = completion.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) and total > 0 else size // 4
