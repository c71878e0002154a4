"""Turns of a game server, with a fake reconciler whose answers the test sets."""

import contextlib
import http.server
import io
import json
import threading
import unittest

import turn
from reconciler import Problem, Reconciler

LEASE = "/v1/leases/did%3Aplc%3Akira%3A%3Adungeon-3"


class Turn(unittest.TestCase):
    def setUp(self):
        test = self
        self.requests, self.results, self.refuse = [], [], {}

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                test.requests.append((self.command, self.path, self.headers["Authorization"], json.loads(body) if body else None))
                status, reply = 200, {}
                if problems := test.refuse.get(self.command + (" exec" if self.path.endswith("/exec") else "")):
                    status, reply = problems.pop(0)
                elif self.path.endswith("/exec"):
                    reply = test.results.pop(0)
                text = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_DELETE = answer

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.reconciler = Reconciler(f"http://127.0.0.1:{server.server_port}/", "token")

    def take(self, *results, timeout=60):
        self.results = list(results)
        self.requests.clear()
        return turn.take(self.reconciler, "did:plc:kira", "dungeon-3", "12", {"hp": 5}, timeout, {"OPENROUTER_API_KEY": "sk-1"})

    def sessions_closed(self):
        opened = [body["id"] for method, path, _, body in self.requests if method == "POST" and path.endswith("/sessions")]
        closed = {path.rsplit("/", 1)[1] for method, path, _, _ in self.requests if method == "DELETE"}
        return len(opened) == 1 and closed == set(opened)

    def problem(self, status, code):
        return status, {"code": code, "detail": "as the test wants"}

    def test_the_action_is_what_the_processor_wrote(self):
        self.assertEqual(self.take({"exit_code": 0, "stdout": '{"action": "rest"}\n'}), {"action": "rest"})
        self.assertEqual(self.requests[0][3]["env"], {"GAME_ID": "dungeon-3", "TURN_NUMBER": "12", "OPENROUTER_API_KEY": "sk-1"})
        _, path, authorization, body = self.requests[1]
        self.assertTrue(path.startswith(LEASE + "/sessions/turn-12-") and path.endswith("/exec"), path)
        self.assertEqual(authorization, "Bearer token")
        self.assertEqual(body, {"command": ["python3", "take_turn.py"], "stdin": '{"hp": 5}', "timeout": "60s", "source": "system"})
        self.assertTrue(self.sessions_closed())

    def test_whatever_fails_skips_the_turn_and_closes_the_session(self):
        for result, reason in (
            ({"exit_code": 1, "stderr": "take_turn: " + "x" * 900}, ("take_turn: " + "x" * 900)[:500]),
            ({"exit_code": 1, "stderr": '{"event": "tool.invoke"}\ntake_turn: the variable MODEL\n'}, "take_turn: the variable MODEL"),
            ({"exit_code": 137}, "the turn processor ended with 137"),
            ({"exit_code": 124, "timed_out": True, "stderr": "half"}, "the turn took more than 60 s"),
            ({"exit_code": 0, "stdout": "[]"}, "the turn processor wrote no action"),
            ({"exit_code": 0, "stdout": '{"action": 7}'}, "the turn processor wrote no action"),
        ):
            with self.subTest(reason[:30]):
                self.assertEqual(self.take(result), {"action": "skip_turn", "reason": reason})
                self.assertTrue(self.sessions_closed())

    def test_what_is_no_json_skips_the_turn(self):
        for stdout in ("", "attack!", '{"action": "rest"', "[" * 100_000):
            action = self.take({"exit_code": 0, "stdout": stdout})
            self.assertTrue(action["action"] == "skip_turn" and action["reason"].startswith("the turn processor wrote no JSON"), action)
            self.assertTrue(self.sessions_closed())

    def test_a_refused_command_skips_the_turn_and_closes_the_session(self):
        self.refuse["POST exec"] = [self.problem(503, "unavailable")]
        self.assertEqual(self.take(), {"action": "skip_turn", "reason": "unavailable: as the test wants"})
        self.assertTrue(self.sessions_closed())

    def test_a_session_whose_opening_was_not_answered_is_closed(self):
        self.refuse["POST"] = [self.problem(503, "unavailable")]
        self.assertEqual(self.take()["reason"], "unavailable: as the test wants")
        self.assertTrue(self.sessions_closed())

    def test_a_lease_that_has_ended_skips_the_turn(self):
        self.refuse["POST"] = [self.problem(409, "lease_ended")]
        self.assertEqual(self.take()["reason"], "lease_ended: as the test wants")

    def test_a_session_that_is_not_closed_at_once_is_closed_again(self):
        self.refuse["DELETE"] = [self.problem(503, "unavailable")]
        self.assertEqual(self.take({"exit_code": 0, "stdout": '{"action": "rest"}'}), {"action": "rest"})
        self.assertEqual([method for method, *_ in self.requests].count("DELETE"), 2)

    def test_a_session_that_cannot_be_closed_is_told_and_costs_no_turn(self):
        self.refuse["DELETE"] = [self.problem(503, "unavailable"), (502, {})]
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(self.take({"exit_code": 0, "stdout": '{"action": "rest"}'}), {"action": "rest"})
        self.assertRegex(said.getvalue(), "session turn-12-[0-9a-f]+ of did:plc:kira::dungeon-3 is not closed: 502")

    def test_a_reconciler_that_is_not_there_skips_the_turn(self):
        away = Reconciler("http://127.0.0.1:1", "token")
        with contextlib.redirect_stderr(io.StringIO()):
            action = turn.take(away, "did:plc:kira", "dungeon-3", "12", {})
        self.assertTrue(action["reason"].startswith("unavailable: POST /v1/leases"), action)
        with self.assertRaises(Problem):
            away.open_session("a::b", "s", {})


if __name__ == "__main__":
    unittest.main()
