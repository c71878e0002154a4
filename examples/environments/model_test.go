package environments_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// message is a message of a conversation with a model.
type message struct {
	Role      string     `json:"role"`
	Content   string     `json:"content"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
	// ToolCallID is the call that a tool's message answers.
	ToolCallID string `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// answer is the model's answer to a question: an error status with a text, or words, or tool calls.
type answer struct {
	status int
	text   string
	calls  []toolCall
}

// says returns an answer in words.
func says(text string) answer { return answer{status: http.StatusOK, text: text} }

// uses returns an answer that calls a tool. and adds more calls.
func uses(tool string, arguments map[string]any) answer { return says("").and(tool, arguments) }

func (a answer) and(tool string, arguments map[string]any) answer {
	text, err := json.Marshal(arguments)
	if err != nil {
		panic(err) // cannot happen: tests use only JSON values
	}
	call := toolCall{ID: fmt.Sprintf("call-%d", len(a.calls)+1), Type: "function"}
	call.Function.Name, call.Function.Arguments = tool, string(text)
	a.calls = append(slices.Clone(a.calls), call)
	return a
}

// none are the arguments of a tool without arguments.
var none = map[string]any{}

// The usage that the model reports for each call, in tokens.
const inputTokens, outputTokens = 120, 30

// model is a fake LLM behind an OpenAI-compatible API.
type model struct {
	url, key string

	mu      sync.Mutex // guards the fields below
	respond func([]message) answer
	asked   [][]message
	// calls counts the completed calls by agent, under the name that the gateway sends.
	calls map[string]int64
	// turn is the game and turn of the latest call, as the agent sends them.
	turn string
}

// startModel starts a model without answers.
func startModel(t *testing.T, o outside) *model {
	t.Helper()
	m := &model{
		key:     "sk-of-the-example",
		respond: func([]message) answer { return answer{http.StatusInternalServerError, "nothing to say", nil} },
		calls:   make(map[string]int64),
	}
	m.url, _ = o.serve(t, "llm.test", m)
	return m
}

// say sets the answers of the model, in order. It repeats the last one.
func (m *model) say(answers ...answer) {
	m.reply(func([]message) answer {
		is := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		return is
	})
}

// reply makes a function answer for the model, one question at a time.
func (m *model) reply(respond func([]message) answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.respond, m.asked = respond, nil
}

// questions returns the conversations since reply was called.
func (m *model) questions() [][]message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// latestTurn returns the game and the turn of the latest call.
func (m *model) latestTurn() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.turn
}

// callsOf returns the number of completed calls of an agent.
func (m *model) callsOf(agent string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[agent]
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var question struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
		Tools    []any     `json:"tools"`
	}
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions":
		http.NotFound(w, r)
		return
	case r.Header.Get("Authorization") != "Bearer "+m.key:
		http.Error(w, "no such key", http.StatusUnauthorized)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&question); err != nil || question.Model == "" || len(question.Tools) == 0 {
		http.Error(w, "no question", http.StatusBadRequest)
		return
	}
	is := m.next(question.Messages, r.Header)
	if is.status != http.StatusOK {
		http.Error(w, is.text, is.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the sandbox may be gone
		"choices": []any{map[string]any{"message": message{Role: "assistant", Content: is.text, ToolCalls: is.calls}}},
		"usage": map[string]int{
			"prompt_tokens": inputTokens, "completion_tokens": outputTokens, "total_tokens": inputTokens + outputTokens,
		},
	})
}

func (m *model) next(question []message, header http.Header) answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, question)
	is := m.respond(question)
	if is.status == http.StatusOK {
		m.calls[header.Get("X-Sandbox-Agent")]++
		m.turn = header.Get(sandbox.HeaderSession)
	}
	return is
}

// seen returns the results of tools in a conversation, in order.
func seen(question []message) (results []string) {
	for _, m := range question {
		if m.Role == "tool" {
			results = append(results, m.Content)
		}
	}
	return results
}
