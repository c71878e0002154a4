package environments_test

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"
)

// message is one of a conversation with a model.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// model stands in for an LLM behind an OpenAI-compatible API.
type model struct {
	url, host, key string

	mu     sync.Mutex // guards everything that follows
	answer func([]message) (status int, content string)
	asked  [][]message
}

// startModel starts a model that answers nothing yet.
func startModel(t *testing.T, o outside) *model {
	t.Helper()
	m := &model{
		key:    "sk-of-the-example",
		answer: func([]message) (int, string) { return http.StatusInternalServerError, "nothing to say" },
	}
	m.url, m.host = o.serve(t, "llm.test", m)
	return m
}

// say makes the model answer every question so, from now on.
func (m *model) say(contents ...string) {
	m.reply(func([]message) (int, string) {
		content := contents[0]
		if len(contents) > 1 {
			contents = contents[1:]
		}
		return http.StatusOK, content
	})
}

// reply makes the model answer by a function, one question at a time.
func (m *model) reply(answer func([]message) (int, string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer, m.asked = answer, nil
}

// questions are the conversations since reply was called.
func (m *model) questions() [][]message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var question struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
	}
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions":
		http.NotFound(w, r)
		return
	case r.Header.Get("Authorization") != "Bearer "+m.key:
		http.Error(w, "no such key", http.StatusUnauthorized)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&question); err != nil || question.Model == "" {
		http.Error(w, "no question", http.StatusBadRequest)
		return
	}
	status, content := m.next(question.Messages)
	if status != http.StatusOK {
		http.Error(w, content, status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // a sandbox that is gone reads nothing
		"choices": []any{map[string]any{"message": message{"assistant", content}}},
	})
}

func (m *model) next(question []message) (int, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, question)
	return m.answer(question)
}
