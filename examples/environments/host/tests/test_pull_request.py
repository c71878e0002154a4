"""Which proposed changes are pushed, and which are refused."""

import hashlib
import subprocess
import tempfile
import unittest
from pathlib import Path

import pull_request
from pull_request import Host, Refused

PATCH = """diff --git a/{0} b/{0}
new file mode {1}
--- /dev/null
+++ b/{0}
@@ -0,0 +1 @@
+{2}
"""


class Files:
    """A fake reconciler with one file."""

    def __init__(self, content):
        self.content = content

    def read_file(self, lease, path, max_bytes):
        assert (lease, path, max_bytes) == ("did:plc:ada::issue-7", "/workspace/out/issue-7.patch", 1 << 20)
        return self.content


class PullRequest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        tree = self.root / "tree"
        self.bare = self.root / "acme" / "tool.git"
        self.git(self.root, "init", "--quiet", "--initial-branch", "main", str(tree))
        (tree / "README").write_text("tool\n")
        self.git(tree, "add", "--all")
        self.git(tree, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "begin")
        self.git(self.root, "clone", "--quiet", "--bare", str(tree), str(self.bare))
        self.base = self.git(tree, "rev-parse", "HEAD").strip()
        self.host = Host(str(self.bare), "http://127.0.0.1:1", "main", "secret-token")

    @staticmethod
    def git(directory, *args):
        return subprocess.run(["git", *args], cwd=directory, check=True, capture_output=True, text=True).stdout

    def push(self, patch, base=None):
        with tempfile.TemporaryDirectory() as directory:
            pull_request.push(self.host, Path(directory), "agent/plc-ada/issue-7", base or self.base, patch.encode(), "tool: add", "did:plc:ada")

    def test_a_patch_becomes_a_branch(self):
        self.push(PATCH.format("new.py", 100644, "1"))
        self.assertEqual(self.git(self.bare, "log", "--format=%an %s", "main..agent/plc-ada/issue-7"), "did:plc:ada tool: add\n")

    def test_a_branch_that_is_there_is_not_overwritten(self):
        self.push(PATCH.format("new.py", 100644, "1"))
        with self.assertRaisesRegex(Refused, "git push ended with"):
            self.push(PATCH.format("other.py", 100644, "1"))

    def test_what_no_agent_may_change_is_refused(self):
        for path, mode, reason in (
            (".github/workflows/ci.yml", 100644, "nothing that an agent may change"),
            ("sub/.gitattributes", 100644, "nothing that an agent may change"),
            (".GitHub/x", 100644, "nothing that an agent may change"),
            ("link", 120000, "is a link"),
            ("../outside", 100644, "git apply ended with"),
            (".git/hooks/pre-push", 100755, "git apply ended with"),
        ):
            with self.subTest(path), self.assertRaisesRegex(Refused, reason):
                self.push(PATCH.format(path, mode, "x"))
        self.assertEqual(self.git(self.bare, "branch", "--list", "agent/*"), "")

    def test_one_forbidden_file_among_others_is_found(self):
        with self.assertRaisesRegex(Refused, "nothing that an agent may change"):
            self.push(PATCH.format("a.py", 100644, "1") + PATCH.format(".gitmodules", 100644, "x") + PATCH.format("z.py", 100644, "1"))

    def test_what_is_no_patch_and_what_is_no_base_are_refused(self):
        for patch, base in (("", None), ("nonsense", None), (PATCH.format("a", 100644, "1"), "main"), (PATCH.format("a", 100644, "1"), "0" * 40)):
            with self.subTest(base), self.assertRaises(Refused):
                self.push(patch, base)

    def test_the_token_is_in_no_argument_and_no_error(self):
        with self.assertRaises(Refused) as refused:
            pull_request.git(self.host, self.root, "clone", "http://127.0.0.1:1/acme/tool.git")
        self.assertNotIn("secret-token", str(refused.exception))
        shown = pull_request.git(self.host, self.root, "-c", "alias.args=!tr '\\0' ' ' </proc/$PPID/cmdline", "args").decode()
        self.assertNotIn("secret-token", shown)

    def test_a_branch_is_the_agents_own(self):
        self.assertEqual(pull_request.branch_of("did:web:ada.example:1", "issue-7"), "agent/web-ada-example-1/issue-7")
        for task in ("", "../main", "a b", "-x", "x.lock", "x.", "a..b", "x" * 80):
            with self.subTest(task), self.assertRaises(Refused):
                pull_request.branch_of("did:plc:ada", task)

    def test_a_patch_is_the_one_that_was_proposed(self):
        action = {"patch": "/workspace/out/issue-7.patch", "patch_sha256": hashlib.sha256(b"good").hexdigest()}
        self.assertEqual(pull_request.read_patch(Files(b"good"), "did:plc:ada::issue-7", action), b"good")
        with self.assertRaisesRegex(Refused, "has changed since"):
            pull_request.read_patch(Files(b"bad"), "did:plc:ada::issue-7", action)

    def test_an_agent_that_proposes_nothing_is_told(self):
        with self.assertRaisesRegex(Refused, "proposes nothing: skip_turn: tired"):
            pull_request.propose(Files(b""), self.host, "did:plc:ada", "issue-7", {"action": "skip_turn", "reason": "tired"})


if __name__ == "__main__":
    unittest.main()
