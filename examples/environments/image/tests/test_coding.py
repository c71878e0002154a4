"""Coding turns on a local repository."""

import hashlib
import io
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import coding
import take_turn
from events import Events
from fake import Model, calls
from settings import Settings

FILES = {"tool.py": "ANSWER = 41\n", "blob": "\0\1"}
CHECK = ["python3", "-B", "-c", "import tool; assert tool.ANSWER == 42, 'not the answer'"]
RIGHT = ("edit", {"path": "tool.py", "old": "41", "new": "42"})
PROPOSE = ("propose_change", {"summary": "tool: give the answer"})


class Coding(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name).resolve()
        self.repository = self.root / "repository"
        self.repository.mkdir()
        for name, content in FILES.items():
            (self.repository / name).write_text(content)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "begin")
        (self.root / "data" / "skills" / "coding").mkdir(parents=True)
        (self.root / "data" / "skills" / "coding" / "prompt.md").write_text("# How to code\n")

    def git(self, *args):
        return subprocess.run(["git", "-C", str(self.repository), *args], check=True, capture_output=True, text=True).stdout

    def propose(self, *answers, check=()):
        settings = Settings({"AGENT_DID": "did:web:ada.example:1", "ENVIRONMENT_TYPE": "coding", "PATH": "/usr/bin:/bin"},
                            data=self.root / "data", workspace=self.root / "workspace")
        task = coding.Task("issue-7", str(self.repository), "Give the answer.", "main", tuple(check))
        self.model = Model(*answers, calls(("skip_turn", {"reason": "given up"})))
        with mock.patch.object(coding.Task, "of", return_value=task):
            return take_turn.take_turn(settings, {}, self.model, Events(settings.hidden, io.StringIO()))

    def test_a_change_that_passes_is_a_patch_on_the_agents_branch(self):
        action = self.propose(calls(RIGHT), calls(PROPOSE), check=CHECK)
        self.assertEqual((action["action"], action["branch"], action["files"], action["checked"], action["summary"]),
                         ("propose_change", "agent/web-ada-example-1/issue-7", ["tool.py"], True, "tool: give the answer"))
        self.assertEqual(action["base_commit"], self.git("rev-parse", "main").strip())
        patch = Path(action["patch"]).read_bytes()
        self.assertEqual(hashlib.sha256(patch).hexdigest(), action["patch_sha256"])
        self.git("apply", action["patch"])
        self.assertEqual((self.repository / "tool.py").read_text(), "ANSWER = 42\n")

    def test_the_model_is_told_skill_task_check_and_files(self):
        self.propose(calls(RIGHT, PROPOSE), check=CHECK)
        system, user = self.model.asked[0]
        self.assertIn("# How to code", system["content"])
        for part in ("Give the answer.", "must pass: python3 -B -c", f"{self.root}/workspace/src/issue-7", "blob\ntool.py"):
            self.assertIn(part, user["content"])

    def test_what_the_check_refuses_may_be_mended(self):
        wrong = ("write", {"path": "tool.py", "content": "ANSWER = 43\n"})
        action = self.propose(calls(wrong), calls(PROPOSE), calls(("edit", {"path": "tool.py", "old": "43", "new": "42"})), calls(PROPOSE), check=CHECK)
        self.assertEqual(action["action"], "propose_change")
        self.assertIn("not the answer", self.model.results()[1])

    def test_no_change_and_no_summary_are_told(self):
        self.assertEqual(self.propose(calls(PROPOSE), calls(("propose_change", {"summary": " \n"})))["reason"], "given up")
        self.assertEqual(self.model.results(), ["Error: there is no change to propose", "Error: summary must be the subject line of the commit"])

    def test_commands_run_in_the_clone_and_own_commits_are_part_of_the_change(self):
        action = self.propose(calls(("bash", {"command": "sed -i s/41/42/ tool.py && git commit -qam mine && git switch -qc other"})),
                              calls(("bash", {"command": "git rm -q blob && git log -1 --format=%an:%ae"})), calls(PROPOSE), check=CHECK)
        self.assertEqual(action["files"], ["blob", "tool.py"])
        self.assertEqual(self.model.results()[1], "Agent:agent@atproto.network\n")
        self.assertIn("deleted file mode", Path(action["patch"]).read_text())

    def test_a_clone_that_the_agent_destroys_is_told(self):
        self.propose(calls(("bash", {"command": "rm -rf .git"})), calls(PROPOSE))
        self.assertIn("Error: git add ended with 128", self.model.results()[1])

    def test_a_second_turn_begins_anew(self):
        self.propose(calls(("write", {"path": "left.py", "content": "1\n"}), PROPOSE))
        self.assertEqual(self.propose(calls(("write", {"path": "right.py", "content": "2\n"}), PROPOSE))["files"], ["right.py"])

    def test_tasks_are_checked(self):
        good = {"task": "issue/7", "repository": "https://git.test/a/b.git", "description": "d"}
        self.assertEqual(coding.Task.of(good), coding.Task("issue-7", good["repository"], "d", "main", ()))
        for wrong in ({"task": "--upload-pack=x"}, {"task": "a..b"}, {"task": None}, {"base": "-x"}, {"repository": "/etc"},
                      {"repository": "ext::sh -c x"}, {"description": ""}, {"check": "make"}, {"check": [1]}):
            with self.subTest(wrong), self.assertRaises(coding.TaskError):
                coding.Task.of({**good, **wrong})


if __name__ == "__main__":
    unittest.main()
