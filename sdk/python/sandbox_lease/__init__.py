"""Leases sandboxes of a reconciler, and runs commands in them.

    import sandbox_lease as sandbox

    with sandbox.lease("did:plc:ada", environment="catan-7") as s:
        s.run("pytest", on_stdout=print)
"""

from __future__ import annotations

from typing import Optional, Sequence, Union

from . import types, webhook
from ._client import Client
from ._output import Output, Result, RunResult
from ._sandbox import Command, Sandbox, Session
from ._transport import Response
from .errors import Code, Error

__all__ = [
    "Client",
    "Code",
    "Command",
    "Error",
    "Output",
    "Response",
    "Result",
    "RunResult",
    "Sandbox",
    "Session",
    "lease",
    "types",
    "webhook",
]


def lease(
    agent_did: str,
    environment: str,
    *,
    ttl: Optional[Union[str, float]] = None,
    max_lifetime: Optional[Union[str, float]] = None,
    sleep_after: Optional[Union[str, float]] = None,
    expiry_conditions: Optional[Sequence[str]] = None,
) -> Sandbox:
    """Client().lease: the reconciler and the token are SANDBOX_RECONCILER_URL and SANDBOX_RECONCILER_TOKEN."""
    sandbox = Client().lease(
        agent_did, environment, ttl=ttl, max_lifetime=max_lifetime, sleep_after=sleep_after,
        expiry_conditions=expiry_conditions,
    )
    sandbox._owns_client = True
    return sandbox
