"""Signatures of Standard Webhooks, for senders of conditions and receivers of messages."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from typing import Iterable, Mapping, Optional, Union

from .errors import Error

#: How far the time of a message may be in the past or in the future, in seconds.
TOLERANCE = 300


def sign(secret: str, id: str, body: bytes, at: Optional[float] = None) -> dict[str, str]:
    """Returns the headers that sign a message at a time, by default now."""
    _check_id(id, "invalid")
    timestamp = str(int(time.time() if at is None else at))
    return {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": "v1," + base64.b64encode(_mac(_key(secret), id, timestamp, body)).decode(),
    }


def verify(
    secrets: Union[str, Iterable[str]], headers: Mapping[str, str], body: bytes, now: Optional[float] = None
) -> str:
    """Returns the id of a message that one of the secrets signs. Anything else is an error, "unauthenticated".

    The body must be the bytes that arrived. A repeated id means that the message was sent again.
    """
    lower: dict[str, str] = {}
    for name, value in headers.items():
        if name.lower() in lower and name.lower().startswith("webhook-"):
            raise _refused(f"header {name} is present more than once")
        lower[name.lower()] = value
    missing = [n for n in ("webhook-id", "webhook-timestamp", "webhook-signature") if n not in lower]
    if missing:
        raise _refused(f"header {missing[0]} is missing")
    id, timestamp = lower["webhook-id"], lower["webhook-timestamp"]
    _check_id(id, "unauthenticated")
    if not (timestamp.isascii() and timestamp.isdigit()) or str(int(timestamp)) != timestamp:
        raise _refused(f"timestamp {timestamp!r} is not in Unix seconds")
    age = (time.time() if now is None else now) - int(timestamp)
    if abs(age) > TOLERANCE:
        raise _refused(f"message {id} was signed {age:.0f} s away from this clock, more than {TOLERANCE} s")
    signatures = lower["webhook-signature"].split()
    if len(signatures) > 32:
        raise _refused(f"message {id} has {len(signatures)} signatures, more than 32")
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        want = b"v1," + base64.b64encode(_mac(_key(secret), id, timestamp, body))
        if any(hmac.compare_digest(want, signature.encode()) for signature in signatures):
            return id
    raise _refused(f"no signature of message {id} matches a secret")


def _key(secret: str) -> bytes:
    if not secret.startswith("whsec_"):
        raise Error("invalid", 'a webhook secret must start with "whsec_"')
    try:
        key = base64.b64decode(secret[len("whsec_"):], validate=True)
    except (binascii.Error, ValueError):
        raise Error("invalid", 'a webhook secret must be "whsec_" and base64: this one is not base64') from None
    if not 24 <= len(key) <= 64:
        raise Error("invalid", f"a webhook secret must have 24 to 64 random bytes, but this one has {len(key)}")
    return key


def _mac(key: bytes, id: str, timestamp: str, body: bytes) -> bytes:
    return hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()


def _check_id(id: str, code: str) -> None:
    if not 1 <= len(id) <= 256 or any(not "!" <= c <= "~" or c == "." for c in id):
        raise Error(code, "webhook-id: must be 1 to 256 visible ASCII characters without '.'")  # type: ignore[arg-type]


def _refused(message: str) -> Error:
    return Error("unauthenticated", "webhook: " + message)
