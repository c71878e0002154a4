package sdk_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func unavailable(s *suite) {
	proxy := s.world.proxy
	busy := proxy.add(fault{method: "POST", path: "/v1/leases", times: 3, status: 503})
	lease := s.lease("did:plc:ada")
	s.equal("the requests that were refused", proxy.count(busy), 3)
	full := proxy.add(fault{method: "POST", path: "/exec", times: 2, status: 429})
	r, _ := s.run(args{"lease": lease, "command": "echo x | tee -a once"})
	s.equal("stdout", r["stdout"], "x\n")
	s.equal("the requests that were refused", proxy.count(full), 2)
	s.equal("the runs", s.read(lease, "once"), "x\n")

	// A retry could start a process again that has exited. Only a refusal says that the request did nothing.
	busy = proxy.add(fault{method: "POST", path: "/processes", times: 2, status: 503})
	s.must("start_process", args{"lease": lease, "name": "relay", "command": "sleep 1000"})
	s.equal("the requests that were refused", proxy.count(busy), 2)
	gateway := proxy.add(fault{method: "POST", path: "/processes", times: 2, status: 502})
	s.fails(sandbox.UnknownOutcome, "", "start_process", args{"lease": lease, "name": "other", "command": "sleep 1000"})
	s.equal("the requests to a broken gateway", proxy.count(gateway), 1)

	down := proxy.add(fault{method: "GET", path: "/v1/environments/", times: 100, status: 503})
	f := s.fails(sandbox.Unavailable, "", "call", args{"method": "get_environment", "args": []any{s.environment}})
	s.equal("retryable", f.Retryable, true)
	s.equal("the attempts", proxy.count(down), 8)
	proxy.clear()
}

func lostAnswers(s *suite) {
	proxy := s.world.proxy
	lost := func(path string) *fault {
		return proxy.add(fault{method: "POST", path: path, times: 1, lost: true})
	}
	seen := []*fault{lost("/v1/leases"), lost("/exec"), lost("/v1/conditions")}
	lease := s.lease("did:plc:ada")
	r, _ := s.run(args{"lease": lease, "command": "echo x >>once; cat once"})
	s.equal("stdout", r["stdout"], "x\n")
	s.equal("the runs", s.read(lease, "once"), "x\n")

	run := lost("/v1/runs")
	s.fails(sandbox.UnknownOutcome, "", "run_once", args{"environment": s.environment, "command": "true"})
	start := lost("/processes")
	s.fails(sandbox.UnknownOutcome, "", "start_process", args{"lease": lease, "name": "relay", "command": "sleep 1000"})
	s.equal("the processes", len(s.must("processes", args{"lease": lease}).([]any)), 1)

	receipt := s.must("condition", args{"type": "game.finished", "environment": s.environment}).(map[string]any)
	s.equal("duplicate", receipt["duplicate"], true)
	s.equal("what it ended", receipt["matched"], 1.0)
	for i, f := range append(seen, run, start) {
		if proxy.count(f) != 1 {
			s.Errorf("fault %d lost no answer", i)
		}
	}
}

func cutStreams(s *suite) {
	proxy := s.world.proxy
	lease := s.lease("did:plc:ada")
	stdout := proxy.add(fault{method: "GET", path: "/stdout", times: 4, after: 7})
	stderr := proxy.add(fault{method: "GET", path: "/stderr", times: 2, after: 0})
	r, lines := s.run(args{"lease": lease,
		"command": "echo x >>once; for i in 1 2 3 4 5 6; do echo line $i; sleep 0.1; done; echo last >&2"})
	var want []string
	for i := range 6 {
		want = append(want, fmt.Sprintf("stdout line %d", i+1))
	}
	s.equal("the lines", slices.DeleteFunc(lines, func(l string) bool { return l == "stderr last" }), want)
	s.equal("stderr", r["stderr"], "last\n")
	s.equal("the runs", s.read(lease, "once"), "x\n")
	s.equal("the cuts", []int{proxy.count(stdout), proxy.count(stderr)}, []int{4, 2})

	cut := proxy.add(fault{method: "GET", path: "/v1/events", times: 2, after: 1000})
	all := s.must("events", args{"lease": lease, "count": 5}).([]any)
	proxy.clear()
	s.equal("the events", s.must("events", args{"lease": lease, "count": 5}), any(all))
	s.equal("the cuts", proxy.count(cut), 2)
	file := proxy.add(fault{method: "GET", path: "/files", times: 1, after: 1})
	s.fails(sandbox.Unavailable, "", "read_file", args{"lease": lease, "path": "once"})
	s.equal("the cuts", proxy.count(file), 1)
	proxy.clear()
}

func restart(s *suite) {
	lease := s.lease("did:plc:ada")
	var lines []string
	restarted := false
	answer, failed := s.driver.do("run", args{"lease": lease,
		"command": "echo x >>once; for i in 1 2 3 4 5 6 7 8 9; do echo line $i; echo bad $i >&2; sleep 0.3; done; exit 5"},
		func(stream, text string) {
			if lines = append(lines, stream+" "+text); text == "line 3" && !restarted {
				restarted = true
				s.world.kill()
				s.world.start()
			}
		})
	if failed != nil || !restarted {
		s.Fatalf("restarted %t: %+v", restarted, failed)
	}
	s.equal("the exit code", answer.(map[string]any)["exit_code"], 5.0)
	for _, stream := range []string{"stdout line", "stderr bad"} {
		var got, want []string
		for _, l := range lines {
			if strings.HasPrefix(l, stream) {
				got = append(got, l)
			}
		}
		for i := range 9 {
			want = append(want, fmt.Sprintf("%s %d", stream, i+1))
		}
		s.equal(stream, got, want)
	}
	s.equal("the runs", s.read(lease, "once"), "x\n")
}
