"""How llm handles the answers of a model's server."""

import http.server
import json
import threading
import time
import unittest

import llm
from settings import Settings, SettingsError


class Model(unittest.TestCase):
    def setUp(self):
        test = self
        self.answers, self.requests, self.sessions, self.slept = [], [], [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                test.requests.append((self.path, self.headers["Authorization"], json.loads(body)))
                test.sessions.append(self.headers["X-Sandbox-Session"])
                status, headers, text = test.answers.pop(0)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}/v1/"

    def ask(self, *answers, seconds=60, **variables):
        self.answers = list(answers)
        settings = Settings({"OPENROUTER_BASE_URL": self.url, "OPENROUTER_API_KEY": "sandbox", "ENVIRONMENT_ID": "catan-7", **variables})
        return llm.ask(settings, [{"role": "user", "content": "?"}], [{"type": "function"}], time.monotonic() + seconds, self.slept.append)

    @staticmethod
    def says(content, **more):
        return 200, {}, json.dumps({"choices": [{"message": {"content": content, **more}}], "usage": {"total_tokens": 12}}).encode()

    def test_a_question_carries_model_tools_and_key(self):
        self.assertEqual(self.ask(self.says("yes"), MODEL="m"), llm.Answer("yes", (), 12))
        self.assertEqual(self.requests, [("/v1/chat/completions", "Bearer sandbox", {
            "model": "m", "messages": [{"role": "user", "content": "?"}], "tools": [{"type": "function"}]})])

    def test_a_call_names_the_game_and_the_turn(self):
        for variables in ({"TURN_NUMBER": "12"}, {"TURN_NUMBER": "12", "GAME_ID": "final"}, {"TURN_NUMBER": "the\nlast"}, {}):
            self.ask(self.says("yes"), **variables)
        self.assertEqual(self.sessions, ["catan-7:12", "final:12", None, None])

    def test_the_route_of_the_environment_is_called(self):
        self.ask(self.says("yes"), OPENROUTER_BASE_URL="", OPENAI_BASE_URL=self.url, OPENAI_API_KEY="other")
        self.assertEqual(self.requests[0][1:2], ("Bearer other",))
        self.assertEqual(self.requests[0][2]["model"], llm.MODEL)
        self.assertEqual(llm._route(Settings({"OPENROUTER_API_KEY": "sk-1"})), ("https://openrouter.ai/api/v1", "sk-1"))

    def test_tool_calls_are_read_and_are_part_of_the_conversation(self):
        call = {"id": "1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
        answer = self.ask(self.says(None, tool_calls=[call]))
        self.assertEqual(answer.calls, (llm.Call("1", "bash", '{"command": "ls"}'),))
        self.assertEqual(answer.message(), {"role": "assistant", "content": "", "tool_calls": [call]})

    def test_what_may_pass_is_tried_again(self):
        self.assertEqual(self.ask((429, {"Retry-After": "3"}, b"slow down"), (503, {}, b""), self.says("yes")).text, "yes")
        self.assertEqual(self.slept, [3, 2])

    def test_a_server_cannot_make_a_turn_wait_for_long(self):
        self.ask((429, {"Retry-After": "86400"}, b""), self.says("yes"))
        self.assertEqual(self.slept, [10])
        with self.assertRaisesRegex(llm.ModelError, "asked 1 times: 429"):  # a pause would outlast the turn
            self.ask((429, {"Retry-After": "9"}, b""), seconds=5)

    def test_what_does_not_pass_is_told(self):
        with self.assertRaisesRegex(llm.ModelError, "asked 1 times: 401 Unauthorized: no such key"):
            self.ask((401, {}, b"no such key"))
        with self.assertRaisesRegex(llm.ModelError, "asked 3 times: 500"):
            self.ask(*3 * [(500, {}, b"")])
        call = b'{"choices": [{"message": {"tool_calls": %s}}]}'
        for body in (b"", b"{}", b'{"choices": []}', b'"yes"', call % b"[{}]", call % b"7", call % b'[{"id": 1, "function": {"name": "a", "arguments": {}}}]'):
            with self.assertRaisesRegex(llm.ModelError, "gave no chat completion"):
                self.ask((200, {}, body))

    def test_no_text_is_an_empty_answer(self):
        self.assertEqual(self.ask(self.says(None)).text, "")

    def test_an_api_that_counts_no_tokens_is_counted_by_its_size(self):
        body = json.dumps({"choices": [{"message": {"content": "x" * 4000}}]}).encode()
        self.assertGreater(self.ask((200, {}, body)).tokens, 1000)

    def test_a_missing_key_is_named(self):
        with self.assertRaisesRegex(SettingsError, "variable OPENROUTER_API_KEY is not set"):
            self.ask(OPENROUTER_API_KEY="")


if __name__ == "__main__":
    unittest.main()
