package cloudflare_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// sharedCalls are the expected results for the requests and answers in a file, without their contents.
type sharedCalls struct {
	Requests []struct {
		Name         string
		Status       int
		Code, Sent   string
		Most         sandbox.LLMTokens
		Cost         int64
		Stream, Hide bool
	}
	Answers []struct {
		Name, Passed                  string
		Tokens                        sandbox.LLMTokens
		Known, Seen, Bad, Done, Whole bool
	}
}

// TestTheWorkerChecksAndMetersCallsAsTheGatewayDoes runs the calls of internal/gateway/llm on the Worker's code.
func TestTheWorkerChecksAndMetersCallsAsTheGatewayDoes(t *testing.T) {
	cloudflaretest.Need(t)
	t.Parallel()
	const file = "../../gateway/llm/testdata/calls.json"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "node", "testdata/checkcalls.mjs", buildModule(t, "llm/request"),
		buildModule(t, "llm/usage"), file).Output()
	if err != nil {
		t.Fatalf("check the calls: %v", err)
	}
	var want, got sharedCalls
	if err := json.Unmarshal(b, &want); err != nil || len(want.Requests) == 0 || len(want.Answers) == 0 {
		t.Fatalf("%d requests, %d answers: %v", len(want.Requests), len(want.Answers), err)
	}
	if err := json.Unmarshal(out, &got); err != nil || len(got.Requests) != len(want.Requests) ||
		len(got.Answers) != len(want.Answers) {
		t.Fatalf("it says %.300s: %v", out, err)
	}
	for i, w := range want.Requests {
		if got.Requests[i] != w {
			t.Errorf("request %s: it is %+v, want %+v", w.Name, got.Requests[i], w)
		}
	}
	for i, w := range want.Answers {
		if got.Answers[i] != w {
			t.Errorf("answer %s: it is %+v, want %+v", w.Name, got.Answers[i], w)
		}
	}
}
