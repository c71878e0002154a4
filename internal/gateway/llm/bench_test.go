package llm_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// BenchmarkLatency compares calls through the gateway with direct ones, alternating in one run, by their medians: a
// whole answer, and the first line of a stream. The upstream waits for 20 ms, far less than a model needs.
func BenchmarkLatency(b *testing.B) {
	w := newWorld(b)
	w.set(config(sandbox.LLMOpenAI, plain))
	line := event(`{"choices":[{"delta":{"content":"word"}}]}`)
	w.out.serve(func(rw http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // a model thinks
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"stream":true`) {
			stream(line, line, event(`{"choices":[],%s}`, chatUsage), event("[DONE]"))(rw, r)
			return
		}
		say(`{"choices":[{"message":{"content":"word"}}],`+chatUsage+`}`)(rw, r)
	})
	local := w.out.servers[netip.MustParseAddrPort("203.0.114.2:80")]
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", local)
	}}
	defer transport.CloseIdleConnections()
	direct := &http.Client{Transport: transport}
	clients := []struct {
		*http.Client
		address string
	}{{direct, plain + "/v1/chat/completions"}, {w.front.Client(), w.front.URL + chatPath}}
	var whole, first [2][]time.Duration
	for b.Loop() {
		for i, c := range clients {
			all, _ := took(b, c.Client, c.address, chatBody)
			_, line := took(b, c.Client, c.address, chatStream)
			whole[i], first[i] = append(whole[i], all), append(first[i], line)
		}
	}
	report := func(what string, of [2][]time.Duration) {
		b.ReportMetric(median(of[0]), what+"-direct-ms")
		b.ReportMetric(median(of[1])-median(of[0]), what+"-added-ms")
	}
	report("whole", whole)
	report("first-line", first)
}

// took returns the duration of a call, and the time until the first line.
func took(b *testing.B, c *http.Client, address, body string) (all, first time.Duration) {
	b.Helper()
	began := time.Now()
	res, err := c.Post(address, "application/json", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	_, _ = in.ReadString('\n') // a whole answer has no line end
	first = time.Since(began)
	if _, err := io.Copy(io.Discard, in); err != nil || res.StatusCode != http.StatusOK {
		b.Fatal(res.StatusCode, err)
	}
	return time.Since(began), first
}

// median returns the median in milliseconds.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2]) / float64(time.Millisecond)
}
