package sdk_test

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestConformance: the libraries and the Go client behave the same with a real reconciler, and survive the same faults.
func TestConformance(t *testing.T) {
	t.Parallel()
	drivers := map[string]func(*world) driver{"Go": startGo}
	for _, l := range libraries(t) {
		drivers[l.name] = l.start
	}
	for name, start := range drivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cases := cases
			if name != "Go" {
				cases = slices.Concat(cases, more)
			}
			for _, c := range cases {
				environment := strings.ToLower(c.name)
				w.environment(environment)
				t.Run(c.name, func(t *testing.T) {
					here := *w
					here.T = t
					s := &suite{T: t, world: &here, driver: start(&here), environment: environment}
					c.run(s)
					w.process, w.direct = here.process, here.direct // it may have been restarted
				})
			}
		})
	}
}

// conformance is a case of the suite. It has its own environment.
type conformance struct {
	name string
	run  func(s *suite)
}

// cases are for the libraries and the Go client.
var cases = []conformance{
	{"Commands", commands},
	{"LargeOutput", largeOutput},
	{"Callbacks", callbacks},
	{"Detached", detached},
	{"Files", files},
	{"Processes", processes},
	{"Sessions", sessions},
	{"Runs", runs},
	{"Conditions", conditions},
	{"Signatures", signatures},
	{"Leases", leases},
	{"Reports", reports},
	{"Errors", failures},
	{"Unavailable", unavailable},
	{"LostAnswers", lostAnswers},
	{"CutStreams", cutStreams},
	{"Restart", restart},
}

// more are cases that the Go client does not support.
var more = []conformance{
	{"Agents", agents},
	{"Probes", probes},
	{"Abandoned", abandoned},
}

// suite runs one case with one library.
type suite struct {
	*testing.T
	world       *world
	driver      driver
	environment string
}

func (s *suite) try(op string, a args) (any, *failure) {
	s.Helper()
	return s.driver.do(op, a, func(string, string) {})
}

func (s *suite) must(op string, a args) any {
	s.Helper()
	answer, failed := s.try(op, a)
	if failed != nil {
		s.Fatalf("%s %v: %+v", op, a, *failed)
	}
	return answer
}

// fails performs an operation that must fail with a code and, unless it is "", a reason.
func (s *suite) fails(code sandbox.Code, reason sandbox.Reason, op string, a args) *failure {
	s.Helper()
	answer, failed := s.try(op, a)
	if failed == nil {
		s.Fatalf("%s %v is answered with %v", op, a, answer)
	}
	if failed.Code != string(code) || reason != "" && failed.Reason != string(reason) {
		s.Errorf("%s %v fails with %+v, want %s (%s)", op, a, *failed, code, reason)
	}
	return failed
}

func (s *suite) equal(what string, got, want any) {
	s.Helper()
	if !reflect.DeepEqual(got, want) {
		s.Errorf("%s is %v, want %v", what, got, want)
	}
}

// lease acquires the lease of an agent in the case's environment.
func (s *suite) lease(agent string) string {
	s.Helper()
	return s.must("lease", args{"agent": agent, "environment": s.environment}).(map[string]any)["id"].(string)
}

// run runs a command, and returns its result and the lines that arrived.
func (s *suite) run(a args) (result map[string]any, lines []string) {
	s.Helper()
	op := "run"
	if a["session"] != nil {
		op = "run_in_session"
	}
	answer, failed := s.driver.do(op, a, func(stream, text string) { lines = append(lines, stream+" "+text) })
	if failed != nil {
		s.Fatalf("run %v: %+v", a, *failed)
	}
	return answer.(map[string]any), lines
}

func commands(s *suite) {
	lease := s.lease("did:plc:ada")
	r, lines := s.run(args{"lease": lease, "command": "echo one; echo zwölf >&2; printf three; exit 3"})
	s.equal("the exit code", r["exit_code"], 3.0)
	s.equal("stdout", r["stdout"], "one\nthree")
	s.equal("stderr", r["stderr"], "zwölf\n")
	slices.Sort(lines)
	s.equal("the lines", lines, []string{"stderr zwölf", "stdout one", "stdout three"})

	r, _ = s.run(args{"lease": lease, "command": []string{"sh", "-c", "echo $0 $A; pwd", "$HOME"}, "env": args{"A": "b c"},
		"cwd": "/data"})
	s.equal("the output of a list", r["stdout"], "$HOME b c\n/data\n")
	input := bytes.Repeat([]byte{0, 0xff, '\n', 'x'}, 50_000)
	r, _ = s.run(args{"lease": lease, "command": "wc -c", "stdin": base64.StdEncoding.EncodeToString(input)})
	s.equal("the size of the input", r["stdout"], fmt.Sprintln(len(input)))
	r, _ = s.run(args{"lease": lease, "command": "sleep 60", "timeout": "1s"})
	s.equal("timed_out", r["timed_out"], true)
	s.equal("the exit code after a timeout", r["exit_code"], 124.0)
	r, _ = s.run(args{"lease": lease, "command": "printf 12345", "output_limit": 3})
	s.equal("the kept output", r["stdout"], "123")
	s.equal("truncated", r["truncated"], true)
	user, _ := s.run(args{"lease": lease, "command": "id -u"})
	r, _ = s.run(args{"lease": lease, "command": "id -u", "verifier": true})
	if r["stdout"] == user["stdout"] {
		s.Errorf("the verifier has the agent's user, %v", r["stdout"])
	}
}

// largeOutput: the stored part of each stream arrives, and the result says that it is incomplete.
func largeOutput(s *suite) {
	lease := s.lease("did:plc:ada")
	s.must("start", args{"lease": lease, "id": "large",
		"command": "head -c 17000000 /dev/zero | tr '\\0' x; head -c 3 /dev/zero >&2"})
	got := s.must("output", args{"lease": lease, "id": "large"}).(map[string]any)
	if n := len(unbase64(s.T, got["stdout"])); n != sandbox.MaxKeptOutput {
		s.Errorf("%d bytes of stdout arrived", n)
	}
	s.equal("stderr", unbase64(s.T, got["stderr"]), "\x00\x00\x00")
	exec := s.must("call", args{"method": "get_exec", "args": []any{lease, "large"}}).(map[string]any)
	s.equal("truncated", exec["truncated"], true)
	s.equal("the rest", len(unbase64(s.T, s.must("read_output",
		args{"lease": lease, "id": "large", "stream": "stdout", "offset": sandbox.MaxKeptOutput - 10}))), 10)
}

func callbacks(s *suite) {
	lease := s.lease("did:plc:ada")
	_, failed := s.try("run", args{"lease": lease, "id": "failing", "command": "echo one; echo two; sleep 100",
		"fail_at_line": "two"})
	if failed == nil || failed.Code != "" || !strings.Contains(failed.Message, "the callback failed") {
		s.Errorf("a callback failed, and the caller sees %+v", failed)
	}
	exec := s.must("call", args{"method": "get_exec", "args": []any{lease, "failing"}}).(map[string]any)
	s.equal("the state of its command", exec["state"], "cancelled")
}

func detached(s *suite) {
	lease := s.lease("did:plc:ada")
	for range 2 {
		s.equal("the id", s.must("start", args{"lease": lease, "id": "once", "command": "echo x >>once"}), "once")
	}
	s.equal("the exit code", s.must("output", args{"lease": lease, "id": "once"}).(map[string]any)["exit_code"], 0.0)
	s.equal("what it wrote", s.read(lease, "once"), "x\n")
	s.fails(sandbox.Conflict, sandbox.ReasonOtherSettings, "start", args{"lease": lease, "id": "once", "command": "true"})
	s.must("start", args{"lease": lease, "id": "long", "command": "sleep 100"})
	s.equal("the state", s.must("cancel", args{"lease": lease, "id": "long"}), "cancelled")
	s.fails(sandbox.NotFound, sandbox.ReasonExecNotFound, "cancel", args{"lease": lease, "id": "none"})
	s.fails(sandbox.NotFound, "", "cancel", args{"lease": lease, "id": ".."})
	list := s.must("call", args{"method": "list_execs", "args": []any{lease}}).(map[string]any)["execs"].([]any)
	s.equal("the number of commands", len(list), 2)
}

// read returns the content of a file.
func (s *suite) read(lease, path string) string {
	s.Helper()
	return unbase64(s.T, s.must("read_file", args{"lease": lease, "path": path}))
}

func unbase64(t *testing.T, text any) string {
	t.Helper()
	content, err := base64.StdEncoding.DecodeString(text.(string))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func files(s *suite) {
	lease := s.lease("did:plc:ada")
	content := string([]byte{0, 0xff}) + strings.Repeat("a", 300_000)
	s.must("write_file", args{"lease": lease, "path": "maps/a b.txt",
		"content": base64.StdEncoding.EncodeToString([]byte(content)), "mode": 0o600})
	s.must("write_file", args{"lease": lease, "path": "maps/empty", "content": ""})
	if s.read(lease, "/workspace/maps/a b.txt") != content {
		s.Error("a file's content differs from the written one")
	}
	s.equal("an empty file", s.read(lease, "maps/empty"), "")
	s.equal("the files", s.must("list_files", args{"lease": lease, "path": "maps"}), []any{"a b.txt", "empty"})
	stat := s.must("stat_file", args{"lease": lease, "path": "maps/a b.txt"}).(map[string]any)
	s.equal("the mode", stat["mode"], "0600")
	s.equal("the size", stat["size"], 300_002.0)
	s.fails(sandbox.NotFound, sandbox.ReasonFileNotFound, "read_file", args{"lease": lease, "path": "none"})
	s.fails(sandbox.Invalid, "", "read_file", args{"lease": lease, "path": "/etc/passwd"})

	s.must("write_tar", args{"lease": lease, "path": "/data", "content": archive(s.T, map[string]string{"in/x": "y"})})
	got := entries(s.T, s.must("read_tar", args{"lease": lease, "path": "/data/in"}))
	s.equal("the archive", got["in/x"], "y")
	s.must("remove_file", args{"lease": lease, "path": "maps", "recursive": true})
	s.fails(sandbox.NotFound, sandbox.ReasonFileNotFound, "stat_file", args{"lease": lease, "path": "maps"})

	s.run(args{"lease": lease, "command": `mkdir many; cd many; i=0; while [ $i -lt 1500 ]; do : >$(printf '%04d\377' $i); i=$((i+1)); done`})
	s.equal("the number of files", len(s.must("list_files", args{"lease": lease, "path": "many"}).([]any)), 1500)
}

func archive(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func entries(t *testing.T, text any) map[string]string {
	t.Helper()
	r, found := tar.NewReader(strings.NewReader(unbase64(t, text))), map[string]string{}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimPrefix(h.Name, "./")] = string(content)
	}
}

func processes(s *suite) {
	lease := s.lease("did:plc:ada")
	s.must("start_process", args{"lease": lease, "name": "relay", "command": "echo ready; exec sleep 1000"})
	waited := s.must("wait_process", args{"lease": lease, "name": "relay", "log": "^rea", "timeout": "30s"}).(map[string]any)
	s.equal("the line", waited["line"], "ready")
	s.equal("the log", unbase64(s.T, s.must("read_process", args{"lease": lease, "name": "relay"})), "ready\n")
	s.equal("the state", s.must("process", args{"lease": lease, "name": "relay"}).(map[string]any)["state"], "running")
	s.equal("the number of processes", len(s.must("processes", args{"lease": lease}).([]any)), 1)
	s.equal("the state", s.must("kill_process", args{"lease": lease, "name": "relay"}).(map[string]any)["state"], "killed")
	s.fails(sandbox.Conflict, sandbox.ReasonProcessEnded, "wait_process", args{"lease": lease, "name": "relay", "port": 80})
	s.fails(sandbox.NotFound, sandbox.ReasonProcessNotFound, "process", args{"lease": lease, "name": "none"})
	s.must("start_process", args{"lease": lease, "name": "short", "command": "echo a; sleep 1; echo b"})
	s.equal("the log to its end",
		unbase64(s.T, s.must("read_process", args{"lease": lease, "name": "short", "follow": true})), "a\nb\n")
}

func sessions(s *suite) {
	lease := s.lease("did:plc:ada")
	made := s.must("session", args{"lease": lease, "id": "turn-1", "env": args{"TURN": "1"}}).(map[string]any)
	s.equal("the state", made["state"], "open")
	s.run(args{"session": "turn-1", "command": "mkdir -p maps && cd maps && export SEED=7"})
	r, lines := s.run(args{"session": "turn-1", "command": "pwd; echo $TURN$SEED; echo bad >&2"})
	s.equal("stdout", r["stdout"], "/workspace/maps\n17\n")
	s.equal("the number of lines", len(lines), 3)
	r, _ = s.run(args{"session": "turn-1", "command": []string{"echo", "$SEED"}})
	s.equal("the output of a list", r["stdout"], "$SEED\n")
	s.equal("the state", s.must("close_session", args{"session": "turn-1"}).(map[string]any)["state"], "closed")
	recorded := ""
	for _, e := range s.must("session_events", args{"session": "turn-1"}).([]any) {
		if pair := e.([]any); pair[0] == "output" {
			recorded += pair[1].(string)
		}
	}
	s.equal("the recording", recorded, "/workspace/maps\n17\n$SEED\n")
	s.fails(sandbox.Conflict, sandbox.ReasonSessionClosed, "run_in_session", args{"session": "turn-1", "command": "true"})
}

func runs(s *suite) {
	r := s.must("run_once", args{"environment": s.environment, "command": "cat in; cat; echo 1 >score.txt; exit 4",
		"files": archive(s.T, map[string]string{"in": "file\n"}), "stdin": base64.StdEncoding.EncodeToString([]byte("input\n")),
		"collect": []string{"*.txt", "none"}}).(map[string]any)
	s.equal("stdout", r["stdout"], "file\ninput\n")
	s.equal("the exit code", r["exit_code"], 4.0)
	s.equal("the files", entries(s.T, r["files"])["workspace/score.txt"], "1\n")
	s.equal("what is missing", r["missing"], []any{"/workspace/none"})
	s.equal("the status of its lease", r["status"], "destroyed")
	s.fails(sandbox.NotFound, "", "run_once", args{"environment": "nowhere", "command": "true"})
	f := s.fails(sandbox.Invalid, "", "run_once", args{"environment": s.environment, "command": []string{}})
	s.equal("the fields", f.Fields, []string{"command"})
}

func conditions(s *suite) {
	lease := s.lease("did:plc:ada")
	s.lease("did:plc:bob")
	end := args{"type": "game.finished", "environment": s.environment, "reason": "Ada wins", "id": "end-1"}
	receipt := s.must("condition", end).(map[string]any)
	s.equal("the status", receipt["status"], "applied")
	s.equal("what it ended", receipt["matched"], 2.0)
	s.sentBy("end-1", "secret:")
	end["reason"] = "Bob wins"
	s.fails(sandbox.Conflict, sandbox.ReasonOtherBody, "condition", end)
	s.equal("the status", s.must("bearer_condition", args{"type": "game.finished", "environment": "nowhere",
		"id": "end-2"}).(map[string]any)["status"], "unmatched")
	s.sentBy("end-2", "token:test")
	s.fails(sandbox.Invalid, "", "condition", args{"type": "", "environment": s.environment})
	s.fails(sandbox.LeaseEnded, "", "run", args{"lease": lease, "command": "true"})
	s.fails(sandbox.EnvironmentEnded, "", "lease", args{"agent": "did:plc:eve", "environment": s.environment})
	over := s.must("refresh", args{"lease": lease}).(map[string]any)
	s.equal("the reason", over["end_reason"], "game.finished: Ada wins")
	s.must("release", args{"lease": lease}) // it has ended: nothing to do
}

// sentBy checks the source of a condition. The client that signs also has a token, which may not send conditions.
func (s *suite) sentBy(id, source string) {
	s.Helper()
	list, err := s.world.direct.ListDeliveries(s.Context(), sandbox.DeliveryFilter{ID: id})
	if err != nil || len(list) != 1 || !strings.HasPrefix(list[0].Source, source) {
		s.Errorf("the deliveries of %s are %+v (%v), want one from %s", id, list, err, source)
	}
}

func signatures(s *suite) {
	const secret, other = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "whsec_MTEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	const at = 1_700_000_000
	body := base64.StdEncoding.EncodeToString([]byte(`{"type":"game.finished","münze":"\u0000"}`))
	signed, err := signature("sign", asked{Secret: secret, ID: "msg_1", Body: body, At: at})
	if err != nil {
		s.Fatal(err)
	}
	headers := signed.(map[string]string)
	got := s.must("sign", args{"secret": secret, "id": "msg_1", "body": body, "at": at}).(map[string]any)
	for name, value := range headers {
		s.equal(name, got[name], value)
	}
	verify := func(change func(h map[string]string), now int64, secrets ...string) args {
		h := map[string]string{}
		for name, value := range headers {
			h[name] = value
		}
		change(h)
		return args{"headers": h, "body": body, "secrets": append([]string{}, secrets...), "now": now}
	}
	same := func(map[string]string) {}
	s.equal("the id", s.must("verify", verify(same, at+300, other, secret)), "msg_1")
	s.equal("the id", s.must("verify", verify(func(h map[string]string) {
		h["webhook-signature"] = "v1a,xx v1,AAAA " + h["webhook-signature"]
	}, at-300, secret)), "msg_1")
	refused := map[string]args{
		"late":            verify(same, at+301, secret),
		"early":           verify(same, at-301, secret),
		"another secret":  verify(same, at, other),
		"no secret":       verify(same, at),
		"no signature":    verify(func(h map[string]string) { delete(h, "webhook-signature") }, at, secret),
		"another id":      verify(func(h map[string]string) { h["webhook-id"] = "msg_2" }, at, secret),
		"a dot":           verify(func(h map[string]string) { h["webhook-id"] = "msg.1" }, at, secret),
		"a zero":          verify(func(h map[string]string) { h["webhook-timestamp"] = "0" + h["webhook-timestamp"] }, at, secret),
		"no time":         verify(func(h map[string]string) { h["webhook-timestamp"] = "now" }, at, secret),
		"another version": verify(func(h map[string]string) { h["webhook-signature"] = "v2" + h["webhook-signature"][2:] }, at, secret),
		"many signatures": verify(func(h map[string]string) {
			h["webhook-signature"] = strings.Repeat("v1,AAAA ", 32) + h["webhook-signature"]
		}, at, secret),
	}
	changed := verify(same, at, secret)
	changed["body"] = base64.StdEncoding.EncodeToString([]byte("{}"))
	refused["another body"] = changed
	for name, a := range refused {
		if _, failed := s.try("verify", a); failed == nil || failed.Code != string(sandbox.Unauthenticated) {
			s.Errorf("%s: %+v", name, failed)
		}
	}
	s.fails(sandbox.Invalid, "", "verify", verify(same, at, "whsec_AAAA"))
	s.fails(sandbox.Invalid, "", "sign", args{"secret": "secret", "id": "msg_1", "body": body, "at": at})
	s.fails(sandbox.Invalid, "", "sign", args{"secret": secret, "id": "msg 1", "body": body, "at": at})
}

func leases(s *suite) {
	lease := s.lease("did:plc:ada")
	s.equal("the lease of a second call", s.lease("did:plc:ada"), lease)
	s.equal("the ttl", s.must("renew", args{"lease": lease, "settings": args{"ttl": "2h"}}).(map[string]any)["ttl"], "2h0m0s")
	s.equal("the phase", s.must("sleep", args{"lease": lease}).(map[string]any)["phase"], "asleep")
	s.equal("the phase", s.must("wake", args{"lease": lease}).(map[string]any)["phase"], "awake")
	s.equal("healthy", s.must("health", args{"lease": lease}).(map[string]any)["healthy"], true)
	s.equal("the lease of the sample", s.must("usage", args{"lease": lease}).(map[string]any)["lease_id"], lease)
	s.equal("the status", s.must("release", args{"lease": lease}).(map[string]any)["status"], "destroyed")
	again := s.must("lease", args{"agent": "did:plc:ada", "environment": s.environment}).(map[string]any)
	s.equal("the generation", again["generation"], 2.0)
}

func reports(s *suite) {
	lease := s.lease("did:plc:ada")
	s.run(args{"lease": lease, "command": "true"})
	events := s.must("events", args{"lease": lease, "count": 3}).([]any)
	s.equal("the number of events", len(events), 3)
	costs := s.must("call", args{"method": "get_costs", "args": []any{}, "query": args{"environment_id": s.environment}})
	row := costs.(map[string]any)["rows"].([]any)[0].(map[string]any)
	s.equal("the lease of the costs", row["lease_id"], lease)
	e := s.must("call", args{"method": "get_environment", "args": []any{s.environment}}).(map[string]any)
	s.equal("the network", e["network"], "none")
	list := s.must("call", args{"method": "list_leases", "args": []any{}, "query": args{"environment_id": s.environment}})
	s.equal("the number of leases", len(list.(map[string]any)["leases"].([]any)), 1)
	put := s.must("call", args{"method": "put_environment",
		"args": []any{s.environment, args{"image": s.world.image, "type": "catan", "network": "none", "labels": args{"a": "b"}}}})
	s.equal("the label", put.(map[string]any)["labels"], map[string]any{"a": "b"})
}

func failures(s *suite) {
	s.fails(sandbox.NotFound, "", "lease", args{"agent": "did:plc:ada", "environment": "nowhere"})
	f := s.fails(sandbox.Invalid, "", "lease", args{"agent": "ada", "environment": s.environment})
	s.equal("the fields", f.Fields, []string{"agent_did"})
	s.equal("retryable", f.Retryable, false)
	lease := s.lease("did:plc:ada")
	f = s.fails(sandbox.Invalid, "", "run", args{"lease": lease, "command": "true", "cwd": "/etc"})
	s.equal("the fields", f.Fields, []string{"cwd"})
	s.fails(sandbox.NotFound, "", "call", args{"method": "get_environment", "args": []any{"nowhere"}})
	s.fails(sandbox.NotFound, "", "call", args{"method": "get_environment", "args": []any{".."}})
}

func agents(s *suite) {
	lease := s.lease("did:plc:ada")
	s.must("write_file", args{"lease": lease, "path": "index.html", "content": base64.StdEncoding.EncodeToString([]byte("hi"))})
	s.must("call", args{"method": "start_process", "args": []any{lease, args{"name": "web",
		"command": []string{"busybox", "httpd", "-f", "-p", "127.0.0.1:8080", "-h", "/workspace"}, "endpoint": args{"port": 8080}}}})
	answer := s.must("ask_agent", args{"lease": lease, "agent": "web", "path": "index.html"}).(map[string]any)
	s.equal("the status", answer["status"], 200.0)
	s.equal("the body", unbase64(s.T, answer["body"]), "hi")
	s.equal("the agent's own answer", s.must("ask_agent", args{"lease": lease, "agent": "web", "path": "none"}).(map[string]any)["status"],
		404.0)
	s.fails(sandbox.NotFound, "", "ask_agent", args{"lease": lease, "agent": "none"})
	for _, path := range []string{"../../release", "a/%2E%2e/../x", `..\..\release`, ".."} {
		s.fails(sandbox.Invalid, "", "ask_agent", args{"lease": lease, "agent": "web", "path": path, "method": "POST"})
	}
	list := s.must("call", args{"method": "list_agents", "query": args{"lease_id": lease}}).(map[string]any)["agents"].([]any)
	s.equal("the number of agents", len(list), 1)
}

func probes(s *suite) {
	s.equal("livez, readyz and metrics", s.must("probe", nil), []any{true, true, true})
	if f := s.fails(sandbox.NotFound, "", "call", args{"method": "get_environment", "args": []any{"nowhere"}}); !f.RequestID {
		s.Errorf("the error lacks the id of its request: %+v", f)
	}
}

// abandoned: a program that reads only the first output of a command continues, and so does the command.
func abandoned(s *suite) {
	lease := s.lease("did:plc:ada")
	s.must("start", args{"lease": lease, "id": "abandoned", "command": "echo one; sleep 1000"})
	s.equal("the first output", s.must("first_output", args{"lease": lease, "id": "abandoned"}), "one\n")
	exec := s.must("call", args{"method": "get_exec", "args": []any{lease, "abandoned"}}).(map[string]any)
	s.equal("the state", exec["state"], "running")
	s.equal("the state", s.must("cancel", args{"lease": lease, "id": "abandoned"}), "cancelled")
}

// TestAnAnswerMayBeClosedTwice: its connection still serves one request at a time. Only the Python library keeps
// connections itself.
func TestAnAnswerMayBeClosedTwice(t *testing.T) {
	t.Parallel()
	l := libraries(t)[0]
	w := newWorld(t)
	s := &suite{T: t, world: w, driver: l.start(w)}
	s.equal("two answers at once", s.must("close_twice", nil), []any{true, 200.0, 200.0})
}

// TestASignalCancelsACommand: Python has exceptions for this.
func TestASignalCancelsACommand(t *testing.T) {
	t.Parallel()
	l := libraries(t)[1]
	w := newWorld(t)
	w.environment("signal")
	s := &suite{T: t, world: w, driver: l.start(w), environment: "signal"}
	lease := s.lease("did:plc:ada")
	_, failed := s.try("run", args{"lease": lease, "id": "stopped", "command": "echo one; sleep 100", "abort_at_line": "one"})
	if failed == nil || !strings.Contains(failed.Message, "stopped") {
		t.Errorf("the caller sees %+v", failed)
	}
	exec := s.must("call", args{"method": "get_exec", "args": []any{lease, "stopped"}}).(map[string]any)
	s.equal("the state", exec["state"], "cancelled")
}

// TestTLS: the libraries trust the given authorities, and no others.
func TestTLS(t *testing.T) {
	t.Parallel()
	for _, l := range libraries(t) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			server := httptest.NewUnstartedServer(w.proxy)
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients reject its certificate
			server.StartTLS()
			t.Cleanup(server.Close)
			authority := filepath.Join(t.TempDir(), "ca.pem")
			write(t, authority, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
			w.proxy.url = server.URL
			s := &suite{T: t, world: w, driver: l.start(w)}
			f := s.fails(sandbox.Unavailable, "", "probe", nil)
			if !strings.Contains(f.Message, "certificate is not trusted") {
				t.Errorf("the error is %s", f.Message)
			}
			l.env = []string{"SANDBOX_TEST_CA_FILE=" + authority, "NODE_EXTRA_CA_CERTS=" + authority}
			s.driver = l.start(w)
			probes(s)
		})
	}
}

// TestPythonUsesTheProxyOfTheEnvironment: Node.js 20 has no such variable, so TypeScript is not tested.
func TestPythonUsesTheProxyOfTheEnvironment(t *testing.T) {
	t.Parallel()
	l := libraries(t)[0]
	w := newWorld(t)
	l.env = []string{"http_proxy=" + w.proxy.url, "SANDBOX_RECONCILER_URL=http://reconciler.invalid/"}
	probes(&suite{T: t, world: w, driver: l.start(w)})
}
