"""How llm handles the answers of a model's server."""

import http.server
import json
import tempfile
import threading
import unittest
from pathlib import Path

import llm
from settings import Settings, SettingsError


class Model(unittest.TestCase):
    def setUp(self):
        test = self
        self.answers, self.requests, self.slept = [], [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                test.requests.append((self.path, self.headers["Authorization"], json.loads(body)))
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
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.secrets = Path(directory.name)
        (self.secrets / "llm_api_key").write_text("sk-1\n")
        self.url = f"http://127.0.0.1:{server.server_port}/v1/"

    def ask(self, *answers, **variables):
        self.answers = list(answers)
        settings = Settings({"LLM_URL": self.url, "LLM_MODEL": "m", **variables}, secrets=self.secrets)
        return llm.ask(settings, [{"role": "user", "content": "?"}], self.slept.append)

    @staticmethod
    def says(content):
        return 200, {}, json.dumps({"choices": [{"message": {"content": content}}]}).encode()

    def test_a_question_carries_model_and_key(self):
        self.assertEqual(self.ask(self.says("yes")), "yes")
        self.assertEqual(self.requests, [("/v1/chat/completions", "Bearer sk-1", {"model": "m", "messages": [{"role": "user", "content": "?"}]})])

    def test_what_may_pass_is_tried_again(self):
        self.assertEqual(self.ask((429, {"Retry-After": "3"}, b"slow down"), (503, {}, b""), self.says("yes")), "yes")
        self.assertEqual(self.slept, [3, 2])

    def test_a_server_cannot_make_a_turn_wait_for_long(self):
        self.ask((429, {"Retry-After": "86400"}, b""), self.says("yes"))
        self.assertEqual(self.slept, [10])

    def test_what_does_not_pass_is_told(self):
        with self.assertRaisesRegex(llm.ModelError, "asked 1 times: 401 Unauthorized: no such key"):
            self.ask((401, {}, b"no such key"))
        with self.assertRaisesRegex(llm.ModelError, "asked 3 times: 500"):
            self.ask(*3 * [(500, {}, b"")])
        for body in (b"", b"{}", b'{"choices": []}', b'"yes"'):
            with self.assertRaisesRegex(llm.ModelError, "gave no chat completion"):
                self.ask((200, {}, body))

    def test_no_text_is_an_empty_answer(self):
        self.assertEqual(self.ask(self.says(None)), "")

    def test_missing_settings_are_named(self):
        with self.assertRaisesRegex(SettingsError, "variable LLM_MODEL is not set"):
            self.ask(LLM_MODEL="")
        with self.assertRaisesRegex(SettingsError, "variable LLM_TIMEOUT must be seconds"):
            self.ask(LLM_TIMEOUT="soon")
        (self.secrets / "llm_api_key").unlink()
        with self.assertRaisesRegex(SettingsError, "secret llm_api_key cannot be read"):
            self.ask()


if __name__ == "__main__":
    unittest.main()
