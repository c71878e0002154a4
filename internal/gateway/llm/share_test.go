package llm_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
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
