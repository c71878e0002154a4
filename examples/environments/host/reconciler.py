"""The part of the reconciler's HTTP API that a game server needs for turns. It uses only the standard library."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request


class Problem(Exception):
    """The reconciler refused a request or is unreachable. code is for programs, the message for people."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Reconciler:
    """One reconciler, with a token that may use leases."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url.rstrip("/"), token

    @classmethod
    def of_environment(cls) -> "Reconciler":
        """The reconciler of SANDBOX_RECONCILER_URL and SANDBOX_RECONCILER_TOKEN, which Terraform uses too."""
        return cls(os.environ["SANDBOX_RECONCILER_URL"], os.environ["SANDBOX_RECONCILER_TOKEN"])

    def wake(self, lease: str, timeout: float = 120) -> None:
        """Wakes the sandbox of a lease if it sleeps, and returns once it takes commands."""
        self._json("POST", _lease(lease) + "/wake", None, timeout)

    def open_session(self, lease: str, session: str, env: dict[str, str], timeout: float = 30) -> None:
        """Opens a session with this id and these variables. It is idempotent. Nothing runs in it until a command does."""
        self._json("POST", _lease(lease) + "/sessions", {"id": session, "env": env}, timeout)

    def run(self, lease: str, session: str, command: list[str], stdin: str, timeout: float) -> dict:
        """Runs a command in a session and returns exit_code, stdout, stderr, timed_out and so on. It wakes
        a sleeping sandbox. The command ends at the timeout, in seconds; the call waits 30 s longer for the answer."""
        body = {"command": command, "stdin": stdin, "timeout": f"{timeout:g}s", "source": "system"}
        return self._json("POST", f"{_lease(lease)}/sessions/{_quote(session)}/exec", body, timeout + 30)

    def close_session(self, lease: str, session: str, timeout: float = 30) -> None:
        """Closes a session and cancels its commands. Its recording stays as long as its sandbox does."""
        self._json("DELETE", f"{_lease(lease)}/sessions/{_quote(session)}", None, timeout)

    def read_file(self, lease: str, path: str, max_bytes: int, timeout: float = 60) -> bytes:
        """The content of a file in /workspace or /data. It fails if the file is larger than max_bytes."""
        query = urllib.parse.urlencode({"path": path, "max_bytes": max_bytes})
        return self._ask("GET", f"{_lease(lease)}/files?{query}", None, {"Accept": "application/octet-stream"}, timeout)

    def write_file(self, lease: str, path: str, content: bytes, mode: str = "0600", timeout: float = 60) -> None:
        """Writes a file in /workspace or /data atomically."""
        query = urllib.parse.urlencode({"path": path, "mode": mode})
        self._ask("PUT", f"{_lease(lease)}/files?{query}", content, {"Content-Type": "application/octet-stream"}, timeout)

    def wait_for_log(self, lease: str, process: str, pattern: str, timeout: float = 60) -> str:
        """Waits until a line of a process's log matches, and returns it."""
        body = {"log": pattern, "timeout": f"{timeout:g}s"}
        return self._json("POST", f"{_lease(lease)}/processes/{_quote(process)}/wait", body, timeout + 30)["line"]

    def _json(self, method: str, path: str, body: dict | None, timeout: float) -> dict:
        data = None if body is None else json.dumps(body).encode()
        return json.loads(self._ask(method, path, data, {"Content-Type": "application/json"}, timeout))

    def _ask(self, method: str, path: str, data: bytes | None, headers: dict, timeout: float) -> bytes:
        request = urllib.request.Request(self._url + path, data=data, method=method, headers={
            "Authorization": "Bearer " + self._token, **({} if data is None and method != "GET" else headers)})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return response.read()
        except urllib.error.HTTPError as err:
            raise _problem(err) from err
        except OSError as err:  # also URLError and timeouts
            raise Problem("unavailable", f"{method} {path}: {getattr(err, 'reason', err)}") from err


def lease_id(agent: str, environment: str) -> str:
    return f"{agent}::{environment}"


def _lease(lease: str) -> str:
    return "/v1/leases/" + _quote(lease)


def _quote(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _problem(err: urllib.error.HTTPError) -> Problem:
    try:
        body = json.loads(err.read())
        return Problem(body["code"], body["detail"])
    except (ValueError, LookupError, TypeError):
        return Problem("internal", f"{err.code} {err.reason}")
