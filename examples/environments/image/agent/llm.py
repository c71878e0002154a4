"""A model with an OpenAI-compatible API. Its server is the only host that a turn in a sandbox needs to reach."""

import json
import re
import time
import urllib.error
import urllib.request

from settings import Settings

# The statuses after which a retry may succeed, and the maximum number of attempts.
TRANSIENT = {408, 429, 500, 502, 503, 504}
ATTEMPTS = 3
# How much of an answer is read, in bytes.
MAX_ANSWER = 4 << 20


class ModelError(Exception):
    """The model gave no answer. The message has the URL and the cause."""


def ask(settings: Settings, messages: list[dict], sleep=time.sleep) -> str:
    """Returns the model's answer to a conversation. LLM_TIMEOUT limits each attempt."""
    url = settings.variable("LLM_URL", "https://openrouter.ai/api/v1").rstrip("/") + "/chat/completions"
    request = urllib.request.Request(
        url,
        data=json.dumps({"model": settings.variable("LLM_MODEL"), "messages": messages}).encode(),
        headers={"Authorization": "Bearer " + settings.secret("llm_api_key"), "Content-Type": "application/json"},
    )
    timeout = settings.seconds("LLM_TIMEOUT", 45)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return _content(url, response.read(MAX_ANSWER))
        except urllib.error.HTTPError as err:
            said = err.read(300).decode(errors="replace")
            problem, pause = f"{err.code} {err.reason}: {said}", _pause(err, attempt)
            if err.code not in TRANSIENT:
                break
        except (urllib.error.URLError, TimeoutError, ConnectionError) as err:
            problem, pause = str(getattr(err, "reason", err)), attempt
        if attempt < ATTEMPTS:
            sleep(pause)
    raise ModelError(f"{url} was asked {attempt} times: {problem}")


def _pause(err: urllib.error.HTTPError, attempt: int) -> float:
    """The pause that the server asks for, at most 10 s; without one, 1 s more after each attempt."""
    text = err.headers.get("Retry-After", "")
    return min(int(text), 10) if text.isdigit() else attempt


def _content(url: str, body: bytes) -> str:
    try:
        content = json.loads(body)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError) as err:
        raise ModelError(f"{url} gave no chat completion: {body[:200]!r}") from err
    return content if isinstance(content, str) else ""


def json_object(text: str) -> dict:
    """The JSON object of an answer: the whole answer, or its only code block. Errors: ValueError."""
    blocks = re.findall(r"```(?:json)?\s*\n(.*?)```", text, flags=re.DOTALL)
    candidate = blocks[0] if len(blocks) == 1 else text
    try:
        found = json.loads(candidate)
    except ValueError as err:
        raise ValueError(f"it is not one JSON object: {err}") from err
    except RecursionError as err:
        raise ValueError("it is not one JSON object: it is nested too deeply") from err
    if not isinstance(found, dict):
        raise ValueError(f"it is not a JSON object but a {type(found).__name__}")
    return found
