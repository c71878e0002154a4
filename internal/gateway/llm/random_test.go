package llm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// plan is the course of a random call. Its request carries it to the upstream.
type plan struct {
	Stream bool `json:"stream"`
	Input  int64
	Output int64
	Events int
	// The upstream answers with Status, or breaks off before event Cut, or the client leaves after Leave bytes. -1 means
	// that it does not.
	Status, Cut, Leave int
}

// told is the upstream's own count.
type told struct {
	tokens sandbox.LLMTokens
	api    sandbox.LLMAPI
	status int
	whole  bool // it sent all of its answer
}

// TestAThousandCallsAreRecordedAsTheUpstreamCountsThem breaks calls off at random points on both sides.
func TestAThousandCallsAreRecordedAsTheUpstreamCountsThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := config(sandbox.LLMOpenAI, plain)
	c.Routes["claude"], c.Routes["router"] = route(sandbox.LLMAnthropic, secure), route(sandbox.LLMOpenRouter, plain)
	w.set(c)
	var mu sync.Mutex
	counted := map[string]told{}
	w.out.serve(func(rw http.ResponseWriter, r *http.Request) {
		var body struct {
			User string `json:"user"`
		}
		var p plan
		b, _ := io.ReadAll(r.Body)
		if json.Unmarshal(b, &body) != nil || json.Unmarshal([]byte(body.User), &p) != nil {
			t.Errorf("the upstream got %s", b)
			return
		}
		answerPlan(rw, r, p, func(x told) {
			mu.Lock()
			defer mu.Unlock()
			counted[r.Header.Get("X-Sandbox-Call")] = x
		})
	})
	const calls, workers = 1008, 16
	var wait sync.WaitGroup
	for worker := range workers {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range calls / workers {
				w.randomCall(random)
			}
		})
	}
	wait.Wait()
	list := w.ended()
	mu.Lock()
	defer mu.Unlock()
	outcomes := map[string]int{}
	for _, call := range list {
		x, ok := counted[call.ID]
		delete(counted, call.ID)
		checkRandom(t, call, x, ok)
		outcomes[fmt.Sprintf("%s unknown=%t", call.Outcome, call.Unknown)]++
	}
	for id, x := range counted {
		t.Errorf("call %s is not recorded: %+v", id, x)
	}
	t.Logf("%d calls: %v", len(list), outcomes)
	if len(outcomes) < 4 {
		t.Errorf("the calls are not varied: %v", outcomes)
	}
}

// checkRandom compares a record with the upstream's count.
func checkRandom(t *testing.T, call sandbox.LLMCall, x told, sent bool) {
	t.Helper()
	exact := pricing.Tokens(modelM(), call.Tokens)
	switch {
	case call.Outcome == sandbox.LLMUnsent && (sent || call.Cost != 0),
		call.Outcome == sandbox.LLMRejected && (x.status < 400 || call.Cost != 0),
		call.Outcome == sandbox.LLMCompleted && (call.Tokens != x.tokens || call.Cost != exact || call.Unknown),
		call.Outcome == sandbox.LLMInterrupted && !call.Unknown && (call.Tokens != x.tokens || call.Cost != exact),
		call.Outcome == sandbox.LLMInterrupted && call.Unknown && sent && call.Cost < pricing.Tokens(modelM(), x.tokens),
		call.Outcome == sandbox.LLMRunning:
		t.Errorf("the upstream counted %+v (sent: %t), and the record is %+v", x, sent, call)
	}
}

// answerPlan answers as planned. It reports its count before the answer.
func answerPlan(w http.ResponseWriter, r *http.Request, p plan, tell func(told)) {
	x := told{tokens: sandbox.LLMTokens{Input: p.Input, Output: p.Output}, status: p.Status, whole: p.Cut < 0}
	anthropic := r.URL.Path == "/v1/messages"
	x.api = sandbox.LLMOpenAI
	if anthropic {
		x.api = sandbox.LLMAnthropic
	}
	tell(x)
	if p.Status >= 400 {
		w.WriteHeader(p.Status)
		_, _ = io.WriteString(w, "no")
		return
	}
	usage := fmt.Sprintf(`"usage":{"input_tokens":%[1]d,"output_tokens":%[2]d}`, p.Input, p.Output)
	events := []string{event(`{"type":"message_start","message":{"usage":{"input_tokens":%d,"output_tokens":1}}}`, p.Input)}
	text := event(`{"type":"content_block_delta","delta":{"text":"some words of an answer"}}`)
	end := []string{event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},%s}`, usage), event(`{"type":"message_stop"}`)}
	switch {
	case r.URL.Path == "/v1/responses":
		events = []string{event(`{"type":"response.created","response":{"usage":null}}`)}
		end = []string{event(`{"type":"response.completed","response":{"output":[],%s}}`, usage)}
	case !anthropic:
		usage = fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d}`, p.Input, p.Output)
		events, text = nil, event(`{"choices":[{"delta":{"content":"some words of an answer"}}]}`)
		end = []string{event(`{"choices":[],%s}`, usage), event("[DONE]")}
	}
	for range p.Events {
		events = append(events, text)
	}
	events = append(events, end...)
	w.Header().Set("Content-Type", "text/event-stream")
	if !p.Stream {
		w.Header().Set("Content-Type", "application/json")
		events = []string{`{"text":"`, strings.Repeat("words ", p.Events), `",` + usage + `}`}
	}
	for i, e := range events {
		if i == p.Cut {
			panic(http.ErrAbortHandler)
		}
		if p.Stream {
			e += "\n\n"
		}
		_, _ = io.WriteString(w, e)
		_ = http.NewResponseController(w).Flush()
	}
}

func (w *world) randomCall(random *rand.Rand) {
	// A call uses less than it reserves.
	p := plan{
		Stream: random.IntN(2) == 0, Input: 1 + random.Int64N(50), Output: 1 + random.Int64N(100), Events: random.IntN(20),
		Cut: -1, Leave: -1,
	}
	switch random.IntN(5) {
	case 0:
		p.Cut = random.IntN(p.Events + 4)
	case 1:
		p.Leave = random.IntN(1500)
	case 2:
		p.Status = []int{400, 429, 500, 529}[random.IntN(4)]
	}
	paths := []string{chatPath, responsesPath, "/llm/claude/v1/messages", "/llm/router/v1/chat/completions"}
	path := paths[random.IntN(len(paths))]
	text, _ := json.Marshal(p)
	body := fmt.Sprintf(`{"model":"m","max_tokens":100,"max_output_tokens":100,"stream":%t,"user":%s}`, p.Stream,
		strconv.Quote(string(text)))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w.caller.Store(&llm.Caller{Sandbox: "box-" + strconv.Itoa(random.IntN(9)), Lease: "lease-1"})
	r := w.request(ctx, path, body)
	res, err := w.front.Client().Do(r)
	if err != nil {
		return
	}
	defer res.Body.Close()
	if p.Leave >= 0 {
		_, _ = io.CopyN(io.Discard, res.Body, int64(p.Leave))
		return // closing the body disconnects
	}
	_, _ = io.Copy(io.Discard, res.Body) // it may break off
}
