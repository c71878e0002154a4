"""The turn of a coding agent: a clone to work in, and the tool that proposes the change as a patch.

The sandbox can read the repository but cannot push to it. The host reads the patch from the sandbox, checks it,
pushes the branch and opens the pull request (see examples/environments/host).
"""

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from settings import Settings
from shell import Shell
from tools import Tool, ToolError, bounded

# How much of the list of files the model is shown at once, in characters.
MAX_LIST = 8_000
# The timeouts of one git command and of one check, in seconds.
GIT_SECONDS = 120
CHECK_SECONDS = 120


class TaskError(Exception):
    """The task is invalid, or a command for it failed. The message names the field or the command."""


@dataclass(frozen=True)
class Task:
    """What the agent must do, and in which repository."""

    name: str
    repository: str
    description: str
    base: str
    check: tuple[str, ...]

    @classmethod
    def of(cls, state: dict) -> "Task":
        """Parses a task from the game server. Errors: TaskError."""
        texts = {}
        for key, default in (("task", None), ("repository", None), ("description", None), ("base", "main")):
            texts[key] = state.get(key, default)
            if not isinstance(texts[key], str) or not texts[key]:
                raise TaskError(f"the task must have a text called {key}")
        for key in ("task", "base"):
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}", texts[key]) or ".." in texts[key]:
                raise TaskError(f"{key} must be 1 to 63 letters, digits, '.', '_', '/' and '-', not {texts[key][:80]!r}")
        if not re.match(r"https?://", texts["repository"]):
            raise TaskError("repository must be an http(s) URL: nothing else passes the gateway")
        check = state.get("check", [])
        if not isinstance(check, list) or not all(isinstance(word, str) for word in check):
            raise TaskError("check must be a command as a list of words")
        return cls(texts["task"].replace("/", "-"), texts["repository"], texts["description"], texts["base"], tuple(check))


@dataclass(frozen=True)
class Work:
    """A task in a fresh clone, on the agent's branch, which starts on the commit base."""

    task: Task
    tree: Path
    branch: str
    base: str
    out: Path

    @classmethod
    def begin(cls, settings: Settings, task: Task) -> "Work":
        """Clones the repository. Errors: TaskError."""
        tree, branch = settings.workspace / "src" / task.name, branch_of(settings.agent, task.name)
        shutil.rmtree(tree, ignore_errors=True)
        tree.parent.mkdir(parents=True, exist_ok=True)
        git(tree.parent, "clone", "--quiet", "--depth", "1", "--branch", task.base, "--", task.repository, str(tree))
        git(tree, "switch", "--quiet", "--create", branch)
        return cls(task, tree, branch, git(tree, "rev-parse", "HEAD").decode().strip(), settings.workspace / "out")

    def message(self) -> str:
        """What the model gets: the task, where it works, and the names of all files."""
        names = "\n".join(paths(git(self.tree, "ls-files", "-z")))
        check = f"\n\nYour change must pass: {' '.join(self.task.check)}" if self.task.check else ""
        return (f"{self.task.description}{check}\n\nThe repository is in {self.tree}, the directory in which your commands "
                f"start. Its files:\n{bounded(names, MAX_LIST)}")

    def tool(self, shell: Shell) -> Tool:
        """The tool that ends the turn with the change."""
        return Tool("propose_change", "Runs the check of the task and, if it passes, ends the turn with your change.",
                    {"summary": {"type": "string", "description": "subject of the commit, at most 72 characters"}}, ("summary",),
                    lambda arguments: self.propose(shell, arguments["summary"]))

    def propose(self, shell: Shell, summary: str) -> dict:
        """Checks and commits the change, and leaves it as a patch. The action has the patch's path. Errors: ToolError."""
        summary = " ".join(summary.split())[:72]
        if not summary:
            raise ToolError("summary must be the subject line of the commit")
        if self.task.check:
            code, output = shell.run(list(self.task.check), CHECK_SECONDS)
            if code != 0:
                raise ToolError(f"the check {' '.join(self.task.check)} ended with {code}:\n{output}")
        try:
            return self._commit(summary)
        except TaskError as err:  # the agent's own commands may have damaged the clone, and can repair it
            raise ToolError(str(err)) from err

    def _commit(self, summary: str) -> dict:
        """Makes one commit of all changes, those that the agent has committed itself included."""
        git(self.tree, "add", "--all")
        git(self.tree, "reset", "--quiet", "--soft", self.base)
        files = paths(git(self.tree, "diff", "--cached", "--name-only", "-z"))
        if not files:
            raise ToolError("there is no change to propose")
        git(self.tree, "commit", "--quiet", "--message", summary)
        patch = git(self.tree, "diff", "--binary", "--no-color", "--no-ext-diff", self.base, "HEAD")
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / f"{self.task.name}.patch"
        path.write_bytes(patch)
        return {
            "action": "propose_change",
            "task": self.task.name,
            "branch": self.branch,
            "base_commit": self.base,
            "summary": summary,
            "files": files,
            "checked": bool(self.task.check),
            "patch": str(path),
            "patch_sha256": hashlib.sha256(patch).hexdigest(),
        }


def branch_of(agent: str, task: str) -> str:
    """agent/<agent>/<task>. The agent is its DID without did:, with '-' for characters that a branch must not have."""
    return f"agent/{re.sub(r'[^A-Za-z0-9_-]', '-', agent.removeprefix('did:'))}/{task}"


def git(tree: Path, *args: str) -> bytes:
    """Runs git without prompts and hooks, and returns its output. Errors: TaskError."""
    command = ["git", "-c", "core.hooksPath=/dev/null", "-C", str(tree), *args]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "HOME": str(tree.parent)}
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_SECONDS)
    except subprocess.TimeoutExpired as err:
        raise TaskError(f"git {args[0]} took more than {GIT_SECONDS} s") from err
    if done.returncode != 0:
        raise TaskError(f"git {args[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()[-400:]}")
    return done.stdout


def paths(output: bytes) -> list[str]:
    """The names in the output of git with -z."""
    return [name.decode(errors="replace") for name in output.split(b"\0")[:-1]]
