"""The tools of an agent: which files they reach, and what bounds them."""

import os
import tempfile
import time
import unittest
from pathlib import Path

import files
import shell
from tools import ToolError


class Tools(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name).resolve()
        self.cwd = self.root / "workspace"
        self.cwd.mkdir()
        (self.root / "data").mkdir()
        (self.root / "outside").write_text("no\n")
        reachable = files.Files(self.cwd, (self.cwd, self.root / "data"))
        self.tools = {tool.name: tool for tool in (*reachable.tools(), self.shell(60).tool())}

    def shell(self, seconds):
        return shell.Shell(self.cwd, {"PATH": os.environ["PATH"], "GAME": "7"}, time.monotonic() + seconds)

    def call(self, tool, **arguments):
        return self.tools[tool].call(arguments)

    def refused(self, reason, tool, **arguments):
        with self.assertRaisesRegex(ToolError, reason):
            self.call(tool, **arguments)

    def test_a_file_is_written_read_and_edited(self):
        self.call("write", path="a/b.txt", content="one\ntwo\nthree\n")
        self.assertEqual(self.call("read", path=str(self.cwd / "a" / "b.txt")), "one\ntwo\nthree\n")
        self.assertEqual(self.call("read", path="a/b.txt", offset=2, limit=1), "two\n… 1 more lines, from line 3")
        self.call("edit", path="a/b.txt", old="two\n", new="")
        self.assertEqual((self.cwd / "a" / "b.txt").read_text(), "one\nthree\n")

    def test_an_edit_is_of_one_place(self):
        self.call("write", path="a", content="x x")
        for old, times in (("x", 2), ("y", 0), ("", 0)):
            self.refused(f"must occur once in {self.cwd}/a: it occurs {times} times", "edit", path="a", old=old, new="z")

    def test_no_path_leads_out(self):
        (self.cwd / "link").symlink_to(self.root / "outside")
        (self.cwd / "circle").symlink_to("circle")
        for path in ("../outside", "link", "/etc/passwd", str(self.root / "database"), "/proc/self/root/etc/passwd"):
            self.refused("is not below", "read", path=path)
            self.refused("is not below", "write", path=path, content="x")
        for path in ("circle", "a\0b"):
            self.refused(".", "read", path=path)
        self.assertEqual((self.root / "outside").read_text(), "no\n")

    def test_what_cannot_be_read_or_written_is_told(self):
        (self.cwd / "blob").write_bytes(b"\xff\xfe")
        (self.cwd / "large").write_bytes(b"x" * (files.MAX_FILE + 1))
        self.refused("is no text", "read", path="blob")
        self.refused("has more than 1048576 bytes", "read", path="large")
        self.refused("is no file", "read", path=".")
        self.refused("is no file", "edit", path="none", old="a", new="b")
        self.refused("cannot be written", "write", path="blob/x", content="x")
        self.refused("has more than 1048576 characters", "write", path="x", content="x" * (files.MAX_FILE + 1))

    def test_arguments_have_the_types_of_the_schema(self):
        self.refused("bash needs the argument command", "bash")
        self.refused("bash.timeout must be of type integer", "bash", command="true", timeout=True)
        self.refused("read.path must be of type string", "read", path=7)
        self.refused("write has no argument 'mode'", "write", path="a", content="", mode="0777")

    def test_a_command_has_directory_variables_and_no_input(self):
        self.assertEqual(self.call("bash", command="pwd; echo $GAME; cat; echo bad >&2"), f"{self.cwd}\n7\nbad\n")
        self.refused("ended with 3:\nhalf\n", "bash", command="echo half; exit 3")

    def test_a_command_that_hangs_is_ended_with_what_it_started(self):
        started = time.monotonic()
        self.refused("took more than 1 s and was ended. Its output:\nbefore\n", "bash", timeout=1,
                     command="echo before; sleep 600 & echo $! >child; wait")
        with self.assertRaisesRegex(ToolError, "took more than 1 s"):
            self.shell(1).bash({"command": "sleep 600", "timeout": 600})  # the turn ends before
        self.assertLess(time.monotonic() - started, 30)
        self.assertNotIn(self.state(int((self.cwd / "child").read_text())), "SRD")

    def test_what_a_command_leaves_in_the_background_ends_with_it(self):
        started = time.monotonic()
        self.assertEqual(self.call("bash", command="sleep 600 & echo done"), "done\n")
        self.assertLess(time.monotonic() - started, 20)

    def test_an_output_without_end_is_bounded(self):
        self.call("write", path="many.py", content="import sys\nfor n in range(200_000): print(n)\n")
        output = self.call("bash", command="python3 many.py")
        self.assertTrue(output.startswith("0\n1\n") and output.endswith("199999\n"), output[-100:])
        self.assertRegex(output, r"… \d+ bytes are left out …")
        self.assertLess(len(output), 2 * shell.KEPT + 100)

    @staticmethod
    def state(pid):
        """The state of a process as Linux tells it: Z and X have ended, as has one that is gone."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return "X"


if __name__ == "__main__":
    unittest.main()
