package api_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestAWrongBodyNamesItsFieldInTheWordsOfJSON sends the mistakes of newcomers. No answer may mention Go.
func TestAWrongBodyNamesItsFieldInTheWordsOfJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	const environment = "PUT /v1/environments/new-1"
	for _, test := range []struct{ request, body, field, problem string }{
		{environment, `{"image":7}`, "image", "must be a string"},
		{environment, `{"image":"x","networks":"none"}`, "networks", "is an unknown field; did you mean network?"},
		{environment, `{"TYPE":"catan","image":"x"}`, "TYPE", "is an unknown field; did you mean type?"},
		{environment, `{"image":"x","image":"y"}`, "image", "is a duplicate"},
		{environment, `{"image":"x"} {}`, "body", "is not JSON: line 1, column 15: invalid character '{' after top-level value"},
		{environment, `{"image":"x","resources":{"cpu":2}}`, "resources.cpu", "is an unknown field; did you mean cpu_millis?"},
		{"POST " + annIn + "/exec", `{"command":"echo hi"}`, "command", "must be a list of strings"},
		{"POST " + annIn + "/exec", `{"command":["a"],"timeout":"1"}`, "timeout",
			`"1" is not a duration such as "90s", "5m" or "24h"`},
		{"POST " + annIn + "/exec", `{"Command":["a"]}`, "Command", "is an unknown field; did you mean command?"},
		{"POST " + annIn + "/exec", `{"command":["a"],"stdin":"!","stdin_encoding":"base64"}`, "stdin",
			"illegal base64 data at input byte 0"},
		{"POST /v1/leases", `{"agent_did":1}`, "agent_did", "must be a string"},
		{"POST /v1/runs", `{"environment_id":"catan-7","env":{"A":1}}`, "env.A", "must be a string"},
		{"POST /v1/conditions", `{"type":1,"timestamp":"2026-08-01T12:00:00Z","data":{"environment_id":"catan-7"}}`,
			"type", "must be a string"},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		a := w.do(method, path, test.body)
		var got wire.Problem
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.StatusCode != 422 {
			t.Errorf("%s %s: %d %s", test.request, test.body, a.StatusCode, a.body)
			continue
		}
		if len(got.Fields) != 1 || got.Fields[0] != (sandbox.Field{Name: test.field, Problem: test.problem}) {
			t.Errorf("%s %s is refused with %v", test.request, test.body, got.Fields)
		}
		if strings.Contains(a.body, "Go ") || strings.Contains(a.body, "json:") || got.Title != "The request is invalid" {
			t.Errorf("%s %s: %s", test.request, test.body, a.body)
		}
	}
	const request, base64 = `{"command":["cat"]}`, `"data":"eA==","encoding":"base64"`
	for body, want := range map[string]string{
		request + "\n" + `{"data":"x","Data":"y"}`:                         "Data is an unknown field; did you mean data?",
		request + "\n{" + base64 + `,"stream":"stdout"}`:                   "stream is an unknown field",
		request + "\n" + `{"stream":"stdout",` + base64 + "}":              "stream is an unknown field",
		request + "\n" + `{"data":"eA==","encoding":"base65"}`:             "data unknown encoding",
		request + "\n" + `{"data":"e` + "\r" + `A==","encoding":"base64"}`: "body is not JSON: line 1, column 11: invalid character",
		request + "\n{" + base64 + "}}":                                    "body is not JSON: line 1, column 36: invalid character",
		request + `{"data":"x"}`:                                           "body is not JSON: line 1, column 20: invalid character",
		"{\n" + request[1:]:                                                "body is not JSON: line 1, column 1: unexpected end",
		"{\n" + request[1:] + "\n":                                         "each line of application/x-ndjson must be one JSON value",
	} {
		a := w.ask(annIn+"/exec", wire.NDJSON, io.NopCloser(strings.NewReader(body)))
		var got wire.Problem
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.StatusCode != 422 || len(got.Fields) != 1 ||
			!strings.Contains(got.Fields[0].Name+" "+got.Fields[0].Problem, want) {
			t.Errorf("%s: %d %s, want %s", body, a.StatusCode, a.body, want)
		}
	}
}

// TestOneTypeOfProblemHasOneTitle: in RFC 9457, the title depends only on the type.
func TestOneTypeOfProblemHasOneTitle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	for request, status := range map[string]int{
		"GET /v1/leases?limit=x": 422, "PUT /v1/leases": 405, "GET /v1/leases?nope=1": 422,
		"POST " + annIn + "/exec": 415, "PUT /v1/environments/new-1": 400,
	} {
		method, path, _ := strings.Cut(request, " ")
		p := want[wire.Problem](w, w.do(method, path, "", "Content-Type", "text/plain"), status)
		if p.Type != "urn:sandbox-lease:problem:invalid" || p.Title != "The request is invalid" ||
			strings.Contains(p.Detail, "validation failed") {
			t.Errorf("%s: %s, %s, %s", request, p.Type, p.Title, p.Detail)
		}
	}
}
