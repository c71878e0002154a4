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

// message is one of a conversation with a model.
type message struct {
	Role      string     `json:"role"`
	Content   string     `json:"content"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
	// ToolCallID is the call that a message of a tool answers.
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

// answer is what the model says to a question: a status other than 200 with a text, or words, or calls of tools.
type answer struct {
	status int
	text   string
	calls  []toolCall
}

// says is an answer in words.
func says(text string) answer { return answer{status: http.StatusOK, text: text} }

// uses is an answer that calls a tool. More calls may follow by and.
func uses(tool string, arguments map[string]any) answer { return says("").and(tool, arguments) }

func (a answer) and(tool string, arguments map[string]any) answer {
	text, err := json.Marshal(arguments)
	if err != nil {
		panic(err) // a test has only what JSON has
	}
	call := toolCall{ID: fmt.Sprintf("call-%d", len(a.calls)+1), Type: "function"}
	call.Function.Name, call.Function.Arguments = tool, string(text)
	a.calls = append(slices.Clone(a.calls), call)
	return a
}

// none are the arguments of a tool that needs none.
var none = map[string]any{}

// Tokens that the model says to have used in each call.
const inputTokens, outputTokens = 120, 30

// model stands in for an LLM behind an OpenAI-compatible API.
type model struct {
	url, key string

	mu      sync.Mutex // guards everything that follows
	respond func([]message) answer
	asked   [][]message
	// calls counts the completed calls by agent, as the gateway names it.
	calls map[string]int64
	// turn is the latest call's game and turn, as the agent says.
	turn string
}

// startModel starts a model that answers nothing yet.
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

// say makes the model answer so from now on: one answer after the other, and the last one again and again.
func (m *model) say(answers ...answer) {
	m.reply(func([]message) answer {
		is := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		return is
	})
}

// reply makes the model answer by a function, one question at a time.
func (m *model) reply(respond func([]message) answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.respond, m.asked = respond, nil
}

// questions are the conversations since reply was called.
func (m *model) questions() [][]message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// latestTurn is the game and the turn of the latest call.
func (m *model) latestTurn() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.turn
}

// callsOf counts the completed calls of an agent.
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
	_ = json.NewEncoder(w).Encode(map[string]any{ // a sandbox that is gone reads nothing
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

// seen are the results of tools in a conversation, in order.
func seen(question []message) (results []string) {
	for _, m := range question {
		if m.Role == "tool" {
			results = append(results, m.Content)
		}
	}
	return results
}
