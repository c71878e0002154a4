"""The one error type of this package."""

from __future__ import annotations

from typing import Any, Literal, Mapping, Optional, Sequence, cast

from . import types

Code = Literal[
    "invalid",
    "not_found",
    "conflict",
    "lease_ended",
    "environment_ended",
    "budget_exceeded",
    "capacity_exceeded",
    "event_sequence_expired",
    "output_expired",
    "unauthenticated",
    "forbidden",
    "unavailable",
    "unknown_outcome",
    "timeout",
    "failed",
    "internal",
]


class Error(Exception):
    """A request that was rejected or failed. Code and reason are for programs, the message is for people."""

    code: Code
    #: Refines the code; "" if nothing does.
    reason: str
    message: str
    #: The wrong fields of the request.
    fields: Sequence[types.Field]
    #: The id of the request in the reconciler's log, and its HTTP status; unset if there was no answer.
    request_id: Optional[str]
    status: Optional[int]
    #: How long the reconciler asked to wait before a retry, in seconds.
    retry_after: Optional[float]

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        reason: str = "",
        fields: Sequence[types.Field] = (),
        request_id: Optional[str] = None,
        status: Optional[int] = None,
    ) -> None:
        super().__init__("; ".join([message, *(f"{f['name']}: {f['problem']}" for f in fields)]))
        self.code, self.reason, self.message = code, reason, message
        self.fields, self.request_id, self.status = fields, request_id, status
        self.retry_after = None
        self._unsent = False  # the request has not reached the reconciler
        self._permanent = False  # no retry can help

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in ("unavailable", "unknown_outcome", "capacity_exceeded", "timeout")

    @staticmethod
    def of(problem: Mapping[str, Any]) -> Error:
        """Returns the error of a problem document."""
        return Error(
            cast(Code, problem["code"]),
            problem.get("detail", ""),
            reason=problem.get("reason", ""),
            fields=problem.get("fields", ()),
            request_id=problem.get("request_id"),
            status=problem.get("status"),
        )
