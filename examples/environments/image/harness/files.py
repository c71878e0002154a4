"""The tools read, write and edit: text files of the agent, below /workspace and /data."""

from dataclasses import dataclass
from pathlib import Path

from tools import Tool, ToolError

# How large a file may be, in bytes, and how many lines a call of read returns unless it asks for another number.
MAX_FILE = 1 << 20
LINES = 400

PATH = {"type": "string", "description": "path of the file, absolute or in the working directory"}


@dataclass(frozen=True)
class Files:
    """The files that an agent may use. Paths start in cwd."""

    cwd: Path
    roots: tuple[Path, ...]

    def tools(self) -> list[Tool]:
        text = {"type": "string"}
        number = {"type": "integer"}
        return [
            Tool("read", f"Returns lines of a text file, from line offset (1), at most limit ({LINES}).",
                 {"path": PATH, "offset": number, "limit": number}, ("path",), self.read),
            Tool("write", "Writes a text file, with its directories. Replaces a file that exists.",
                 {"path": PATH, "content": text}, ("path", "content"), self.write),
            Tool("edit", "Replaces a text in a file. The old text must occur in the file exactly once.",
                 {"path": PATH, "old": text, "new": text}, ("path", "old", "new"), self.edit),
        ]

    def read(self, arguments: dict) -> str:
        first, limit = max(arguments.get("offset", 1), 1), max(arguments.get("limit", LINES), 1)
        lines = self._text(self.path(arguments["path"])).splitlines(keepends=True)
        shown = "".join(lines[first - 1:first - 1 + limit])
        left = len(lines) - (first - 1 + limit)
        return f"{shown}… {left} more lines, from line {first + limit}" if left > 0 else shown

    def write(self, arguments: dict) -> str:
        path = self.path(arguments["path"])
        self._write(path, arguments["content"])
        return f"wrote {len(arguments['content'])} characters to {path}"

    def edit(self, arguments: dict) -> str:
        path, old = self.path(arguments["path"]), arguments["old"]
        text = self._text(path)
        if not old or (found := text.count(old)) != 1:
            raise ToolError(f"the old text must occur once in {path}: it occurs {found if old else 0} times")
        self._write(path, text.replace(old, arguments["new"]))
        return f"replaced it in {path}"

    def path(self, name: str) -> Path:
        """The real path of a file. Errors: ToolError, if it is outside of the roots."""
        try:
            path = (self.cwd / name).resolve()
        except (OSError, RuntimeError, ValueError) as err:  # links in a circle, NUL
            raise ToolError(f"{name[:200]!r} is no path: {err}") from err
        if not any(path.is_relative_to(root.resolve()) for root in self.roots):
            raise ToolError(f"{name[:200]!r} is not below {' or '.join(map(str, self.roots))}")
        return path

    @staticmethod
    def _text(path: Path) -> str:
        try:
            if not path.is_file():
                raise ToolError(f"{path} is no file")
            if path.stat().st_size > MAX_FILE:
                raise ToolError(f"{path} has more than {MAX_FILE} bytes: use bash to see a part of it")
            return path.read_bytes().decode()
        except UnicodeDecodeError as err:
            raise ToolError(f"{path} is no text in UTF-8") from err
        except OSError as err:
            raise ToolError(f"{path} cannot be read: {err.strerror}") from err

    @staticmethod
    def _write(path: Path, text: str) -> None:
        if len(text) > MAX_FILE:
            raise ToolError(f"the content of {path} has more than {MAX_FILE} characters")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        except (OSError, UnicodeEncodeError) as err:
            raise ToolError(f"{path} cannot be written: {err}") from err
