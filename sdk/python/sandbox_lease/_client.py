"""The client: the operations that stream, sign or pass bytes on."""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from datetime import datetime, timezone
from typing import Any, Callable, Iterator, Literal, Mapping, Optional, Sequence, Union

from . import types, webhook
from ._operations import Operations
from ._output import LineCallback, Output, Result, RunResult, command_of, decode
from ._transport import EVENTS, IDLE, JSON, NDJSON, OCTETS, PROBLEM, TAR, Content, Response, agent_path, duration, seconds, segment
from .errors import Error

Duration = Union[str, float]


class Client(Operations):
    """A client of one reconciler. It has a method for each operation of the OpenAPI document.

    It sends idempotent requests again after lost connections and after 429, 502, 503 and 504, a limited number of
    times, and honors Retry-After. If the answer to any other request is lost, the error is "unknown_outcome".
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Leases.

    def lease(
        self,
        agent_did: str,
        environment: str,
        *,
        ttl: Optional[Duration] = None,
        max_lifetime: Optional[Duration] = None,
        sleep_after: Optional[Duration] = None,
        expiry_conditions: Optional[Sequence[str]] = None,
    ) -> Sandbox:
        """Acquires the lease of an agent in an environment, and waits until its sandbox takes commands.

        It is idempotent: a second call returns the same lease. In a with statement, the lease is released at the end.
        """
        settings: types.LeaseSettings = {}
        for name, value in (("ttl", ttl), ("max_lifetime", max_lifetime), ("sleep_after", sleep_after)):
            if value is not None:
                settings[name] = duration(value)  # type: ignore[literal-required]
        if expiry_conditions is not None:
            settings["expiry_conditions"] = list(expiry_conditions)
        body: types.Acquire = {"agent_did": agent_did, "environment_id": environment}
        if settings:
            body["settings"] = settings
        return Sandbox(self, self.acquire_lease(body)["lease"])

    def sandbox(self, lease_id: str) -> Sandbox:
        """Returns the sandbox of an existing lease."""
        return Sandbox(self, self.get_lease(lease_id))

    # Commands.

    def exec(
        self,
        id: str,
        body: types.ExecRequest,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
        on_output: Optional[Callable[[Output], object]] = None,
    ) -> types.ExecResult:
        """Runs a command that ends with this request. on_output gets its output as it arrives.

        The request is not sent again. Sandbox.run runs a command that survives a lost connection.
        """
        return self._exec(f"/v1/leases/{segment(id)}/exec", body, {"generation": generation, "owner": owner}, on_output)

    def exec_in_session(
        self,
        id: str,
        session: str,
        body: types.ExecRequest,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
        on_output: Optional[Callable[[Output], object]] = None,
    ) -> types.ExecResult:
        """Runs a command in a session. It is like exec."""
        path = f"/v1/leases/{segment(id)}/sessions/{segment(session)}/exec"
        return self._exec(path, body, {"generation": generation, "owner": owner}, on_output)

    def _exec(
        self,
        path: str,
        body: types.ExecRequest,
        query: Mapping[str, Any],
        on_output: Optional[Callable[[Output], object]],
    ) -> Any:
        longer = seconds(body.get("timeout")) or 120.0
        if on_output is None:
            return self._call("POST", path, query=query, body=body, slow=True, once=True, longer=longer)
        headers = {"Accept": NDJSON, "Content-Type": JSON}
        sent = json.dumps(body).encode()
        return self._outputs("POST", path, query, headers, sent, self._slow + longer, on_output)

    def _outputs(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str],
        body: Content,
        timeout: float,
        on_output: Callable[[Output], object],
    ) -> Any:
        """Forwards the lines of a streamed command, and returns its result."""
        with self._open(method, path, query=query, headers=headers, body=body, timeout=timeout, idle=IDLE) as answer:
            for line in answer.lines():
                if not line:
                    continue  # it keeps the connection open
                message = json.loads(line)
                if "error" in message:
                    raise Error.of(message["error"])
                if "result" in message:
                    return message["result"]
                if "stream" in message:
                    on_output(Output(message["stream"], decode(message.get("data", ""), message.get("encoding"))))
        raise self._lost(f"{method} {path}", EOFError("the stream ended without a result"), sent=True)

    def _start(self, path: str, body: types.ExecRequest, query: Mapping[str, Any]) -> types.Exec:
        """Starts a detached command. With an id, the request may be sent again."""
        started: types.Exec = self._call(
            "POST", path, query=query, body={**body, "detach": True}, slow=True, once=not body.get("id")
        )
        return started

    def read_exec(
        self,
        id: str,
        exec: str,
        stream: str,
        *,
        offset: int = 0,
        follow: bool = False,
        _stop: Optional[threading.Event] = None,
        _opened: Optional[Callable[[Response], object]] = None,
    ) -> Iterator[bytes]:
        """Yields the output of a command, with follow until it ends. After a lost connection, it resumes."""
        path = f"/v1/leases/{segment(id)}/execs/{segment(exec)}/{segment(stream)}"
        return self._follow(path, {}, offset, follow, _stop, _opened)

    def read_process(
        self,
        id: str,
        process: str,
        *,
        offset: int = 0,
        follow: bool = False,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> Iterator[bytes]:
        """Yields the log of a process, with follow until it exits. After a lost connection, it resumes."""
        path = f"/v1/leases/{segment(id)}/processes/{segment(process)}/logs"
        return self._follow(path, {"generation": generation, "owner": owner}, offset, follow, None, None)

    def read_companion(
        self,
        id: str,
        companion: str,
        *,
        offset: int = 0,
        follow: bool = False,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> Iterator[bytes]:
        """Yields the log of a companion, with follow until its program ends."""
        path = f"/v1/leases/{segment(id)}/companions/{segment(companion)}/logs"
        return self._follow(path, {"generation": generation, "owner": owner}, offset, follow, None, None)

    def _follow(
        self,
        path: str,
        query: Mapping[str, Any],
        offset: int,
        follow: bool,
        stop: Optional[threading.Event],
        opened: Optional[Callable[[Response], object]],
    ) -> Iterator[bytes]:
        failures, stop = 0, stop or threading.Event()
        while not stop.is_set():
            began, reached = time.monotonic(), offset
            try:
                with self._open(
                    "GET", path, query={**query, "offset": offset or None, "follow": follow}, headers={"Accept": OCTETS},
                    timeout=self._quick, idle=IDLE,
                ) as answer:
                    if opened is not None:
                        opened(answer)
                    offset = int(answer.headers.get("Log-Offset") or offset)
                    for piece in answer:
                        offset += len(piece)
                        yield piece
                return
            except Error as error:
                failures = self._failed_again(error, failures, offset > reached, began)
                stop.wait(self._backoff(failures, error))

    def _failed_again(self, error: Error, failures: int, progress: bool, began: float) -> int:
        """Returns how often a stream has failed in a row without progress. Too often is an error. A stream that was
        open for long has not failed."""
        if not error.retryable:
            raise error
        failures = 0 if progress or time.monotonic() - began >= IDLE / 2 else failures + 1
        if failures >= self._attempts:
            raise error
        return failures

    # Events.

    def follow_events(
        self,
        *,
        environment_id: Optional[str] = None,
        lease_id: Optional[str] = None,
        sandbox_id: Optional[str] = None,
        type: Optional[str] = None,
        after_id: Optional[int] = None,
    ) -> Iterator[types.Event]:
        """Yields the stored events and then new ones, without an end. After a lost connection, it misses none."""
        query = {"environment_id": environment_id, "lease_id": lease_id, "sandbox_id": sandbox_id, "type": type}
        for event in self._events("/v1/events", query, "after_id", after_id or 0, "id"):
            yield event

    def follow_session_events(
        self, id: str, session: str, *, generation: Optional[int] = None, after: int = 0
    ) -> Iterator[types.SessionEvent]:
        """Yields the recording of a session and then new events, until the session is closed and idle."""
        path = f"/v1/leases/{segment(id)}/sessions/{segment(session)}/events"
        for event in self._events(path, {"generation": generation}, "after", after, "sequence"):
            yield event

    def _events(self, path: str, query: Mapping[str, Any], after: str, last: int, key: str) -> Iterator[Any]:
        failures = 0
        while True:
            began, reached = time.monotonic(), last
            try:
                with self._open(
                    "GET", path, query={**query, after: last or None}, headers={"Accept": EVENTS},
                    timeout=self._quick, idle=IDLE,
                ) as answer:
                    kind, passed = "", 0
                    for line in answer.lines():
                        name, _, value = line.decode().partition(": ")
                        if name == "id":
                            passed = int(value)
                        elif name == "event":
                            kind = value
                        elif name == "data" and kind == "error":
                            raise Error.of(json.loads(value))
                        elif name == "data" and kind == "closed":
                            return
                        elif name == "data":
                            event = json.loads(value)
                            last = event[key]
                            yield event
                        elif not line:
                            kind, last = "", max(last, passed)  # also past events that the filter omits
                raise self._lost(f"GET {path}", EOFError("the stream ended"), sent=True)
            except Error as error:
                failures = self._failed_again(error, failures, last > reached, began)
                time.sleep(self._backoff(failures, error))

    # Files.

    def read_files(
        self,
        id: str,
        path: str,
        *,
        tar: bool = False,
        max_bytes: Optional[int] = None,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> Response:
        """Opens a file, or with tar a file or directory as a tar stream. The caller closes it."""
        query = {"path": path, "max_bytes": max_bytes, "generation": generation, "owner": owner}
        return self._open(
            "GET", f"/v1/leases/{segment(id)}/files", query=query, headers={"Accept": TAR if tar else OCTETS},
            timeout=self._slow,
        )

    def read_workspace(
        self, id: str, form: Literal["bundle", "diff"], *, generation: Optional[int] = None, owner: Optional[str] = None
    ) -> Response:
        """Opens the commits of a lease's workspace as a Git bundle, or its changes as a diff. The caller closes it."""
        return self._open(
            "GET", f"/v1/leases/{segment(id)}/workspace/{form}", query={"generation": generation, "owner": owner},
            headers={"Accept": OCTETS}, timeout=self._slow,
        )

    def write_files(
        self,
        id: str,
        path: str,
        content: Content,
        *,
        tar: bool = False,
        mode: Optional[int] = None,
        max_bytes: Optional[int] = None,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> None:
        """Writes a file, or with tar unpacks a tar stream in a directory. The request is not sent again."""
        query = {"path": path, "max_bytes": max_bytes, "generation": generation, "owner": owner,
                 "mode": None if mode is None else f"{mode:04o}"}
        self._open(
            "PUT", f"/v1/leases/{segment(id)}/files", query=query, body=content,
            headers={"Accept": JSON, "Content-Type": TAR if tar else OCTETS}, timeout=self._slow,
        ).close()

    # Runs.

    def run(
        self,
        environment: str,
        command: Union[str, Sequence[str]],
        *,
        on_stdout: Optional[Callable[[str], object]] = None,
        on_stderr: Optional[Callable[[str], object]] = None,
        agent_did: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        timeout: Optional[Duration] = None,
        margin: Optional[Duration] = None,
        image: Optional[str] = None,
        resources: Optional[types.Resources] = None,
        network: Optional[str] = None,
        files: Optional[bytes] = None,
        stdin: Union[bytes, str, None] = None,
        collect: Sequence[str] = (),
        output_limit: int = 1 << 20,
    ) -> RunResult:
        """Runs one command in a sandbox of its own, which is destroyed afterwards.

        files is a tar archive to unpack in /workspace. collect names files to return in files of the result, a tar
        archive. The request is not sent again.
        """
        request: dict[str, Any] = {
            "environment_id": environment, "command": command_of(command), "agent_did": agent_did, "cwd": cwd, "user": user,
            "env": dict(env) if env else None, "timeout": duration(timeout), "margin": duration(margin), "image": image,
            "resources": resources, "network": network, "collect": list(collect) or None,
        }
        boundary = uuid.uuid4().hex
        parts = [("run", json.dumps({k: v for k, v in request.items() if v is not None}).encode())]
        if files is not None:
            parts.append(("files", files))
        if stdin is not None:
            parts.append(("stdin", stdin.encode() if isinstance(stdin, str) else stdin))
        body = b"".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + content + b"\r\n"
            for name, content in parts
        ) + f"--{boundary}--\r\n".encode()
        archive = bytearray()
        lines = LineCallback(on_stdout, on_stderr, output_limit)

        def got(output: Output) -> None:
            if output.stream == "files":
                archive.extend(output.data)
            else:
                lines(output)

        wait = self._slow + (seconds(timeout) or 120.0) + (seconds(margin) or 120.0)
        headers = {"Accept": NDJSON, "Content-Type": f"multipart/form-data; boundary={boundary}"}
        wire = self._outputs("POST", "/v1/runs", {}, headers, body, wait, got)
        result = lines.result(wire.get("exec_id", ""), wire)
        return RunResult(**vars(result), lease=wire["lease"], missing=wire.get("missing", []), files=bytes(archive))

    # Conditions.

    def send_condition(
        self,
        type: str,
        environment: str,
        *,
        agent_did: Optional[str] = None,
        generation: Optional[int] = None,
        reason: Optional[str] = None,
        at: Optional[datetime] = None,
        id: Optional[str] = None,
    ) -> types.Receipt:
        """Sends a condition, such as game.finished, until it is stored. It takes effect once, however often it is sent.

        The webhook secret of the client signs it; without one, the token needs the scope conditions.
        """
        data: types.ConditionData = {"environment_id": environment}
        if agent_did is not None:
            data["agent_did"] = agent_did
        if generation is not None:
            data["generation"] = generation
        if reason is not None:
            data["reason"] = reason
        at = at or datetime.now(timezone.utc)
        condition: types.Condition = {"type": type, "timestamp": at.isoformat(), "data": data}
        body, id = json.dumps(condition).encode(), id or f"msg_{uuid.uuid4().hex}"
        headers = webhook.sign(self._secret, id, body) if self._secret else {"webhook-id": id}
        receipt: types.Receipt = self._call(
            "POST", "/v1/conditions", body=body, headers=headers, signed=bool(self._secret)
        )
        return receipt

    # Agents and probes.

    def ask_agent(
        self,
        id: str,
        agent: str,
        path: str = "",
        *,
        method: str = "GET",
        query: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[Content] = None,
        session: Optional[str] = None,
    ) -> Response:
        """Forwards a request to an agent, and returns the agent's answer, whatever its status. The caller closes it."""
        sent = dict(headers or {})
        if session is not None:
            sent["X-Sandbox-Session"] = session
        answer = self._open(
            method, f"/v1/leases/{segment(id)}/agents/{segment(agent)}/{agent_path(path)}", query=query, headers=sent,
            body=body, timeout=self._slow, any_status=True,
        )
        if answer.headers.get_content_type() == PROBLEM:
            with answer:
                raise self._rejection(answer, method, path)
        return answer

    def livez(self) -> bool:
        """Whether the reconciler is alive."""
        return self._probe("/livez")

    def readyz(self) -> bool:
        """Whether the reconciler is ready to work."""
        return self._probe("/readyz")

    def _probe(self, path: str) -> bool:
        with self._open("GET", path, timeout=self._quick, any_status=True) as answer:
            answer.read()
            return answer.status == 200

    def metrics(self) -> str:
        """Returns the reconciler's metrics in the text format of Prometheus."""
        with self._open("GET", "/metrics", timeout=self._quick) as answer:
            return answer.read().decode()


from ._sandbox import Sandbox  # noqa: E402  a sandbox knows its client
