package reconciler_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/gateways"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// talker is a model that streams the number of the messages that it received, and the last message. While held, it
// waits between the two.
type talker struct {
	mu      sync.Mutex // guards the fields below
	held    chan struct{}
	headers []http.Header
}

// hold makes answers stop in the middle until the caller calls release.
func (m *talker) hold() (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := make(chan struct{})
	m.held = held
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		close(held)
		m.held = nil
	})
}

func (m *talker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	m.headers = append(m.headers, r.Header.Clone())
	held := m.held
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	say := func(text string) {
		chunk, err := json.Marshal(text)
		if err != nil {
			panic(err)
		}
		_, _ = fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":{"content":%s}}]}`+"\n\n", chunk)
		_ = http.NewResponseController(w).Flush()
	}
	say(fmt.Sprintf("%d: ", len(q.Messages)))
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	say(q.Messages[len(q.Messages)-1].Content)
	_, _ = fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`+
		"\n\ndata: [DONE]\n\n")
}

// answerPart is a part of an agent's answer.
type answerPart struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Error string `json:"error"`
}

// chat builds the agent of the examples, copies it into a sandbox and starts it.
func (w *world) chat(lease string) {
	w.Helper()
	file := filepath.Join(w.TempDir(), "chat")
	build := exec.Command("go", "build", "-trimpath", "-o", file, "../examples/agents/chat")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		w.Fatalf("build the agent: %v\n%s", err, out)
	}
	program, err := os.Open(file)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = program.Close() }() // only read
	r := sandbox.LeaseRef{ID: lease}
	if err := w.service.WriteFile(w.Context(), r, sandbox.FileWrite{Path: "/workspace/chat", Mode: 0o755}, program); err != nil {
		w.Fatal(err)
	}
	_, err = w.service.StartProcess(w.Context(), r, sandbox.ProcessSpec{
		Name: "chat", Command: []string{"/workspace/chat"}, Restart: sandbox.RestartAlways,
		Endpoint: &sandbox.Endpoint{Port: 8080, Description: "Answers messages."},
	})
	if err != nil {
		w.Fatal(err)
	}
}

// message sends a message of a session to the agent of a lease, and returns its answer.
func (w *world) message(ctx context.Context, lease, session, message string) (*http.Response, error) {
	w.Helper()
	body, err := json.Marshal(map[string]string{"message": message})
	if err != nil {
		w.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/leases/"+lease+"/agents/chat/v1/messages",
		bytes.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	r.Header.Set("X-Sandbox-Session", session)
	return http.DefaultClient.Do(r)
}

// parts reads server-sent events.
type parts struct {
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (w *world) parts(resp *http.Response, err error) *parts {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(resp.Body)
		w.Fatalf("the agent answers %s: %s", resp.Status, why)
	}
	return &parts{resp.Body, bufio.NewScanner(resp.Body)}
}

func (p *parts) next() (answerPart, error) {
	for p.lines.Scan() {
		if data, ok := strings.CutPrefix(p.lines.Text(), "data: "); ok {
			var part answerPart
			return part, json.Unmarshal([]byte(data), &part)
		}
	}
	if err := p.lines.Err(); err != nil {
		return answerPart{}, err
	}
	return answerPart{}, io.EOF
}

// all returns the text of a whole answer.
func (p *parts) all() (string, error) {
	var said strings.Builder
	for {
		part, err := p.next()
		switch {
		case err != nil:
			return said.String(), err
		case part.Type == "done":
			return said.String(), nil
		case part.Type == "error":
			return said.String(), errors.New(part.Error)
		}
		said.WriteString(part.Text)
	}
}

// TestAnAgentServesSessionsThroughTheReconciler talks to the agent of the examples, on real Docker: by server-sent
// events and a WebSocket, in several sessions, after a stop of its sandbox and a kill of the reconciler. The ledger
// records each of its model calls for the lease, with the session.
func TestAnAgentServesSessionsThroughTheReconciler(t *testing.T) {
	t.Parallel()
	m := &talker{}
	host, port, subnet := serveModel(&world{T: t}, m)
	w := newWorld(t, "", func(c *reconciler.Config) {
		c.Docker.Gateway = gateways.Config{Hosts: []string{"model.test:" + host}}
	})
	w.environment("thinks", func(p *sandbox.PutEnvironment) {
		p.Network, p.Egress = sandbox.NetworkRestricted, &sandbox.Egress{PrivateCIDRs: []string{subnet}}
		p.SleepMode = sandbox.SleepStop
		p.SecretValues = map[string]sandbox.Secret{"key": "sk-none"}
		p.LLM = map[string]sandbox.LLMRoute{"main": {
			API: sandbox.LLMOpenAI, Upstream: "http://model.test:" + port, Credential: "key",
			Models: map[string]sandbox.LLMModel{"small": {Input: sandbox.USD, Output: 10 * sandbox.USD}},
		}}
	})
	l := w.acquire(agent(1), "thinks")
	w.chat(l.ID)
	say := func(session, message, want string) {
		t.Helper()
		got, err := w.parts(w.message(t.Context(), l.ID, session, message)).all()
		if err != nil || got != want {
			t.Errorf("to %q in %s the agent says %q and %v, want %q", message, session, got, err, want)
		}
	}
	say("game:1", "hello", "1: hello")
	say("game:1", "again", "3: again") // it remembers
	say("game:2", "hello", "1: hello")

	// The answer arrives while the model still writes it.
	release := m.hold()
	slow := w.parts(w.message(t.Context(), l.ID, "game:3", "slow"))
	if part, err := slow.next(); err != nil || part.Text != "1: " {
		t.Errorf("the first part is %+v, %v", part, err)
	}
	if s := w.lease(l.ID); s.Phase != sandbox.PhaseAwake {
		t.Errorf("the lease is %+v", s)
	}
	release()
	if rest, err := slow.all(); err != nil || rest != "slow" {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	w.talkLive(l.ID)

	// A request wakes the sandbox, and the agent starts again. It has forgotten its conversations.
	w.eventually("no connection keeps the sandbox awake", func() bool {
		_, err := w.service.Sleep(t.Context(), sandbox.LeaseRef{ID: l.ID})
		return err == nil
	})
	say("game:1", "awake", "1: awake")

	// The agent outlives the reconciler, but the current answer breaks off.
	release = m.hold()
	defer release()
	cut := w.parts(w.message(t.Context(), l.ID, "game:4", "cut"))
	if _, err := cut.next(); err != nil {
		t.Fatal(err)
	}
	w.kill()
	if rest, err := cut.all(); err == nil {
		t.Errorf("an answer that broke off says that it ended, with %q", rest)
	}
	release()
	w.start()
	say("game:1", "still", "3: still")
	list, err := w.service.Agents(t.Context(), sandbox.AgentFilter{State: sandbox.AgentRunning})
	if err != nil || len(list) != 1 || list[0].ID != l.ID+"/chat" {
		t.Errorf("the agents are %+v, %v", list, err)
	}
	w.checkSessions(m, l, map[string]int{"game:1": 4, "game:2": 1, "game:3": 1, "game:5": 2})

	if _, err := w.service.Release(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	resp, err := w.message(t.Context(), l.ID, "game:1", "anybody?")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusConflict {
		t.Errorf("after the end of its lease, the agent answers %s", resp.Status)
	}
}

// talkLive sends two messages of one session over a WebSocket.
func (w *world) talkLive(lease string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, w.url+"/v1/leases/"+lease+"/agents/chat/v1/live", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + w.token}, "X-Sandbox-Session": {"game:5"}},
	})
	if err != nil {
		w.Fatalf("%v, %+v", err, resp)
	}
	defer conn.CloseNow() //nolint:errcheck // the test is over
	for _, talk := range []struct{ message, want string }{{"one", "1: one"}, {"two", "3: two"}} {
		if err := wsjson.Write(ctx, conn, map[string]string{"message": talk.message}); err != nil {
			w.Fatal(err)
		}
		said := ""
		for part := (answerPart{}); part.Type != "done"; said += part.Text {
			part = answerPart{}
			if err := wsjson.Read(ctx, conn, &part); err != nil || part.Type == "error" {
				w.Fatalf("after %q, %+v and %v arrive", said, part, err)
			}
		}
		if said != talk.want {
			w.Errorf("live, the agent says %q, want %q", said, talk.want)
		}
	}
}

// checkSessions waits until the completed calls of each session are recorded, and compares them with the model's own
// count.
func (w *world) checkSessions(m *talker, l sandbox.Lease, want map[string]int) {
	w.Helper()
	for session, n := range want {
		w.eventually("the calls of "+session+" are recorded", func() bool {
			calls, err := w.service.ListLLMCalls(w.Context(), sandbox.LLMCallQuery{LeaseID: l.ID, Session: session})
			if err != nil {
				w.Fatal(err)
			}
			for _, c := range calls {
				if c.Outcome == sandbox.LLMRunning {
					return false
				}
				if c.Session != session || c.AgentDID != l.AgentDID || c.Tokens.Output != 5 || c.Cost != 60*sandbox.USD/1e6 {
					w.Fatalf("a call is %+v", c)
				}
			}
			return len(calls) == n
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.headers {
		if h.Get("X-Sandbox-Lease") != l.ID || !strings.HasPrefix(h.Get("X-Sandbox-Session"), "game:") ||
			h.Get("Authorization") != "Bearer sk-none" {
			w.Errorf("the model was called with %v", h)
		}
	}
}
