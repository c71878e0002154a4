"""A leased sandbox, its commands and its sessions."""

from __future__ import annotations

import base64
import json
import queue
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Sequence, Union

from . import types
from ._output import LineCallback, Output, Result, command_of, decode
from ._transport import NDJSON, Content, Response, duration, seconds, segment
from .errors import Error

if TYPE_CHECKING:
    from ._client import Client, Duration

Line = Callable[[str], object]


class Command:
    """A command of a lease. Iterating over it yields its output from the beginning until it ends."""

    def __init__(self, client: Client, lease_id: str, id: str, timeout: float) -> None:
        self._client, self.lease_id, self.id, self._timeout = client, lease_id, id, timeout

    def info(self) -> types.Exec:
        """Returns the state of the command."""
        return self._client.get_exec(self.lease_id, self.id)

    def cancel(self) -> types.Exec:
        """Kills the command and its processes, and waits for their exit."""
        return self._client.cancel_exec(self.lease_id, self.id)

    def read(self, stream: str = "stdout", *, offset: int = 0, follow: bool = False) -> Iterator[bytes]:
        """Yields one stream of its output, with follow until the command ends."""
        return self._client.read_exec(self.lease_id, self.id, stream, offset=offset, follow=follow)

    def wait(self) -> types.Exec:
        """Waits until the command has ended. One that failed to run or was cancelled is an error."""
        deadline, pause = time.monotonic() + self._timeout, 0.01
        while True:
            state = self.info()
            if state["state"] == "finished":
                return state
            if state["state"] != "running":
                reason = "exec_cancelled" if state["state"] == "cancelled" else "sandbox_exec_failed"
                raise Error("failed", f"command {self.id} of lease {self.lease_id} {state['state']}: "
                            f"{state.get('error', 'no cause is known')}", reason=reason)
            if time.monotonic() > deadline:
                raise Error("timeout", f"command {self.id} of lease {self.lease_id} has not ended in time; cancel it")
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def __iter__(self) -> Iterator[Output]:
        arrived: queue.Queue[Any] = queue.Queue(maxsize=64)
        stop = threading.Event()
        streams: dict[str, Response] = {}

        def pump(name: str) -> None:
            try:
                pieces = self._client.read_exec(
                    self.lease_id, self.id, name, follow=True, _stop=stop, _opened=lambda r: streams.update({name: r})
                )
                for piece in pieces:
                    arrived.put(Output(name, piece))
                    if stop.is_set():
                        break
            except BaseException as error:
                arrived.put(error)
            finally:
                arrived.put(None)

        threads = [threading.Thread(target=pump, args=(name,), daemon=True) for name in ("stdout", "stderr")]
        for thread in threads:
            thread.start()
        running = len(threads)
        try:
            while running:
                piece = arrived.get()
                if piece is None:
                    running -= 1
                elif isinstance(piece, Output):
                    yield piece
                else:
                    raise piece
        finally:
            stop.set()
            while running:
                for stream in list(streams.values()):
                    stream.abort()
                try:
                    running -= arrived.get(timeout=0.1) is None
                except queue.Empty:
                    pass  # a thread has opened its stream just now: it is aborted in the next round


class _Runs:
    """Runs commands: a sandbox, or a session in it."""

    _client: Client
    id: str

    def _exec_path(self) -> str:
        raise NotImplementedError

    def _fence(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def _lease_id(self) -> str:
        raise NotImplementedError

    def _request(self, command: Union[str, Sequence[str]]) -> types.ExecRequest:
        return {"command": command_of(command)}

    def start(
        self,
        command: Union[str, Sequence[str]],
        *,
        id: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        verifier: bool = False,
        timeout: Optional[Duration] = None,
    ) -> Command:
        """Starts a command that continues after this program ends. A second call with the same id starts nothing."""
        body = self._body(command, id, env, cwd, user, verifier, timeout)
        started = self._client._start(self._exec_path(), body, self._fence())
        return Command(self._client, self._lease_id(), started["id"], self._patience(timeout))

    def _patience(self, timeout: Optional[Duration]) -> float:
        return (seconds(timeout) or 120.0) + self._client._slow

    def _body(
        self,
        command: Union[str, Sequence[str]],
        id: Optional[str],
        env: Optional[Mapping[str, str]],
        cwd: Optional[str],
        user: Optional[str],
        verifier: bool,
        timeout: Optional[Duration],
    ) -> types.ExecRequest:
        body = self._request(command)
        body["id"] = id or f"py-{uuid.uuid4().hex}"
        if env:
            body["env"] = dict(env)
        if cwd is not None:
            body["cwd"] = cwd
        if user is not None:
            body["user"] = user
        if verifier:
            body["as"] = "verifier"
        if timeout is not None:
            body["timeout"] = duration(timeout) or ""
        return body

    def run(
        self,
        command: Union[str, Sequence[str]],
        *,
        on_stdout: Optional[Line] = None,
        on_stderr: Optional[Line] = None,
        stdin: Union[bytes, str, None] = None,
        id: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        verifier: bool = False,
        timeout: Optional[Duration] = None,
        output_limit: int = 1 << 20,
    ) -> Result:
        """Runs a command and waits for its result. A string is a line for the image's shell, a list is run as it is.

        on_stdout and on_stderr get each line as it arrives, without its end. After a lost connection, the output resumes,
        and nothing runs twice. A command with stdin ends with its connection. The default timeout is 120 s.
        If a callback raises an exception, the command is cancelled.
        """
        lines = LineCallback(on_stdout, on_stderr, output_limit)
        if stdin is not None:
            body = self._body(command, id, env, cwd, user, verifier, timeout)
            content = stdin.encode("utf-8") if isinstance(stdin, str) else stdin
            wire = self._client._outputs(
                "POST", self._exec_path(), self._fence(), {"Accept": NDJSON, "Content-Type": NDJSON},
                _with_input(body, content), self._patience(timeout), lines,
            )
            return lines.result(body["id"], wire)
        started = self.start(command, id=id, env=env, cwd=cwd, user=user, verifier=verifier, timeout=timeout)
        try:
            for output in started:
                lines(output)
            return lines.result(started.id, started.wait())
        except BaseException:
            _quietly(started.cancel)
            raise


def _with_input(body: types.ExecRequest, stdin: bytes) -> bytes:
    """Returns a request with the lines of its standard input."""
    lines: list[Any] = [body]
    for i in range(0, len(stdin), 1 << 16):
        lines.append({"data": base64.b64encode(stdin[i:i + (1 << 16)]).decode(), "encoding": "base64"})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _quietly(call: Callable[[], object]) -> None:
    """Cleans up after an error. The caller must see that error."""
    try:
        call()
    except Error:
        pass


class Sandbox(_Runs):
    """A leased sandbox. In a with statement, the lease is released at the end."""

    def __init__(self, client: Client, lease: types.Lease) -> None:
        self._client, self.lease = client, lease
        self._owns_client = False

    @property
    def id(self) -> str:  # type: ignore[override]
        """The id of the lease."""
        return self.lease["id"]

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.release()
            else:
                _quietly(self.release)
        finally:
            if self._owns_client:
                self._client.close()

    def _lease_id(self) -> str:
        return self.id

    def _exec_path(self) -> str:
        return f"/v1/leases/{segment(self.id)}/exec"

    def _fence(self) -> Mapping[str, Any]:
        return {"generation": self.lease["generation"]}

    @property
    def _generation(self) -> int:
        return self.lease["generation"]

    # The lease.

    def refresh(self) -> types.Lease:
        """Reads the lease again."""
        self.lease = self._client.get_lease(self.id)
        return self.lease

    def renew(self, settings: Optional[types.LeaseSettings] = None) -> types.Lease:
        """Renews the lease, optionally with other settings."""
        body: types.RenewRequest = {"settings": settings} if settings else {}
        self.lease = self._client.renew_lease(self.id, body, generation=self._generation)
        return self.lease

    def release(self) -> types.Lease:
        """Ends the lease and waits until its sandbox is gone. A lease that has ended stays as it is."""
        try:
            self.lease = self._client.release_lease(self.id, generation=self._generation)
        except Error as error:
            if error.code != "lease_ended" and error.reason != "other_generation":
                raise
        return self.lease

    def sleep(self) -> types.Lease:
        """Puts the sandbox to sleep. A command wakes it."""
        self.lease = self._client.sleep_lease(self.id, generation=self._generation)
        return self.lease

    def wake(self) -> types.Lease:
        """Wakes the sandbox."""
        self.lease = self._client.wake_lease(self.id, generation=self._generation)
        return self.lease

    def usage(self) -> types.LeaseUsage:
        """Samples what the sandbox uses, without waking it."""
        return self._client.lease_usage(self.id, generation=self._generation)

    def health(self) -> types.LeaseHealth:
        """Checks whether the sandbox is usable, without waking it."""
        return self._client.lease_health(self.id, generation=self._generation)

    # Commands and sessions.

    def command(self, id: str) -> Command:
        """Returns an existing command."""
        return Command(self._client, self.id, id, self._patience(None))

    def session(
        self,
        id: Optional[str] = None,
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
    ) -> Session:
        """Opens a session, whose commands share variables and a directory. In a with statement, it is closed at the end."""
        body: types.CreateSession = {"id": id or f"py-{uuid.uuid4().hex}"}
        if env:
            body["env"] = dict(env)
        if cwd is not None:
            body["cwd"] = cwd
        if user is not None:
            body["user"] = user
        return Session(self, self._client.create_session(self.id, body, generation=self._generation))

    # Files. Relative paths start at /workspace.

    def read_file(self, path: str, *, max_bytes: Optional[int] = None) -> bytes:
        """Returns the content of a file."""
        with self._client.read_files(self.id, path, max_bytes=max_bytes, generation=self._generation) as file:
            return file.read()

    def open_file(self, path: str) -> Response:
        """Opens a file for reading. The caller closes it."""
        return self._client.read_files(self.id, path, generation=self._generation)

    def write_file(self, path: str, content: Content, *, mode: Optional[int] = None) -> None:
        """Replaces a file atomically. mode has its permissions, by default 0o644."""
        self._client.write_files(self.id, path, content, mode=mode, generation=self._generation)

    def read_tar(self, path: str) -> Response:
        """Opens a file or directory as a tar stream, for tarfile.open(fileobj=..., mode="r|"). The caller closes it."""
        return self._client.read_files(self.id, path, tar=True, generation=self._generation)

    def write_tar(self, directory: str, content: Content) -> None:
        """Unpacks a tar archive in a directory."""
        self._client.write_files(self.id, directory, content, tar=True, generation=self._generation)

    def list_files(self, path: str = "/workspace") -> Iterator[types.FileInfo]:
        """Yields the files of a directory, by name."""
        after: Optional[str] = None
        while True:
            page = self._client.list_files(self.id, path=path, after=after, limit=1000, generation=self._generation)
            yield from page["files"]
            if len(page["files"]) < 1000:
                return
            last = page["files"][-1]
            after = decode(last["name"], last.get("name_encoding")).decode(errors="surrogateescape")

    def stat_file(self, path: str) -> types.FileInfo:
        """Describes a file, directory or symlink."""
        return self._client.stat_file(self.id, path=path, generation=self._generation)

    def remove_file(self, path: str, *, recursive: bool = False) -> None:
        """Deletes a file or directory."""
        self._client.remove_file(self.id, path=path, recursive=recursive, generation=self._generation)

    # Processes.

    def start_process(
        self,
        name: str,
        command: Union[str, Sequence[str]],
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        restart: bool = False,
        endpoint: Optional[types.Endpoint] = None,
    ) -> types.Process:
        """Starts a process that runs as long as the sandbox does. With restart, it is started again when it exits."""
        spec: types.ProcessSpec = {"name": name, "command": command_of(command)}
        if env:
            spec["env"] = dict(env)
        if cwd is not None:
            spec["cwd"] = cwd
        if user is not None:
            spec["user"] = user
        if restart:
            spec["restart"] = "always"
        if endpoint is not None:
            spec["endpoint"] = endpoint
        return self._client.start_process(self.id, spec, generation=self._generation)

    def wait_process(
        self,
        name: str,
        *,
        log: Optional[str] = None,
        port: Optional[int] = None,
        exit: bool = False,
        timeout: Optional[Duration] = None,
    ) -> types.ProcessWaited:
        """Waits for a line of the log that matches a pattern, for an open port or for the exit."""
        wait: types.ProcessWait = {}
        if log is not None:
            wait["log"] = log
        if port is not None:
            wait["port"] = port
        if exit:
            wait["exit"] = True
        if timeout is not None:
            wait["timeout"] = duration(timeout) or ""
        return self._client.wait_process(self.id, name, wait, generation=self._generation)

    def process(self, name: str) -> types.Process:
        """Describes a process."""
        return self._client.get_process(self.id, name, generation=self._generation)

    def processes(self) -> list[types.Process]:
        """Lists the processes by name."""
        return self._client.list_processes(self.id)["processes"]

    def kill_process(self, name: str) -> types.Process:
        """Kills a process and its descendants, and waits for their exit."""
        return self._client.kill_process(self.id, name, generation=self._generation)

    def read_process(self, name: str, *, offset: int = 0, follow: bool = False) -> Iterator[bytes]:
        """Yields the log of a process, with follow until it exits."""
        return self._client.read_process(self.id, name, offset=offset, follow=follow, generation=self._generation)

    def read_companion(self, name: str, *, offset: int = 0, follow: bool = False) -> Iterator[bytes]:
        """Yields the log of a companion, with follow until its program ends."""
        return self._client.read_companion(self.id, name, offset=offset, follow=follow, generation=self._generation)

    def ask_agent(self, agent: str, path: str = "", **request: Any) -> Response:
        """Forwards a request to an agent of the sandbox. It takes the arguments of Client.ask_agent."""
        return self._client.ask_agent(self.id, agent, path, **request)

    def events(self, *, after_id: Optional[int] = None) -> Iterator[types.Event]:
        """Yields the events of the lease and then new ones, without an end."""
        return self._client.follow_events(lease_id=self.id, after_id=after_id)


class Session(_Runs):
    """A session in a sandbox. A string as a command runs in the session's own shell, which keeps what it exports."""

    def __init__(self, sandbox: Sandbox, session: types.Session) -> None:
        self._sandbox, self._client, self.session = sandbox, sandbox._client, session
        self.id = session["id"]

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            _quietly(self.close)

    def _lease_id(self) -> str:
        return self._sandbox.id

    def _exec_path(self) -> str:
        return f"/v1/leases/{segment(self._sandbox.id)}/sessions/{segment(self.id)}/exec"

    def _fence(self) -> Mapping[str, Any]:
        return self._sandbox._fence()

    def _request(self, command: Union[str, Sequence[str]]) -> types.ExecRequest:
        return {"shell": command} if isinstance(command, str) else {"command": list(command)}

    def close(self) -> types.Session:
        """Closes the session and cancels its running command. The recording stays."""
        self.session = self._client.close_session(self._sandbox.id, self.id, generation=self.session["generation"])
        return self.session

    def events(self, *, after: int = 0) -> Iterator[types.SessionEvent]:
        """Yields the recording and then new events, until the session is closed and idle."""
        return self._client.follow_session_events(
            self._sandbox.id, self.id, generation=self.session["generation"], after=after
        )
