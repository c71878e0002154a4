package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// BenchmarkStreams keeps 200 streams of a model open at the same time through the real program. Each has delivered 100
// lines. It reports the memory that the program has gained.
func BenchmarkStreams(b *testing.B) {
	const streams, lines = 200, 100
	goOn := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range lines {
			_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"`+strings.Repeat("word ", 50)+"\"}}]}\n\n")
		}
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`+"\n\ndata: [DONE]\n\n")
	}))
	defer upstream.Close()
	root, err := os.MkdirTemp("", "gw") // the path of a socket must be short
	must(b, err)
	defer os.RemoveAll(root)
	path := build(b)
	for b.Loop() {
		g := launch(b, path, root)
		client := &http.Client{Transport: g.serveModel(b, root, upstream.URL, "sk-bench")}
		before := g.memory(b)
		var open, all sync.WaitGroup
		for range streams {
			open.Add(1)
			all.Go(func() {
				res, err := client.Post("http://127.0.0.1:3128/llm/main/v1/chat/completions", "application/json",
					strings.NewReader(`{"model":"m","stream":true,"messages":[]}`))
				if err != nil {
					b.Error(err)
					open.Done()
					return
				}
				defer res.Body.Close()
				in := bufio.NewReader(res.Body)
				for range 2 * lines {
					if _, err := in.ReadString('\n'); err != nil {
						b.Errorf("a stream is answered with %s and breaks off: %v", res.Status, err)
						break
					}
				}
				open.Done()
				_, _ = io.Copy(io.Discard, in)
			})
		}
		open.Wait()
		b.ReportMetric(float64(g.memory(b)-before)/1024, "added-MiB")
		close(goOn)
		all.Wait()
		goOn = make(chan struct{})
		g.kill(b)
	}
}

// memory returns the program's resident memory in KiB.
func (p *program) memory(b *testing.B) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	must(b, err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	must(b, err)
	return kib
}
