"""The tool bash: a command of the agent, with a bounded time and a bounded output."""

import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tools import Tool, ToolError

# The time that a command gets unless it asks for another, in seconds.
SECONDS = 30
# How much of the beginning and of the end of an output is kept, in bytes.
KEPT = 8_000


@dataclass(frozen=True)
class Shell:
    """Runs commands in a directory until the turn's deadline, a time of time.monotonic."""

    cwd: Path
    environment: dict
    deadline: float

    def tool(self) -> Tool:
        return Tool(
            "bash", f"Runs a command with bash and returns its output. It ends after timeout seconds ({SECONDS}), and "
            "what it started ends with it. Each command starts in the same directory, without the variables of others.",
            {"command": {"type": "string"}, "timeout": {"type": "integer"}}, ("command",), self.bash)

    def bash(self, arguments: dict) -> str:
        code, output = self.run(["bash", "-c", arguments["command"]], arguments.get("timeout", SECONDS))
        if code != 0:
            raise ToolError(f"the command ended with {code}:\n{output}")
        return output

    def run(self, command: list[str], seconds: float) -> tuple[int, str]:
        """Returns the exit code of a command, and its output and errors in order. Errors: ToolError, for a timeout too."""
        seconds = min(max(seconds, 1), max(self.deadline - time.monotonic(), 0.1))
        try:
            process = subprocess.Popen(command, cwd=self.cwd, env=self.environment, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        except (OSError, ValueError) as err:
            raise ToolError(f"{command[0]} cannot be run: {err}") from err
        output = Output()
        reader = threading.Thread(target=output.read, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired as err:
            raise ToolError(f"the command took more than {seconds:.0f} s and was ended. Its output:\n{output}") from err
        finally:
            _end(process.pid)
            process.wait()
            reader.join(1)  # a process that left the group may still hold the pipe
        return process.returncode, str(output)


class Output:
    """The beginning and the end of what a command writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._head, self._tail, self._left_out = b"", b"", 0

    def read(self, pipe) -> None:
        while chunk := pipe.read1(1 << 16):
            with self._lock:
                room = KEPT - len(self._head)
                self._head += chunk[:room]
                tail = self._tail + chunk[room:]
                self._left_out += max(len(tail) - KEPT, 0)
                self._tail = tail[-KEPT:]

    def __str__(self) -> str:
        with self._lock:
            between = f"\n… {self._left_out} bytes are left out …\n".encode() if self._left_out else b""
            return (self._head + between + self._tail).decode(errors="replace")


def _end(group: int) -> None:
    """Ends all processes of a group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all have ended
