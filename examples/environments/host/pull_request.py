#!/usr/bin/env python3
"""Opens a pull request for the change that an agent proposes, with credentials that its sandbox never has.

    turn.py did:plc:ada issue-1024 1 --timeout 900 <task.json |
      pull_request.py did:plc:ada issue-1024 --repository https://github.com/acme/parser.git

The action comes from standard input, as turn.py writes it and as the relay's record has it. The program does not trust
the sandbox. It forms the branch from the agent's DID and the task's name, reads the patch from the sandbox, applies it
to a fresh clone, and refuses forbidden changes. GIT_TOKEN is the token that pushes and opens the pull request.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from reconciler import Problem, Reconciler, lease_id

# The maximum size of a patch, in bytes, and the timeout of one git command, in seconds.
MAX_PATCH = 1 << 20
GIT_SECONDS = 120
# Files that take effect with more rights than a reviewed change has. An agent must not change them.
FORBIDDEN = re.compile(r"(^|/)(\.git[^/]*|\.github|\.gitlab|\.circleci|\.woodpecker)(/|$)")


class Refused(Exception):
    """The proposed change is refused. The message says why."""


@dataclass(frozen=True)
class Host:
    """A repository on a git host whose API is GitHub's."""

    repository: str
    api: str
    base: str
    token: str

    @property
    def name(self) -> str:
        """owner/name."""
        return "/".join(self.repository.removesuffix(".git").split("/")[-2:])


def propose(reconciler: Reconciler, host: Host, agent: str, environment: str, action: dict) -> dict:
    """Pushes the change of an action, opens its pull request, and returns the pull request as the host's API does.
    Errors: Refused; Problem from the reconciler."""
    if action.get("action") != "propose_change":
        raise Refused(f"the agent proposes nothing: {action.get('action')}: {action.get('reason', '')}")
    branch = branch_of(agent, str(action.get("task")))
    patch = read_patch(reconciler, lease_id(agent, environment), action)
    summary = " ".join(str(action.get("summary")).split())[:72]
    with tempfile.TemporaryDirectory() as directory:
        push(host, Path(directory), branch, str(action.get("base_commit")), patch, summary, agent)
    return open_pull_request(host, branch, summary, f"By {agent} in {environment}.")


def branch_of(agent: str, task: str) -> str:
    """agent/<agent>/<task>, the name of the agent's own branch. Errors: Refused."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", task) or ".." in task or task.endswith((".", ".lock")):
        raise Refused(f"{task[:80]!r} is no name of a task")
    return f"agent/{re.sub(r'[^A-Za-z0-9_-]', '-', agent.removeprefix('did:'))}/{task}"


def read_patch(reconciler: Reconciler, lease: str, action: dict) -> bytes:
    """The patch of the action. Errors: Refused, if its digest is not the action's; Problem."""
    patch = reconciler.read_file(lease, str(action.get("patch")), MAX_PATCH)
    if hashlib.sha256(patch).hexdigest() != action.get("patch_sha256"):
        raise Refused("the patch has changed since the action was taken")
    return patch


def push(host: Host, directory: Path, branch: str, base: str, patch: bytes, summary: str, agent: str) -> None:
    """Applies a patch to a fresh clone and pushes it as the branch. Errors: Refused, also for a forbidden change."""
    tree = directory / "tree"
    git(host, directory, "clone", "--quiet", "--branch", host.base, "--", host.repository, str(tree))
    if not re.fullmatch(r"[0-9a-f]{40,64}", base):
        raise Refused(f"{base[:80]!r} is no commit")
    git(host, tree, "merge-base", "--is-ancestor", base, "HEAD")
    git(host, tree, "switch", "--quiet", "--create", branch, base)
    git(host, tree, "apply", "--index", "-", stdin=patch)
    for line in git(host, tree, "diff", "--cached", "--raw", "--no-renames", "-z").split(b"\0:"):
        refuse(line.decode(errors="replace").lstrip(":"))
    git(host, tree, "-c", f"user.name={agent}", "-c", "user.email=agent@localhost", "commit", "--quiet", "--message", summary)
    git(host, tree, "push", "--quiet", "--force-with-lease=" + branch + ":", "origin", branch)


def refuse(entry: str) -> None:
    """Checks one entry of git diff --raw -z. Errors: Refused, for a forbidden path or kind of file."""
    modes, _, path = entry.partition("\0")
    path = path.rstrip("\0")
    if not path:
        raise Refused("the patch changes nothing")
    if FORBIDDEN.search(path.lower()):
        raise Refused(f"{path} is nothing that an agent may change")
    if modes.split()[1] in ("120000", "160000"):
        raise Refused(f"{path} is a link or a submodule, which no agent may add")


def git(host: Host, directory: Path, *args: str, stdin: bytes = b"") -> bytes:
    """Runs git with the token in the environment, so that no argument and no file has it. Errors: Refused."""
    basic = base64.b64encode(f"x-access-token:{host.token}".encode()).decode()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
        "HOME": str(directory), "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1",  # no other settings
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": f"http.{host.repository}.extraHeader", "GIT_CONFIG_VALUE_0": f"Authorization: Basic {basic}",
        "GIT_CONFIG_KEY_1": "core.hooksPath", "GIT_CONFIG_VALUE_1": "/dev/null",
    }
    try:
        done = subprocess.run(["git", *args], cwd=directory, env=environment, input=stdin, capture_output=True, timeout=GIT_SECONDS)
    except subprocess.TimeoutExpired as err:
        raise Refused(f"git {args[0]} took more than {GIT_SECONDS} s") from err
    if done.returncode != 0:
        raise Refused(f"git {args[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()[-400:]}")
    return done.stdout


def open_pull_request(host: Host, branch: str, title: str, body: str) -> dict:
    """Opens the pull request. Errors: Refused."""
    request = urllib.request.Request(
        f"{host.api.rstrip('/')}/repos/{host.name}/pulls",
        data=json.dumps({"title": title, "head": branch, "base": host.base, "body": body}).encode(),
        headers={"Authorization": "Bearer " + host.token, "Accept": "application/vnd.github+json", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)
    except urllib.error.HTTPError as err:
        raise Refused(f"the pull request of {branch} was refused: {err.code} {err.read(300)!r}") from err
    except OSError as err:
        raise Refused(f"the pull request of {branch} could not be opened: {getattr(err, 'reason', err)}; the branch is pushed") from err


def main() -> int:
    parser = argparse.ArgumentParser(description="Open the pull request of an action; it comes from standard input.")
    parser.add_argument("agent", help="the agent's DID")
    parser.add_argument("environment", help="the environment's name")
    parser.add_argument("--repository", required=True, help="URL that is pushed to")
    parser.add_argument("--api", default="https://api.github.com", help="URL of the host's API (default GitHub's)")
    parser.add_argument("--base", default="main", help="branch that it is to be merged into (default main)")
    args = parser.parse_args()
    host = Host(args.repository, args.api, args.base, os.environ["GIT_TOKEN"])
    try:
        opened = propose(Reconciler.of_environment(), host, args.agent, args.environment, json.load(sys.stdin))
    except (Refused, Problem) as err:
        print(f"pull_request: {err}", file=sys.stderr)
        return 1
    json.dump(opened, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
