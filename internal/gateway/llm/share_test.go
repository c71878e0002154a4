package llm_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func box(id string) *llm.Caller {
	return &llm.Caller{Sandbox: id, Agent: "did:plc:ann", Lease: "lease-" + id, Generation: 1}
}

func TestASandboxCannotTakeTheCallsOfOthers(t *testing.T) {
	t.Parallel()
	const most = 128
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, secure))
	w.out.serve(hang)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	for range most {
		running.Go(func() { w.do(w.request(ctx, chatPath, chatBody)) })
	}
	eventually(t, "all calls run", func() bool { return w.broker.Status().Running == most })
	a := w.post(chatPath, chatBody)
	if a.status != http.StatusServiceUnavailable || a.reason() != "busy" || a.header.Get("Retry-After") != "1" {
		t.Errorf("the next call: %+v", a)
	}
	w.out.serve(say(`{` + chatUsage + `}`))
	w.caller.Store(box("box-2"))
	if a := w.post(chatPath, chatBody); a.status != http.StatusOK {
		t.Errorf("the call of another sandbox: %+v", a)
	}
	w.caller.Store(box("box-1"))
	cancel()
	running.Wait()
	eventually(t, "the sandbox can call again", func() bool { return w.post(chatPath, chatBody).status == http.StatusOK })
}

// stuck is a client that reads nothing.
type stuck struct {
	header http.Header
	left   <-chan struct{}
}

func (s stuck) Header() http.Header              { return s.header }
func (s stuck) WriteHeader(int)                  {}
func (s stuck) Write([]byte) (int, error)        { <-s.left; return 0, context.Canceled }
func (s stuck) FlushError() error                { return nil }
func (s stuck) SetReadDeadline(time.Time) error  { return nil }
func (s stuck) SetWriteDeadline(time.Time) error { return nil }

func TestTheGatewayKeepsLittleOfAnAnswerThatNoClientReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(config(sandbox.LLMOpenAI, secure))
	sent := make(chan int, 1)
	w.out.serve(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		control := http.NewResponseController(rw)
		line := []byte(event(`{"choices":[{"delta":{"content":"%s"}}]}`, strings.Repeat("x", 32<<10)) + "\n\n")
		total := 0
		for total < 8<<20 { // a gateway that takes everything does not hold the test up
			_ = control.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := rw.Write(line); err != nil {
				break
			}
			total += len(line)
		}
		sent <- total
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := w.request(ctx, chatPath, chatStream)
	var call sync.WaitGroup
	call.Go(func() {
		defer func() { _ = recover() }() // the call breaks its answer off
		w.broker.Serve(stuck{http.Header{}, ctx.Done()}, r, *w.caller.Load())
	})
	if total := <-sent; total > 512<<10 {
		t.Errorf("the gateway took %d bytes", total)
	}
	cancel()
	call.Wait()
}

// slow is a body that does not arrive.
type slow struct {
	began *atomic.Bool
	left  <-chan struct{}
}

func (s slow) Read([]byte) (int, error) { s.began.Store(true); <-s.left; return 0, io.EOF }

func TestASandboxCannotTakeTheMemoryOfOthers(t *testing.T) {
	t.Parallel()
	large := `{"model":"m","messages":[` + strings.Repeat(" ", 15<<20) + `],"max_tokens":100}`
	for _, name := range []string{"bodies that do not arrive", "calls without an answer"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.set(config(sandbox.LLMOpenAI, secure))
			w.out.serve(func(rw http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Sandbox-Lease") == "lease-box-1" {
					hang(rw, r)
				} else {
					say(`{`+chatUsage+`}`)(rw, r)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			var began atomic.Bool
			var running sync.WaitGroup
			for range 8 {
				r := w.request(ctx, chatPath, large)
				if name == "bodies that do not arrive" {
					r.Body = io.NopCloser(slow{&began, ctx.Done()})
				}
				running.Go(func() { w.broker.Serve(stuck{http.Header{}, ctx.Done()}, r, *box("box-1")) })
			}
			eventually(t, "the sandbox takes memory", func() bool { return began.Load() || w.broker.Status().Running > 0 })
			w.caller.Store(box("box-2"))
			// A call that waits for the memory of the others gets no answer in time.
			if a := w.post(chatPath, large); a.status != http.StatusOK {
				t.Errorf("another sandbox gets %+v", a)
			}
			cancel()
			running.Wait()
		})
	}
}
