"""Requests: connections, retries, timeouts, errors and streams."""

from __future__ import annotations

import email.utils
import http.client
import ipaddress
import json
import os
import re
import selectors
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from typing import Any, BinaryIO, Iterable, Iterator, Mapping, Optional, Union

from .errors import Error

Content = Union[bytes, str, BinaryIO, Iterable[bytes]]

JSON = "application/json"
PROBLEM = "application/problem+json"
NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"
TAR = "application/x-tar"
OCTETS = "application/octet-stream"

#: A stream that carries nothing for this long, in seconds, is opened again. That is not a failure.
IDLE = 60.0


def segment(text: str) -> str:
    """Returns text as one segment of a path. A path cannot hold some names, and no object has one of them."""
    if text in ("", ".", ".."):
        raise Error("not_found", f"nothing has the name {text!r}")
    return urllib.parse.quote(text, safe="")


def agent_path(path: str) -> str:
    """Returns the path of a request to an agent, which must not lead out of the agent."""
    path = path.lstrip("/")
    if re.search(r"(^|[/\\])(\.|%2e){1,2}([/\\?#]|$)", path, re.IGNORECASE):
        raise Error("invalid", f"path of an agent {path!r}: must not have the segments . and ..")
    return urllib.parse.quote(path, safe="/?&=%:~+,;@!$'()*")


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def seconds(duration: Union[str, float, None]) -> float:
    """Returns a duration in Go syntax, such as "1m30s", in seconds. The reconciler checks it."""
    if not isinstance(duration, str):
        return duration or 0.0
    parts = re.findall(r"([0-9.]+)(h|ms|m|s|us|µs|ns)", duration)
    try:
        return sum((float(number) * _UNITS[unit] for number, unit in parts), 0.0)
    except ValueError:
        return 0.0


def duration(value: Union[str, float, None]) -> Optional[str]:
    """Returns seconds as a duration in Go syntax."""
    return value if value is None or isinstance(value, str) else f"{value:.9f}s"


class Response:
    """An open answer. It must be closed, as by a with statement. tarfile and shutil can read it."""

    def __init__(
        self,
        transport: Transport,
        sent: _Connection,
        sock: Optional[socket.socket],
        answer: http.client.HTTPResponse,
        what: str,
    ) -> None:
        self._transport, self._sent, self._sock, self._answer, self._what = transport, sent, sock, answer, what
        self.status: int = answer.status
        self.headers = answer.headers
        self._left: Optional[int] = answer.length  # bytes that are to come; None if only the end says
        self._closed = False

    def read(self, size: int = -1) -> bytes:
        """Returns size bytes, fewer at the end, and by default all. A broken connection is an error."""
        pieces, left = [], size
        while left:
            piece = self.read1(left if left > 0 else 1 << 16)
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece) if left > 0 else 0
        return b"".join(pieces)

    def read1(self, size: int = 1 << 16) -> bytes:
        """Returns what has arrived, at most size bytes, and b"" at the end."""
        if self._left is not None:
            size = min(size, self._left)
        if size == 0:
            return b""
        try:
            piece = self._answer.read1(size)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(error) from error
        if self._left is not None:
            self._left -= len(piece)
            if not piece:
                raise self._broken(EOFError(f"{self._left} bytes are missing"))
        return piece

    def __iter__(self) -> Iterator[bytes]:
        while True:
            piece = self.read1()
            if not piece:
                return
            yield piece

    def lines(self) -> Iterator[bytes]:
        """Yields whole lines without their ends."""
        rest = b""
        for piece in self:
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole

    def _broken(self, error: Exception) -> Error:
        return self._transport._lost(self._what, error, sent=True)

    def abort(self) -> None:
        """Breaks the connection, also for a thread that reads it."""
        if self._sock is not None:
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is broken already

    def close(self) -> None:
        """Ends the answer. Its connection is used again if nothing is left to read. It may be called again."""
        if self._closed:
            return
        self._closed = True
        done = (self._answer.isclosed() or self._left == 0) and not self._answer.will_close
        self._answer.close()
        if done:
            self._transport._keep(self._sent)
        else:
            self._sent.close()

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_Connection = http.client.HTTPConnection


class Transport:
    """Sends requests to one reconciler. It is safe for concurrent use.

    url and token default to SANDBOX_RECONCILER_URL and SANDBOX_RECONCILER_TOKEN. ca_file has the authorities to trust
    instead of the machine's. All times are in seconds. An idempotent request is sent at most attempts times.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        ca_file: Optional[str] = None,
        webhook_secret: Optional[str] = None,
        attempts: int = 5,
        wait_min: float = 0.2,
        wait_max: float = 10.0,
        quick_timeout: float = 60.0,
        slow_timeout: float = 900.0,
        user_agent: str = "sandbox-lease-python",
    ) -> None:
        base = url if url is not None else os.environ.get("SANDBOX_RECONCILER_URL", "")
        self._token = token or os.environ.get("SANDBOX_RECONCILER_TOKEN", "")
        self._secret = webhook_secret
        parts = urllib.parse.urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Error("invalid", f"reconciler URL {base!r}: must be http:// or https:// and a host; set "
                        "SANDBOX_RECONCILER_URL or the argument url")
        if parts.username is not None or parts.query or parts.fragment:
            raise Error("invalid", f"reconciler URL of host {parts.hostname}: must hold no user, query or fragment")
        if not self._token and not webhook_secret:
            raise Error("invalid", f"reconciler {base}: no token; set SANDBOX_RECONCILER_TOKEN or the argument token")
        self._name, self._scheme, self._prefix = base.rstrip("/"), parts.scheme, parts.path.rstrip("/")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._authority = parts.netloc
        self._attempts, self._wait_min, self._wait_max = max(attempts, 1), wait_min, wait_max
        self._quick, self._slow, self._agent = quick_timeout, slow_timeout, user_agent
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._proxy = self._find_proxy()
        self._mu = threading.Lock()  # guards _idle
        self._idle: list[_Connection] = []

    def close(self) -> None:
        """Closes idle connections."""
        with self._mu:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[Content] = None,
        timeout: Optional[float] = None,
    ) -> Response:
        """Sends any request once, and returns its answer, for what this package does not cover. A status that is not
        2xx is an error."""
        return self._open(method, path, query=query, headers=headers, body=body, timeout=timeout or self._slow)

    # Calls with JSON.

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Mapping[str, Any]] = None,
        body: Any = None,
        headers: Optional[Mapping[str, str]] = None,
        slow: bool = False,
        once: bool = False,
        longer: float = 0.0,
        respond_async: bool = False,
        signed: bool = False,
    ) -> Any:
        headers = {"Accept": JSON, **(headers or {})}
        if body is not None:
            headers["Content-Type"] = JSON
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        if respond_async:
            headers["Prefer"] = "respond-async"
        deadline = time.monotonic() + (self._slow if slow else self._quick) + longer
        failures = 0
        while True:
            try:
                left = max(deadline - time.monotonic(), 0.001)
                with self._open(
                    method, path, query=query, headers=headers, body=body, timeout=left, signed=signed
                ) as answer:
                    content = _read_all(answer, deadline)
                try:
                    return json.loads(content) if content else None
                except ValueError as error:
                    raise self._lost(f"{method} {path}", error, sent=True) from error
            except Error as error:
                failures += 1
                wait = self._backoff(failures - 1, error)
                if (
                    not _repeats(error, once)
                    or failures >= self._attempts
                    or time.monotonic() + wait >= deadline
                ):
                    raise
                time.sleep(wait)

    def _backoff(self, n: int, error: Optional[Error] = None) -> float:
        asked = error.retry_after if error is not None else None
        return min(self._wait_min * 2.0**n if asked is None else asked, self._wait_max)

    # One attempt.

    def _open(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[Content] = None,
        timeout: float,
        idle: Optional[float] = None,
        any_status: bool = False,
        signed: bool = False,
    ) -> Response:
        """Sends a request once. timeout limits the wait for the answer, and idle each wait for more of it. A signed
        request goes without the token: with a token, the reconciler reads no signature."""
        target = self._prefix + path + _query(query)
        what = f"{method} {path}"
        try:
            connection = self._take(timeout)
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(what, error, sent=False) from error
        try:
            if self._proxy is not None and self._tls is None:
                target = f"http://{self._authority}{target}"
            try:
                connection.request(method, target, body=_sendable(body), headers=self._headers(headers, signed))
            except (BrokenPipeError, ConnectionResetError):
                pass  # the reconciler may have answered before it read everything
            sock = connection.sock  # the connection forgets it if the reconciler closes it after the answer
            answer = connection.getresponse()
            if sock is not None:
                sock.settimeout(idle or timeout)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._lost(what, error, sent=True) from error
        except BaseException:
            connection.close()
            raise
        response = Response(self, connection, sock, answer, what)
        if not any_status and not 200 <= answer.status < 300:
            with response:
                raise self._rejection(response, method, path)
        return response

    def _headers(self, more: Optional[Mapping[str, str]], signed: bool) -> dict[str, str]:
        headers = {"User-Agent": self._agent, "Accept-Encoding": "identity"}
        if self._token and not signed:
            headers["Authorization"] = f"Bearer {self._token}"
        headers.update(more or {})
        return headers

    def _take(self, timeout: float) -> _Connection:
        while True:
            with self._mu:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            if connection.sock is not None and not _readable(connection.sock):
                connection.sock.settimeout(timeout)
                return connection
            connection.close()  # the other side has closed it
        host, port = self._proxy or (self._host, self._port)
        if self._tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=min(timeout, 10.0))
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=min(timeout, 10.0), context=self._tls)
            if self._proxy is not None:
                connection.set_tunnel(self._host, self._port)
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.sock.settimeout(timeout)
        return connection

    def _keep(self, connection: _Connection) -> None:
        with self._mu:
            if len(self._idle) < 16:
                self._idle.append(connection)
                return
        connection.close()

    def _find_proxy(self) -> Optional[tuple[str, int]]:
        try:
            local = self._host == "localhost" or ipaddress.ip_address(self._host).is_loopback
        except ValueError:
            local = False
        if local or urllib.request.proxy_bypass(self._host):
            return None
        proxy = urllib.parse.urlsplit(urllib.request.getproxies().get(self._scheme, ""))
        return (proxy.hostname, proxy.port or 8080) if proxy.hostname else None

    # Errors.

    def _rejection(self, response: Response, method: str, path: str) -> Error:
        status, location = response.status, response.headers.get("Location")
        if location and status < 400:
            return Error("unavailable", f"reconciler {self._name} redirects to {location}: use that URL if it is a "
                         "reconciler", status=status)
        error = self._problem(response.read(1 << 20))
        if error is None:
            code = {401: "unauthenticated", 403: "forbidden", 407: "unauthenticated"}.get(status, "unavailable")
            if status in (502, 504) and method != "GET":
                code = "unknown_outcome"  # the proxy had forwarded the request
            error = Error(code, f"reconciler {self._name}: the response to {method} {path} is {status}, but not from "  # type: ignore[arg-type]
                          "a reconciler: check the URL and proxies", status=status)
        error.status = status
        error.request_id = error.request_id or response.headers.get("X-Request-Id")
        error.retry_after = _retry_after(response.headers.get("Retry-After"))
        return error

    @staticmethod
    def _problem(content: bytes) -> Optional[Error]:
        try:
            problem = json.loads(content)
            return Error.of(problem) if problem.get("code") else None
        except (ValueError, AttributeError):
            return None

    def _lost(self, what: str, cause: Exception, *, sent: bool) -> Error:
        """Returns the error of a request without a complete answer."""
        text = str(cause) or type(cause).__name__
        if sent and not what.startswith("GET "):
            return Error("unknown_outcome", f"reconciler {self._name}: {what}: {text}: it may have succeeded: check before "
                         "you retry")
        advice = "check that the reconciler runs and that the URL is right"
        untrusted = isinstance(cause, ssl.SSLCertVerificationError)
        if untrusted:
            advice = "its certificate is not trusted here: name the file with its authority as ca_file"
        error = Error("unavailable", f"reconciler {self._name}: {what}: {text}: {advice}")
        error._unsent, error._permanent = not sent, untrusted
        return error


def _readable(sock: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def _repeats(error: Error, once: bool) -> bool:
    """Reports whether a request is sent again after an error."""
    if error._permanent:
        return False
    if once:
        return error.status in (429, 503) or error._unsent
    return error.status in (429, 502, 503, 504) or error.status is None and error.code in ("unavailable", "unknown_outcome")


def _retry_after(value: Optional[str]) -> Optional[float]:
    if not value:
        return None
    if value.isdigit():
        return float(value)
    try:
        return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError):
        return None


def _read_all(answer: Response, deadline: float) -> bytes:
    pieces: list[bytes] = []
    while True:
        if answer._sock is not None:
            answer._sock.settimeout(max(deadline - time.monotonic(), 0.001))
        piece = answer.read1()
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def _query(query: Optional[Mapping[str, Any]]) -> str:
    pairs = []
    for name, value in (query or {}).items():
        if value is True:
            pairs.append((name, "true"))
        elif value is not None and value is not False and value != "":
            pairs.append((name, str(value)))
    # Names of files are bytes, not always UTF-8.
    return "?" + urllib.parse.urlencode(pairs, errors="surrogateescape") if pairs else ""


def _sendable(body: Optional[Content]) -> Union[bytes, BinaryIO, Iterable[bytes], None]:
    return body.encode() if isinstance(body, str) else body
