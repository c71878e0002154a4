"""The turn of a coding agent: clone, change on the agent's own branch, check, and leave a patch.

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

import games
import llm
from settings import Settings

# How many changes the model may propose: each answer after the first repairs a failed one.
ROUNDS = 3
# How much of a repository and of a check's output the model sees, in characters.
MAX_SHOWN = 60_000
MAX_SHOWN_FILE = 20_000
MAX_CHECK_OUTPUT = 4_000
# The timeouts of one git command and of one check, in seconds.
GIT_SECONDS = 120
CHECK_SECONDS = 120

FORM = """Answer with one JSON object and nothing else:
{"summary": "the subject line of the commit", "files": {"path/in/the/repository": "the whole new content, or null to delete the file"}}"""


class TaskError(Exception):
    """The task is invalid, or a command for it failed. The message names the field or the command."""


class BadChange(Exception):
    """The answer is not a valid change. The message tells the model what is wrong."""


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


def branch_of(agent: str, task: str) -> str:
    """agent/<agent>/<task>. The agent is its DID without did:, with '-' for characters that a branch must not have."""
    return f"agent/{re.sub(r'[^A-Za-z0-9_-]', '-', agent.removeprefix('did:'))}/{task}"


def propose(settings: Settings, state: dict, ask=llm.ask) -> dict:
    """Returns the action propose_change, or skip_turn if no change passes the check."""
    task = Task.of(state)
    tree = settings.workspace / "src" / task.name
    branch = branch_of(settings.agent, task.name)
    base = clone(task, tree, branch)
    messages = [
        {"role": "system", "content": settings.prompt() + "\n\n" + FORM},
        {"role": "user", "content": f"{task.description}\n\n{shown(tree)}"},
    ]
    problem = ""
    for _ in range(ROUNDS):
        answer = ask(settings, messages)
        try:
            summary = apply(tree, llm.json_object(answer))
            run_check(tree, task.check)
        except (ValueError, BadChange) as err:
            problem = str(err)
            messages += [
                {"role": "assistant", "content": answer[:MAX_SHOWN_FILE]},
                {"role": "user", "content": f"{problem}\n\n{FORM}"},
            ]
            continue
        return commit(settings, task, tree, branch, base, summary)
    return games.skip_turn(f"no change passed in {ROUNDS} rounds: {problem}")


def git(tree: Path, *args: str) -> bytes:
    """Runs git without prompts and hooks, and returns its output. Errors: TaskError."""
    command = ["git", "-c", "core.hooksPath=/dev/null", "-C", str(tree), *args]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "HOME": str(tree.parent)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=GIT_SECONDS)
    except subprocess.TimeoutExpired as err:
        raise TaskError(f"git {args[0]} took more than {GIT_SECONDS} s") from err
    if done.returncode != 0:
        raise TaskError(f"git {args[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()[-400:]}")
    return done.stdout


def paths(output: bytes) -> list[str]:
    """The names in the output of git with -z."""
    return [name.decode(errors="replace") for name in output.split(b"\0")[:-1]]


def clone(task: Task, tree: Path, branch: str) -> str:
    """Makes a fresh clone with the branch of the agent, and returns the commit on which the branch starts."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.parent.mkdir(parents=True, exist_ok=True)
    git(tree.parent, "clone", "--quiet", "--depth", "1", "--branch", task.base, "--", task.repository, str(tree))
    git(tree, "switch", "--quiet", "--create", branch)
    return git(tree, "rev-parse", "HEAD").decode().strip()


def shown(tree: Path) -> str:
    """The names of all files, and the contents of the small text files that fit into MAX_SHOWN."""
    names = paths(git(tree, "ls-files", "-z"))
    parts, room = ["The files of the repository:\n" + "\n".join(names)], MAX_SHOWN
    for name in names:
        path = tree / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_SHOWN_FILE:
            continue
        text = path.read_bytes()
        if b"\0" in text or len(text) > room:
            continue
        room -= len(text)
        parts.append(f"=== {name}\n{text.decode(errors='replace')}")
    return "\n\n".join(parts)


def apply(tree: Path, change: dict) -> str:
    """Writes the files of a change and returns its summary. Errors: BadChange."""
    summary, files = change.get("summary"), change.get("files")
    if not isinstance(summary, str) or not summary.strip():
        raise BadChange("summary must be the subject line of the commit")
    if not isinstance(files, dict) or not files:
        raise BadChange("files must give at least one path its new content")
    for name, content in files.items():
        if content is not None and not isinstance(content, str):
            raise BadChange(f"the content of {name} must be text or null")
        path = inside(tree, name)
        if content is None:
            path.unlink(missing_ok=True)
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        except OSError as err:
            raise BadChange(f"{name} cannot be written: {err}") from err
    return " ".join(summary.split())[:72]


def inside(tree: Path, name: str) -> Path:
    """The path of a file in the repository. Errors: BadChange, if the path is outside of it or in .git."""
    parts = Path(name).parts
    root = tree.resolve()
    path = (tree / name).resolve()
    if not parts or path == root or not path.is_relative_to(root) or any(part.lower() == ".git" for part in parts):
        raise BadChange(f"{name!r} is no path in the repository")
    return path


def run_check(tree: Path, check: tuple[str, ...]) -> None:
    """Runs the check of the task. Errors: BadChange, with the end of its output; TaskError, if it cannot run."""
    if not check:
        return
    environment = {**os.environ, "HOME": str(tree.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(check, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=CHECK_SECONDS)
    except subprocess.TimeoutExpired as err:
        raise BadChange(f"the check {' '.join(check)} took more than {CHECK_SECONDS} s") from err
    except OSError as err:
        raise TaskError(f"the check {' '.join(check)} cannot be run: {err}") from err
    if done.returncode != 0:
        raise BadChange(f"the check {' '.join(check)} ended with {done.returncode}:\n{done.stdout[-MAX_CHECK_OUTPUT:]}")


def commit(settings: Settings, task: Task, tree: Path, branch: str, base: str, summary: str) -> dict:
    """Commits the change and writes it to a patch file. The action has the file's path."""
    git(tree, "add", "--all")
    files = paths(git(tree, "diff", "--cached", "--name-only", "-z"))
    if not files:
        return games.skip_turn("the change changes nothing")
    git(tree, "-c", f"user.name={settings.agent}", "-c", "user.email=agent@localhost", "commit", "--quiet", "--message", summary)
    patch = settings.workspace / "out" / f"{task.name}.patch"
    patch.parent.mkdir(parents=True, exist_ok=True)
    patch.write_bytes(git(tree, "diff", "--binary", "--no-color", "--no-ext-diff", base, "HEAD"))
    return {
        "action": "propose_change",
        "task": task.name,
        "branch": branch,
        "base_commit": base,
        "summary": summary,
        "files": files,
        "checked": bool(task.check),
        "patch": str(patch),
        "patch_sha256": hashlib.sha256(patch.read_bytes()).hexdigest(),
    }
