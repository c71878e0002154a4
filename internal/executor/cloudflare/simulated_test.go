package cloudflare_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// inProcess lets a server answer without a network, so that time can be simulated.
type inProcess struct{ server http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w, asked := httptest.NewRecorder(), r.Clone(r.Context())
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	p.server.ServeHTTP(w, asked)
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

// simulated simulates the Workers of an account, with the parts of their sandboxes that a reconciler sees.
type simulated struct {
	mu    sync.Mutex                       // guards what follows
	boxes map[string]map[string]*simulatee // by host of the Worker, and id
	asked map[string]int                   // by operation
	// environments are the environments that share a Worker, by its host.
	environments map[string][]cloudflare.Environment
}

// simulatee is a simulated sandbox.
type simulatee struct {
	settings         map[string]any
	boot, cpu        int64
	started, stopped time.Time
	cause            string
}

func newSimulated() *simulated {
	return &simulated{
		boxes: map[string]map[string]*simulatee{}, asked: map[string]int{},
		environments: map[string][]cloudflare.Environment{},
	}
}

// RoundTrip implements http.RoundTripper.
func (s *simulated) RoundTrip(r *http.Request) (*http.Response, error) {
	body := []byte{}
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	status, said := s.answer(r, body)
	s.mu.Unlock()
	text, err := json.Marshal(said)
	return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, err
}

var ofSandbox = regexp.MustCompile(`/sandboxes/([a-z2-7]{26})(?:/([a-z]+))?$`)

// answer answers like worker/src/index.ts. The caller holds mu.
func (s *simulated) answer(r *http.Request, body []byte) (int, any) {
	all := s.boxes[r.URL.Host]
	if all == nil {
		all = map[string]*simulatee{}
		s.boxes[r.URL.Host] = all
	}
	if r.URL.Path == "/v1/instance" {
		s.asked["who it is"]++
		image := scaleSpec().Image
		return http.StatusOK, map[string]any{"instance": scaleAccount, "image": image, "prepared": image}
	}
	if _, id, is := strings.Cut(r.URL.Path, "/environments"); is {
		return s.answerOfEnvironments(r, strings.TrimPrefix(id, "/"), body)
	}
	found := ofSandbox.FindStringSubmatch(r.URL.Path)
	if found == nil {
		return s.answerForAll(r, all)
	}
	id, verb := found[1], found[2]
	s.asked[r.Method+" "+verb]++
	box := all[id]
	if r.Method == http.MethodPut && box == nil {
		box = &simulatee{}
		if json.Unmarshal(body, &box.settings) != nil {
			return http.StatusBadRequest, nil
		}
		box.start()
		all[id] = box
	}
	switch {
	case r.Method == http.MethodDelete:
		delete(all, id)
		return http.StatusOK, map[string]any{}
	case box == nil:
		return http.StatusNotFound, map[string]any{"code": sandbox.NotFound, "reason": sandbox.ReasonSandboxNotFound}
	case verb == "sleep" && box.stopped.IsZero():
		box.stop("sleep")
	case verb == "wake" && !box.stopped.IsZero():
		box.start()
	case verb == "usage" && box.stopped.IsZero():
		box.cpu += 1000
		return http.StatusOK, map[string]any{"cpu_ns": box.cpu * 1000, "memory_bytes": 1 << 20, "pids": 2}
	case verb == "periods":
		return http.StatusOK, map[string]any{"periods": []any{box.period()}}
	}
	return http.StatusOK, box.view()
}

func (s *simulated) answerOfEnvironments(r *http.Request, id string, body []byte) (int, any) {
	s.asked["environments"]++
	if r.Method == http.MethodPut {
		env := cloudflare.Environment{ID: id}
		if json.Unmarshal(body, &env) != nil {
			return http.StatusBadRequest, nil
		}
		s.environments[r.URL.Host] = append(s.environments[r.URL.Host], env)
	}
	return http.StatusOK, map[string]any{"environments": s.environments[r.URL.Host], "closed": false, "since": 1}
}

func (s *simulated) answerForAll(r *http.Request, all map[string]*simulatee) (int, any) {
	if r.Method != http.MethodGet || r.URL.Path[len(r.URL.Path)-len("/sandboxes"):] != "/sandboxes" {
		return http.StatusOK, map[string]any{"environments": []string{}}
	}
	s.asked["list"]++
	list := []any{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, map[string]any{"id": id, "view": all[id].view()})
	}
	return http.StatusOK, map[string]any{"sandboxes": list, "more": false}
}

func (b *simulatee) start() {
	b.boot, b.cpu, b.started, b.stopped, b.cause = b.boot+1, 0, time.Now(), time.Time{}, ""
}

func (b *simulatee) stop(cause string) { b.stopped, b.cause = time.Now(), cause }

func (b *simulatee) period() map[string]any {
	p := map[string]any{"incarnation": b.boot, "started_at": b.started.UnixMilli(), "cpu_us": b.cpu}
	const alarm = 5 * time.Minute
	if ran := time.Since(b.started).Truncate(alarm); ran > 0 && b.stopped.IsZero() { // each alarm has read its usage
		p["cpu_us"], p["read_at"] = b.cpu+ran.Milliseconds(), b.started.Add(ran).UnixMilli()
		p["memory_bytes"], p["pids"] = 1<<20, 2
	}
	if !b.stopped.IsZero() {
		p["stopped_at"], p["cause"] = b.stopped.UnixMilli(), b.cause
	}
	return p
}

func (b *simulatee) view() map[string]any {
	state := sandbox.StateRunning
	if !b.stopped.IsZero() {
		state = sandbox.StateStopped
	}
	return map[string]any{
		"settings": b.settings, "state": state, "created_at": b.started.UnixMilli(), "used_at": b.started.UnixMilli(),
		"period": b.period(),
	}
}

// forget returns the recorded requests, and clears them.
func (s *simulated) forget() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = map[string]int{}
	return asked
}

// crash ends n running containers.
func (s *simulated) crash(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.boxes {
		for _, b := range all {
			if n > 0 && b.stopped.IsZero() {
				b.stop("crash")
				n--
			}
		}
	}
}

// count returns the number of sandboxes.
func (s *simulated) count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.boxes {
		n += len(all)
	}
	return n
}
