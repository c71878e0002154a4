"""Does what the conformance suite asks for, line by line, with the Python library."""

import base64
import itertools
import json
import os
import sys

import sandbox_lease as sandbox

client = sandbox.Client(ca_file=os.environ.get("SANDBOX_TEST_CA_FILE"), wait_min=0.05, attempts=8)
game = sandbox.Client(token=os.environ["SANDBOX_TEST_PLAYER_TOKEN"],
                      webhook_secret=os.environ["SANDBOX_WEBHOOK_SECRET"], wait_min=0.05, attempts=8)
sandboxes: dict = {}
sessions: dict = {}


def say(message):
    print(json.dumps(message), flush=True)


def text(data):
    return base64.b64encode(data).decode()


def data(value):
    return None if value is None else base64.b64decode(value)


def result(r):
    return {"exit_code": r.exit_code, "stdout": r.stdout, "stderr": r.stderr, "timed_out": r.timed_out,
            "truncated": r.truncated}


def run(target, a):
    fail = a.get("fail_at_line")

    def line(stream):
        def got(content):
            say({"line": content, "stream": stream})
            if content == fail:
                raise RuntimeError("the callback failed")

        return got

    options = {name: a[name] for name in ("id", "env", "cwd", "timeout", "verifier", "output_limit") if name in a}
    if "stdin" in a:
        options["stdin"] = data(a["stdin"])
    return result(target.run(a["command"], on_stdout=line("stdout"), on_stderr=line("stderr"), **options))


def output(command):
    streams = {"stdout": bytearray(), "stderr": bytearray()}
    for piece in command:
        streams[piece.stream] += piece.data
    end = command.wait()
    return {"stdout": text(streams["stdout"]), "stderr": text(streams["stderr"]), "exit_code": end["exit_code"]}


def run_once(a):
    options = {name: a[name] for name in ("env", "timeout", "collect", "network") if name in a}
    r = client.run(a["environment"], a["command"], files=data(a.get("files")), stdin=data(a.get("stdin")),
                   on_stdout=lambda line: say({"line": line, "stream": "stdout"}), **options)
    return {**result(r), "files": text(r.files), "missing": r.missing, "status": r.lease["status"]}


def new_session(a):
    session = sandboxes[a["lease"]].session(a["id"], env=a.get("env"))
    sessions[a["id"]] = session
    return session.session


def new_lease(a):
    s = client.lease(a["agent"], environment=a["environment"], ttl=a.get("ttl"))
    sandboxes[s.id] = s
    return s.lease


def agent(s, a):
    with s.ask_agent(a["agent"], a.get("path", ""), method=a.get("method", "GET"), body=data(a.get("body"))) as answer:
        return {"status": answer.status, "body": text(answer.read())}


def condition(sender, a):
    options = {name: a[name] for name in ("agent_did", "generation", "reason", "id") if name in a}
    return sender.send_condition(a["type"], a["environment"], **options)


def of(a):
    return sandboxes[a["lease"]]


def close_twice(a):
    with client.request("GET", "/livez") as answer:
        answer.read()
        answer.close()
    with client.request("GET", "/livez") as one, client.request("GET", "/livez") as other:
        return [one.read() == other.read(), one.status, other.status]


operations = {
    "lease": new_lease,
    "run": lambda a: run(of(a), a),
    "start": lambda a: of(a).start(a["command"], id=a.get("id")).id,
    "output": lambda a: output(of(a).command(a["id"])),
    "first_output": lambda a: next(iter(of(a).command(a["id"]))).text,
    "read_output": lambda a: text(b"".join(of(a).command(a["id"]).read(a["stream"], offset=a.get("offset", 0)))),
    "cancel": lambda a: of(a).command(a["id"]).cancel()["state"],
    "write_file": lambda a: of(a).write_file(a["path"], data(a["content"]), mode=a.get("mode")),
    "read_file": lambda a: text(of(a).read_file(a["path"])),
    "list_files": lambda a: [f["name"] for f in of(a).list_files(a["path"])],
    "stat_file": lambda a: of(a).stat_file(a["path"]),
    "remove_file": lambda a: of(a).remove_file(a["path"], recursive=a.get("recursive", False)),
    "write_tar": lambda a: of(a).write_tar(a["path"], data(a["content"])),
    "read_tar": lambda a: text(of(a).read_tar(a["path"]).read()),
    "start_process": lambda a: of(a).start_process(a["name"], a["command"], restart=a.get("restart", False)),
    "wait_process": lambda a: of(a).wait_process(
        a["name"], **{name: a[name] for name in ("log", "port", "exit", "timeout") if name in a}),
    "process": lambda a: of(a).process(a["name"]),
    "processes": lambda a: of(a).processes(),
    "kill_process": lambda a: of(a).kill_process(a["name"]),
    "read_process": lambda a: text(b"".join(of(a).read_process(a["name"], follow=a.get("follow", False)))),
    "session": new_session,
    "run_in_session": lambda a: run(sessions[a["session"]], a),
    "close_session": lambda a: sessions[a["session"]].close(),
    "session_events": lambda a: [[e["type"], e["data"]] for e in sessions[a["session"]].events()],
    "run_once": run_once,
    "condition": lambda a: condition(game, a),
    "bearer_condition": lambda a: condition(client, a),
    "sign": lambda a: sandbox.webhook.sign(a["secret"], a["id"], data(a["body"]), a["at"]),
    "verify": lambda a: sandbox.webhook.verify(a["secrets"], a["headers"], data(a["body"]), a["now"]),
    "events": lambda a: [e["type"] for e in itertools.islice(of(a).events(), a["count"])],
    "ask_agent": lambda a: agent(of(a), a),
    "release": lambda a: of(a).release(),
    "renew": lambda a: of(a).renew(a.get("settings")),
    "sleep": lambda a: of(a).sleep(),
    "wake": lambda a: of(a).wake(),
    "refresh": lambda a: of(a).refresh(),
    "usage": lambda a: of(a).usage(),
    "health": lambda a: of(a).health(),
    "probe": lambda a: [client.livez(), client.readyz(), "sandbox_" in client.metrics()],
    "close_twice": close_twice,
    "call": lambda a: getattr(client, a["method"])(*a.get("args", []), **a.get("query", {})),
    "methods": lambda a: sorted(name for name in dir(client) if not name.startswith("_")),
}

for request in map(json.loads, sys.stdin):
    try:
        say({"ok": operations[request["op"]](request)})
    except sandbox.Error as e:
        say({"error": {"code": e.code, "reason": e.reason, "fields": [f["name"] for f in e.fields],
                       "request_id": bool(e.request_id), "retryable": e.retryable, "message": str(e)}})
    except Exception as e:
        say({"error": {"code": "", "message": f"{type(e).__name__}: {e}"}})
