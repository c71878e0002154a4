package llm_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// serveUntilKilled is the process that TestAKilledGatewayLosesNoCall kills. The policy of the real program refuses
// loopback addresses, such as the test's upstream. So this program connects in its own way.
func serveUntilKilled(dir string) {
	upstream := os.Getenv("LLM_TEST_UPSTREAM")
	d := &egress.Dialer{
		Resolver: always{},
		Connect: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", upstream)
		},
	}
	b, err := llm.Open(llm.Options{Dir: dir, Dialer: d, NewID: func() string { return "call-1" }})
	if err == nil {
		err = b.Set(config(sandbox.LLMOpenAI, plain))
	}
	var l net.Listener
	if err == nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err == nil {
		fmt.Println(l.Addr())
		server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				b.Serve(w, r, llm.Caller{Sandbox: "box-1", Lease: "lease-1"})
			})}
		err = server.Serve(l)
	}
	fmt.Println("it failed:", err)
	os.Exit(1)
}

// always resolves every name to one address.
type always struct{}

// LookupNetIP implements egress.Resolver.
func (always) LookupNetIP(_ context.Context, network, _ string) ([]netip.Addr, error) {
	if network == "ip6" {
		return nil, nil
	}
	return []netip.Addr{netip.MustParseAddr("203.0.114.2")}, nil
}

func TestAKilledGatewayLosesNoCall(t *testing.T) {
	t.Parallel()
	for name, answered := range map[string]bool{"before the answer": false, "in the answer": true} {
		w := newWorld(t)
		w.close()
		got := make(chan struct{})
		w.out.serve(func(rw http.ResponseWriter, r *http.Request) {
			if answered {
				stream(event(`{"choices":[{}]}`))(rw, r)
			}
			close(got)
			hang(rw, r)
		})
		program := exec.CommandContext(t.Context(), os.Args[0])
		program.Env = append(os.Environ(), "LLM_TEST_KILLED="+w.dir,
			"LLM_TEST_UPSTREAM="+w.out.servers[netip.MustParseAddrPort("203.0.114.2:80")])
		out, err := program.StdoutPipe()
		must(t, err)
		must(t, program.Start())
		address, err := bufio.NewReader(out).ReadString('\n')
		must(t, err)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		done := make(chan error, 1)
		go func() {
			res, err := client.Post("http://"+strings.TrimSpace(address)+chatPath, "application/json", strings.NewReader(chatStream))
			if err == nil {
				err = res.Body.Close()
			}
			done <- err
		}()
		<-got
		must(t, program.Process.Kill())
		_ = program.Wait() // it was killed
		t.Logf("%s: the client saw: %v", name, <-done)
		w.open()
		list := w.entries()
		if len(list) != 2 || list[0].Call.Outcome != sandbox.LLMRunning || list[1].Call.ID != "call-1" ||
			list[1].Call.Outcome != sandbox.LLMInterrupted || !list[1].Call.Unknown || list[1].Call.Cost != list[0].Call.Cost ||
			list[1].Call.Cost == 0 {
			t.Errorf("%s: the journal has %+v", name, list)
		}
		w.close()
	}
}
