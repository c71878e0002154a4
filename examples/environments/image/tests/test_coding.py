"""Coding turns on a local repository."""

import hashlib
import json
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import coding
from settings import Settings

FILES = {"tool.py": "ANSWER = 41\n", "blob": "\0\1"}
CHECK = ["python3", "-c", "import tool; assert tool.ANSWER == 42, 'not the answer'"]


class Coding(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        self.repository = self.root / "repository"
        self.repository.mkdir()
        for name, content in FILES.items():
            (self.repository / name).write_text(content)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("add", "--all")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "begin")
        (self.root / "data" / "skills" / "coding").mkdir(parents=True)
        (self.root / "data" / "skills" / "coding" / "prompt.md").write_text("# How to code\n")
        self.settings = Settings({"AGENT_DID": "did:web:ada.example:1"}, data=self.root / "data", workspace=self.root / "workspace")
        self.asked = []

    def git(self, *args):
        return subprocess.run(["git", "-C", str(self.repository), *args], check=True, capture_output=True, text=True).stdout

    def propose(self, *answers, check=()):
        task = coding.Task("issue-7", str(self.repository), "Give the answer.", "main", tuple(check))
        remaining = list(answers)

        def ask(_, messages):
            self.asked.append(list(messages))
            return remaining.pop(0)

        with mock.patch.object(coding.Task, "of", return_value=task):
            return coding.propose(self.settings, {}, ask)

    @staticmethod
    def change(summary="tool: give the answer", **files):
        return json.dumps({"summary": summary, "files": files or {"tool.py": "ANSWER = 42\n"}})

    def test_a_change_that_passes_is_a_patch_on_the_agents_branch(self):
        action = self.propose(self.change(), check=CHECK)
        self.assertEqual((action["action"], action["branch"], action["files"], action["checked"]),
                         ("propose_change", "agent/web-ada-example-1/issue-7", ["tool.py"], True))
        self.assertEqual(action["base_commit"], self.git("rev-parse", "main").strip())
        patch = Path(action["patch"]).read_bytes()
        self.assertEqual(hashlib.sha256(patch).hexdigest(), action["patch_sha256"])
        self.git("apply", action["patch"])
        self.assertEqual((self.repository / "tool.py").read_text(), "ANSWER = 42\n")

    def test_the_model_is_shown_skill_task_and_what_is_text(self):
        self.propose(self.change())
        self.assertIn("# How to code", self.asked[0][0]["content"])
        shown = self.asked[0][1]["content"]
        self.assertIn("Give the answer.", shown)
        self.assertIn("blob\ntool.py", shown)
        self.assertIn("=== tool.py\nANSWER = 41", shown)
        self.assertNotIn("=== blob", shown)

    def test_what_the_check_refuses_may_be_mended(self):
        action = self.propose(self.change(**{"tool.py": "ANSWER = 43\n"}), self.change(), check=CHECK)
        self.assertEqual(action["action"], "propose_change")
        self.assertIn("not the answer", self.asked[1][-1]["content"])

    def test_three_refusals_skip_the_turn(self):
        action = self.propose(*3 * [self.change(**{"tool.py": "ANSWER = 43\n"})], check=CHECK)
        self.assertEqual(action["action"], "skip_turn")
        self.assertIn("no change passed in 3 rounds", action["reason"])
        self.assertLessEqual(len(action["reason"]), 500)

    def test_a_change_of_nothing_skips_the_turn(self):
        self.assertEqual(self.propose(self.change(**{"tool.py": FILES["tool.py"]}))["reason"], "the change changes nothing")

    def test_a_second_turn_begins_anew(self):
        self.propose(self.change(**{"left.py": "1\n"}))
        self.assertEqual(self.propose(self.change(**{"right.py": "2\n"}))["files"], ["right.py"])

    def test_a_file_may_be_deleted(self):
        action = self.propose(self.change(**{"blob": None}))
        self.assertIn("deleted file mode", Path(action["patch"]).read_text())

    def test_no_path_leads_out_of_the_repository(self):
        tree = self.root / "tree"
        tree.mkdir()
        (tree / "link").symlink_to("/tmp")
        for name in ("../x", "/etc/passwd", ".git/config", "a/../.GIT/hooks/x", "link/x", ".", ""):
            with self.subTest(name), self.assertRaises(coding.BadChange):
                coding.inside(tree, name)
        self.assertEqual(coding.inside(tree, "a/b.py"), tree.resolve() / "a" / "b.py")

    def test_answers_that_are_no_change_are_told(self):
        tree = self.root / "tree"
        tree.mkdir()
        for change in ({}, {"summary": " ", "files": {"a": "b"}}, {"summary": "s"}, {"summary": "s", "files": {}}, {"summary": "s", "files": {"a": 1}}):
            with self.subTest(change), self.assertRaises(coding.BadChange):
                coding.apply(tree, change)

    def test_tasks_are_checked(self):
        good = {"task": "issue/7", "repository": "https://git.test/a/b.git", "description": "d"}
        self.assertEqual(coding.Task.of(good), coding.Task("issue-7", good["repository"], "d", "main", ()))
        for wrong in ({"task": "--upload-pack=x"}, {"task": "a..b"}, {"task": None}, {"base": "-x"}, {"repository": "/etc"},
                      {"repository": "ext::sh -c x"}, {"description": ""}, {"check": "make"}, {"check": [1]}):
            with self.subTest(wrong), self.assertRaises(coding.TaskError):
                coding.Task.of({**good, **wrong})


if __name__ == "__main__":
    unittest.main()
