package environments_test

import (
	"encoding/json"
	"net"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// tools compares the tool calls of an agent's latest session with names of tools. The session's recording has each call
// and each result.
func (w *world) tools(agent string, names ...string) {
	w.Helper()
	sessions, err := w.service.ListSessions(w.Context(), sandbox.SessionFilter{LeaseID: w.leaseID(agent)})
	must(w.T, err)
	latest := slices.MaxFunc(sessions, func(a, b sandbox.Session) int { return a.CreatedAt.Compare(b.CreatedAt) })
	events, err := w.service.ListSessionEvents(w.Context(), sandbox.SessionEventFilter{
		SessionRef: sandbox.SessionRef{LeaseID: latest.LeaseID, Generation: latest.Generation, ID: latest.ID}})
	must(w.T, err)
	var recorded strings.Builder
	for _, e := range events {
		if e.Type == sandbox.SessionError {
			recorded.Write(e.Data)
		}
	}
	var invoked, answered []string
	for line := range strings.Lines(recorded.String()) {
		var e struct {
			Event string `json:"event"`
			Tool  string `json:"tool"`
		}
		must(w.T, json.Unmarshal([]byte(line), &e))
		switch e.Event {
		case "tool.invoke":
			invoked = append(invoked, e.Tool)
		case "tool.result":
			answered = append(answered, e.Tool)
		}
	}
	if !slices.Equal(invoked, names) || !slices.Equal(answered, names) {
		w.Errorf("the session of %s has the calls %v and the results %v, not %v:\n%s", agent, invoked, answered, names, &recorded)
	}
	toldInTheGuide(w.T, recorded.String())
	w.console("/sessions/", "$lease", w.URL+"/v1/leases/"+latest.LeaseID, "$session", latest.ID, "$auth",
		"Authorization: Bearer "+w.Token)
}

// bill checks that the cost report has, for each agent, its sandbox and all of its model calls.
func (w *world) bill(agents ...string) {
	w.Helper()
	for _, agent := range agents {
		calls := w.model.callsOf(agent)
		var row sandbox.CostRow
		w.until("the bill of "+agent+" has all of its calls", func() bool {
			report, err := w.service.Costs(w.Context(),
				sandbox.CostQuery{EnvironmentID: w.name, AgentDID: agent, GroupBy: sandbox.CostByAgent})
			must(w.T, err)
			row = report.Total
			return row.LLM.Calls >= calls
		})
		if row.LLM.Calls != calls || row.LLM.Tokens.Input != calls*inputTokens || row.LLM.Tokens.Output != calls*outputTokens ||
			row.LLM.Cost <= 0 || row.AwakeSeconds <= 0 || row.Gross <= 0 || row.Total != row.Gross+row.LLM.Cost {
			w.Errorf("the bill of %s, who has called the model %d times, is %+v", agent, calls, row)
		}
	}
}

// watchRelay makes the host listen to the relay for an agent, in a container of the agents' image. log returns the
// container's log.
func (w *world) watchRelay(agent string) (log func() string) {
	w.Helper()
	from, err := base()
	must(w.T, err)
	_, port, err := net.SplitHostPort(w.relay.host)
	must(w.T, err)
	id := strings.TrimSpace(docker(w.T, "create", "--network", "host",
		"--env", "SANDBOX_RECONCILER_URL="+w.URL, "--env", "SANDBOX_RECONCILER_TOKEN="+w.Token, from,
		"python3", "-B", "/host/watch_relay.py", w.name, agent+"=/key.pem", "--did", w.relay.did,
		"--relay", "http://"+net.JoinHostPort(w.outside.address, port), "--timeout", patience))
	w.Cleanup(func() { docker(w.T, "rm", "--force", id) })
	for from, to := range map[string]string{
		"host/.": "/host", "image/.": "/image", w.key(agent): "/key.pem",
	} {
		docker(w.T, "cp", from, id+":"+to)
	}
	docker(w.T, "start", id)
	return func() string { return docker(w.T, "logs", id) }
}

// patience is the time limit of a turn that must succeed, in seconds, even on a slow machine.
const patience = "300"
