// Command chat is an agent that runs as long as its sandbox and serves several sessions: it answers messages with a
// model that it calls through the sandbox's LLM route, without a key. It speaks the protocol sandbox-agent/1, see the
// guide on agents.
//
// Variables: OPENAI_BASE_URL is the route; MODEL is the model, "small" by default; PORT is the TCP port on 127.0.0.1,
// 8080 by default.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// sessionHeader says what a message is for. The agent sends it with its model calls, so that the ledger knows.
const sessionHeader = "X-Sandbox-Session"

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	a := &agent{
		url:      os.Getenv("OPENAI_BASE_URL"),
		model:    cmp.Or(os.Getenv("MODEL"), "small"),
		sessions: newSessions(),
	}
	if a.url == "" {
		return errors.New("the variable OPENAI_BASE_URL is not set: give the environment an LLM route")
	}
	server := &http.Server{
		Addr:              "127.0.0.1:" + cmp.Or(os.Getenv("PORT"), "8080"),
		Handler:           a.handler(),
		ReadHeaderTimeout: 10 * time.Second,
	}
	return server.ListenAndServe()
}

// agent answers messages.
type agent struct {
	url, model string
	sessions   *sessions
}

func (a *agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", a.describe)
	mux.HandleFunc("POST /v1/messages", a.answer)
	mux.HandleFunc("GET /v1/live", a.live)
	return mux
}

// event is a part of an answer.
type event struct {
	Type  string `json:"type"` // text, done or error
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

type question struct {
	Message string `json:"message"`
}

func (a *agent) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{ // the client may be gone
		"protocol": "sandbox-agent/1", "name": "chat", "description": "Answers messages.",
	})
}

// answer streams the answer to one message as server-sent events.
func (a *agent) answer(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&q); err != nil || q.Message == "" {
		http.Error(w, `the body must be JSON with a "message"`, http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	a.reply(r.Context(), r.Header.Get(sessionHeader), q.Message, func(e event) error {
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.Type, data); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	})
}

// live answers the messages of a WebSocket, one after the other.
func (a *agent) live(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has sent the error
	}
	defer conn.CloseNow() //nolint:errcheck // the client may be gone
	for {
		var q question
		if err := wsjson.Read(r.Context(), conn, &q); err != nil {
			return // the client is gone
		}
		a.reply(r.Context(), r.Header.Get(sessionHeader), q.Message, func(e event) error {
			return wsjson.Write(r.Context(), conn, e)
		})
	}
}

// reply sends the answer to a message of a session, in parts, and remembers both.
func (a *agent) reply(ctx context.Context, session, message string, send func(event) error) {
	var said strings.Builder
	asked := append(a.sessions.get(session), turn{"user", message})
	err := a.ask(ctx, session, asked, func(text string) error {
		said.WriteString(text)
		return send(event{Type: "text", Text: text})
	})
	if err != nil {
		_ = send(event{Type: "error", Error: err.Error()}) // the client may be gone
		return
	}
	a.sessions.put(session, append(asked, turn{"assistant", said.String()}))
	_ = send(event{Type: "done"}) // the client may be gone
}

// ask calls the model, and passes its answer on as it arrives.
func (a *agent) ask(ctx context.Context, session string, asked []turn, part func(string) error) error {
	body, err := json.Marshal(map[string]any{"model": a.model, "stream": true, "messages": asked})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if session != "" {
		r.Header.Set(sessionHeader, session)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("call the model: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // best effort
		return fmt.Errorf("call the model: %s: %s", resp.Status, why)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return nil
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return fmt.Errorf("read the model's answer: %w", err)
		}
		for _, c := range chunk.Choices {
			if c.Delta.Content == "" {
				continue
			}
			if err := part(c.Delta.Content); err != nil {
				return err
			}
		}
	}
	return cmp.Or(lines.Err(), errors.New("the model's answer broke off"))
}
