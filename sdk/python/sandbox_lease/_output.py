"""Output of commands: pieces, lines and results."""

from __future__ import annotations

import base64
import codecs
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from . import types
from .errors import Error

#: A longer line is forwarded in pieces of this many characters.
LONGEST_LINE = 1 << 16


def command_of(command: Union[str, Sequence[str]]) -> list[str]:
    """Returns a program with its arguments. A string is a line for the image's shell."""
    return ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)


def decode(data: str, encoding: Optional[str]) -> bytes:
    return base64.b64decode(data) if encoding == "base64" else data.encode()


@dataclass(frozen=True)
class Output:
    """A piece of output. stream is "stdout" or "stderr"."""

    stream: str
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class Result:
    """The result of a command. A command that fails is a result, not an error.

    It has the first output of each stream, up to output_limit bytes.
    """

    exec_id: str
    #: The program's own, 124 after a timeout, 126 or 127 if it could not start, 128 + n if signal n ended it.
    exit_code: int
    raw_stdout: bytes = field(repr=False)
    raw_stderr: bytes = field(repr=False)
    timed_out: bool
    oom_killed: bool
    #: Output beyond a limit was dropped.
    truncated: bool

    @property
    def stdout(self) -> str:
        return self.raw_stdout.decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self.raw_stderr.decode(errors="replace")

    def check(self) -> Result:
        """Returns the result of a command that succeeded. Otherwise it is an error, "failed"."""
        if self.exit_code != 0:
            why = "timed out" if self.timed_out else f"ended with exit code {self.exit_code}"
            raise Error("failed", f"command {self.exec_id} {why}: {self.stderr.strip()[-1000:]}",
                        reason="sandbox_exec_failed")
        return self


@dataclass(frozen=True)
class RunResult(Result):
    """The result of a run: also its lease with the cost, the collected files, and the paths that do not exist."""

    lease: types.Lease
    missing: list[str]
    files: bytes = field(repr=False)


class LineCallback:
    """Collects output, and forwards its lines to callbacks."""

    def __init__(
        self,
        on_stdout: Optional[Callable[[str], object]],
        on_stderr: Optional[Callable[[str], object]],
        limit: int,
    ) -> None:
        self._limit, self._dropped = limit, False
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._lines = {"stdout": _Lines(on_stdout), "stderr": _Lines(on_stderr)}

    def __call__(self, output: Output) -> None:
        kept = self._kept[output.stream]
        room = self._limit - len(kept)
        kept.extend(output.data[:room])
        self._dropped = self._dropped or len(output.data) > room
        self._lines[output.stream].add(output.data)

    def result(self, exec_id: str, end: Mapping[str, Any]) -> Result:
        """Forwards unfinished lines, and returns the result of a command that has ended."""
        for lines in self._lines.values():
            lines.end()
        return Result(
            exec_id=exec_id,
            exit_code=end["exit_code"],
            raw_stdout=bytes(self._kept["stdout"]),
            raw_stderr=bytes(self._kept["stderr"]),
            timed_out=end.get("timed_out", False),
            oom_killed=end.get("oom_killed", False),
            truncated=end.get("truncated", False) or self._dropped,
        )


class _Lines:
    """Splits text into lines without their ends."""

    def __init__(self, callback: Optional[Callable[[str], object]]) -> None:
        self._callback, self._rest = callback, ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, data: bytes, final: bool = False) -> None:
        if self._callback is None:
            return
        *whole, rest = (self._rest + self._decoder.decode(data, final)).split("\n")
        self._rest = rest
        for line in whole:
            self._callback(line[:-1] if line.endswith("\r") else line)
        while len(self._rest) >= LONGEST_LINE:
            piece, self._rest = self._rest[:LONGEST_LINE], self._rest[LONGEST_LINE:]
            self._callback(piece)

    def end(self) -> None:
        self.add(b"", final=True)
        if self._callback is not None and self._rest:
            self._callback(self._rest)
            self._rest = ""
