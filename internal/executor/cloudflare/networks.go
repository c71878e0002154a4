package cloudflare

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// caFile is where a container finds the certificate authority that signs for every host, because the Worker terminates
// TLS (developers.cloudflare.com/containers/configuration/outbound-traffic, read 2026-11).
const caFile = "/etc/cloudflare/certs/cloudflare-containers-ca.crt"

// caVariables tell programs the path of caFile: OpenSSL and its users, Go, curl, Python's requests and pip, Node.js,
// git, the AWS tools and cargo.
var caVariables = []string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
	"AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO",
}

// networksHold is how long the restricted environments of a Worker are cached: another process may provision more.
// Provisioning by this process clears the cache.
const networksHold = time.Minute

// networks are the environments of a Worker whose networks are restricted.
type networks struct {
	environments []string
	listed       time.Time
}

// onNetwork returns a request about the restricted network of an environment, as worker/src/index.ts lists them.
func onNetwork(ref driver.EnvironmentRef, method, rest, what string) request {
	path := "/v1/instances/" + url.PathEscape(ref.Instance) + "/ledgers/" + url.PathEscape(ref.LedgerID) + "/networks"
	if ref.EnvironmentID != "" {
		path += "/" + url.PathEscape(ref.EnvironmentID)
	}
	return request{method: method, path: path + rest, what: "environment " + ref.EnvironmentID + ": " + what}
}

// SetRules sets what the restricted sandboxes of an environment may reach. Running sandboxes follow the new rules after
// at most two seconds.
func (w *Worker) SetRules(ctx context.Context, ref driver.EnvironmentRef, rules sandbox.Egress) error {
	r := onNetwork(ref, http.MethodPut, "", "set what its sandboxes may reach")
	r.body = rules
	return w.call(ctx, r, nil)
}

// Rules returns the rules that SetRules has set, or nil.
func (w *Worker) Rules(ctx context.Context, ref driver.EnvironmentRef) (*sandbox.Egress, error) {
	var said struct {
		Egress *sandbox.Egress `json:"egress"`
	}
	err := w.call(ctx, onNetwork(ref, http.MethodGet, "", "read what its sandboxes may reach"), &said)
	return said.Egress, err
}

// Networks returns the environments of a ledger that have rules or a log.
func (w *Worker) Networks(ctx context.Context, instance, ledgerID string) ([]string, error) {
	var said struct {
		Environments []string `json:"environments"`
	}
	r := onNetwork(driver.EnvironmentRef{LedgerID: ledgerID, Instance: instance}, http.MethodGet, "", "")
	r.what = "list the restricted networks of ledger " + ledgerID
	err := w.call(ctx, r, &said)
	return said.Environments, err
}

// line is a line of the log, in the form of worker/src/networks.ts. Times are in milliseconds.
type line struct {
	Run      int64                 `json:"run"`
	Line     int64                 `json:"line"`
	Kind     sandbox.EgressKind    `json:"kind"`
	At       int64                 `json:"at"`
	Sandbox  string                `json:"sandbox"`
	Agent    string                `json:"agent"`
	Attempt  string                `json:"attempt"`
	Protocol string                `json:"protocol"`
	Host     string                `json:"host"`
	Port     int                   `json:"port"`
	Verdict  sandbox.EgressVerdict `json:"verdict"`
	Reason   string                `json:"reason"`
	Detail   string                `json:"detail"`
	Sent     int64                 `json:"sent"`
	Received int64                 `json:"received"`
	Duration int64                 `json:"duration_ms"`
	Count    int64                 `json:"count"`
}

// Attempts returns a page of the oldest lines of an environment's log after a position.
func (w *Worker) Attempts(
	ctx context.Context, ref driver.EnvironmentRef, after sandbox.GatewayPosition,
) ([]sandbox.EgressRecord, error) {
	var said struct {
		Lines []line `json:"lines"`
	}
	rest := fmt.Sprintf("/attempts?run=%d&line=%d", after.Run, after.Line)
	r := onNetwork(ref, http.MethodGet, rest, "read what its sandboxes tried to reach")
	if err := w.call(ctx, r, &said); err != nil {
		return nil, err
	}
	records := make([]sandbox.EgressRecord, len(said.Lines))
	for i, l := range said.Lines {
		records[i] = sandbox.EgressRecord{
			GatewayPosition: sandbox.GatewayPosition{Run: l.Run, Line: l.Line},
			Kind:            l.Kind, SandboxID: l.Sandbox, Verdict: l.Verdict, Count: l.Count,
			EgressAttempt: sandbox.EgressAttempt{
				Attempt: l.Attempt, At: time.UnixMilli(l.At).UTC(), AgentDID: l.Agent, Protocol: l.Protocol,
				Host: l.Host, Port: l.Port, Reason: l.Reason, Detail: l.Detail, Ended: l.Kind == sandbox.EgressClosed,
				SentBytes: l.Sent, ReceivedBytes: l.Received, DurationMS: l.Duration,
			},
		}
	}
	return records, nil
}

// provisionNetwork sets the rules of a restricted environment. In other modes it changes nothing, so existing
// restricted sandboxes keep their rules.
func (e *Executor) provisionNetwork(
	ctx context.Context, w *Worker, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec,
) error {
	if spec.Network != sandbox.NetworkRestricted {
		return nil
	}
	if err := w.SetRules(ctx, ref, spec.EgressRules()); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.networks)
	return nil
}

// differentRules compares the rules of an environment with those of its Worker.
func (e *Executor) differentRules(
	ctx context.Context, p place, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec,
) ([]driver.Difference, error) {
	w, err := e.lineTo(p)
	if err != nil {
		return nil, err
	}
	found, err := w.Rules(ctx, ref)
	if err != nil {
		return nil, err
	}
	wanted := spec.EgressRules()
	if found != nil && found.Equal(wanted) {
		return nil, nil
	}
	return []driver.Difference{{Setting: "egress", Wanted: describeRules(&wanted), Found: describeRules(found)}}, nil
}

func describeRules(e *sandbox.Egress) string {
	if e == nil {
		return "no rules"
	}
	var all []string
	for _, r := range e.Allow {
		all = append(all, strings.TrimSpace(r.Host+" "+strings.Trim(fmt.Sprint(r.Ports), "[]")))
	}
	return cmp.Or(strings.Join(all, ", "), "nothing")
}

// EgressLogs implements driver.EgressLogger. A Worker that does not answer does not hide the others.
func (e *Executor) EgressLogs(ctx context.Context, ledgerID string) ([]driver.EnvironmentRef, error) {
	instance, err := e.Instance(ctx)
	if err != nil {
		return nil, err
	}
	sites, err := e.sitesOf(ctx, ledgerID)
	if err != nil {
		return nil, err
	}
	found := make([][]string, len(sites))
	numbers := make([]int, len(sites))
	for i := range numbers {
		numbers[i] = i
	}
	err = parallel.Each(listers, numbers, func(i *int) (err error) {
		found[*i], err = e.networksOf(ctx, sites[*i], instance, ledgerID)
		return err
	})
	var refs []driver.EnvironmentRef
	for _, environments := range found {
		for _, id := range environments {
			refs = append(refs, driver.EnvironmentRef{LedgerID: ledgerID, EnvironmentID: id, Instance: instance})
		}
	}
	return refs, err
}

// networksOf returns the environments of a site whose networks are restricted.
func (e *Executor) networksOf(ctx context.Context, s Site, instance, ledgerID string) ([]string, error) {
	if s.URL == "" { // no request ever reached it
		return nil, nil
	}
	now := e.cfg.Now()
	e.mu.Lock()
	known, ok := e.networks[s.Name]
	e.mu.Unlock()
	if ok && now.Before(known.listed.Add(networksHold)) {
		return known.environments, nil
	}
	w, err := e.line(s)
	if err != nil {
		return nil, err
	}
	environments, err := w.Networks(ctx, instance, ledgerID)
	if err != nil && sandbox.CodeOf(err) != sandbox.Invalid { // Invalid: a Worker of an earlier release, which has none
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.networks[s.Name] = networks{environments, now}
	return environments, nil
}

// EgressLog implements driver.EgressLogger.
func (e *Executor) EgressLog(
	ctx context.Context, ref driver.EnvironmentRef, after sandbox.GatewayPosition,
) ([]sandbox.EgressRecord, error) {
	d, err := e.find(ctx, ref.LedgerID, ref.EnvironmentID, ref.Instance)
	if sandbox.CodeOf(err) == sandbox.NotFound { // it was removed after it was listed
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d.Attempts(ctx, ref, after)
}
