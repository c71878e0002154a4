package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/login"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// page is a request for a page by a logged-in user who may see it.
type page struct {
	*Dashboard
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context // for calls of the service
	caller  api.Caller
	service contents // limited to the target of the page
	login   string   // login id
	scope   scope    // the environments of the page
}

// contents is the service as pages use it. api.Caller lists the environments of the caller.
type contents interface {
	service.Leases
	service.Execs
	service.Sessions
	service.Files
	service.Health
	service.Conditions
	service.Reports
	GetEnvironment(ctx context.Context, id string) (sandbox.Environment, error)
	PutEnvironment(ctx context.Context, p sandbox.PutEnvironment) (sandbox.Environment, error)
	ReopenEnvironment(ctx context.Context, id string) (sandbox.Environment, error)
	ListProcesses(ctx context.Context, leaseID string) ([]sandbox.Process, error)
	GetProcess(ctx context.Context, r sandbox.ProcessRef) (sandbox.Process, error)
	ReadProcess(ctx context.Context, r sandbox.LogRequest) (sandbox.ProcessLog, error)
	Agents(ctx context.Context, f sandbox.AgentFilter) ([]sandbox.Agent, error)
	Audit(ctx context.Context, r sandbox.AuditRequest) (sandbox.AuditReport, error)
}

// touches returns the target of a page before it is shown.
type touches func(p *page) (rights.Target, error)

// page adds a page for callers that have access to its operation and its target. A POST must hold the CSRF token of the
// login.
func (d *Dashboard) page(pattern, operation string, touches touches, show func(p *page) error) {
	if touches == nil || !d.gate.Knows(operation) {
		d.undeclared = append(d.undeclared, pattern)
	}
	d.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		id, r, caller, ok := d.logins.Enter(w, r)
		if !ok {
			return
		}
		csrf := login.CSRF(id)
		err := caller.Permit(operation)
		if err == nil && r.Method == http.MethodPost {
			err = login.CheckCSRF(r, csrf)
		}
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
			defer cancel()
			err = (&page{Dashboard: d, w: w, r: r, ctx: ctx, caller: caller, login: id}).enter(touches, show)
		}
		if err != nil {
			d.failFor(w, r, caller, csrf, err)
		}
	})
}

// enter shows the page if the caller may touch its target.
func (p *page) enter(touches touches, show func(p *page) error) error {
	target, err := touches(p)
	if err != nil {
		return err
	}
	if p.service, err = p.caller.Enter(p.ctx, target); err != nil {
		return err
	}
	return show(p)
}

// nothing is the target of pages that filter by the rights of the caller.
func nothing(*page) (rights.Target, error) { return rights.Nothing(), nil }

// itsEnvironment is the environment in the page's path.
func itsEnvironment(p *page) (rights.Target, error) {
	return rights.Environment(p.r.PathValue("id")), nil
}

// itsLease is the lease in the page's path.
func itsLease(p *page) (rights.Target, error) { return rights.Lease(p.r.PathValue("id")), nil }

// namedEnvironment is the environment in the page's query, or all environments.
func namedEnvironment(p *page) (rights.Target, error) {
	return rights.Environment(p.query("environment")), nil
}

// narrowed is the scope of the page. A caller without environments touches nothing.
func narrowed(p *page) (rights.Target, error) {
	var err error
	if p.scope, err = p.findScope(); err != nil || !p.scope.Any {
		return rights.Nothing(), err
	}
	return rights.Environment(p.scope.Environment), nil
}

// show sends the page.
func (p *page) show(name, title, section, live string, data any) error {
	f := &frame{Title: title, Section: section, Live: live, Page: data}
	return p.frame(name, f)
}

func (p *page) frame(name string, f *frame) error {
	f.Caller, f.CSRF = p.caller.Name(), login.CSRF(p.login)
	f.Tokens = p.may("list-tokens") && p.caller.Allows("")
	return p.render(p.w, http.StatusOK, name, f)
}

// may reports whether the caller may use an operation of the API.
func (p *page) may(operation string) bool { return p.caller.Permit(operation) == nil }

// query returns a query parameter of the page.
func (p *page) query(name string) string { return p.r.URL.Query().Get(name) }

// orDefault returns the query parameter, or a default.
func (p *page) orDefault(name, otherwise string) string {
	return cmp.Or(p.query(name), otherwise)
}

// number returns a query parameter as a whole number, 0 if missing. Errors: Invalid.
func (p *page) number(name string) (int64, error) {
	text := p.query(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, sandbox.InvalidFields("the page's URL",
			[]sandbox.Field{{Name: name, Problem: "must be a whole number"}})
	}
	return n, nil
}

// choice is an option of the environment filter.
type choice struct {
	ID     string
	Chosen bool
}

// scope is the subject of a page: one environment, or all environments for an unlimited caller.
type scope struct {
	Environment string
	Choices     []choice
	// All means that the caller may see all environments together.
	All bool
	// Any means that the page has a subject.
	Any bool
}

// findScope returns the scope of a page. A caller limited to environments gets the first one by default. Without any
// environment, Any is false and the page says so.
func (p *page) findScope() (s scope, err error) {
	s.Environment, s.All = p.query("environment"), p.caller.Allows("")
	list, err := p.caller.Environments(p.ctx)
	if err != nil {
		return s, err
	}
	if s.Environment == "" && !s.All && len(list) > 0 {
		s.Environment = list[0].ID
	}
	for _, e := range list {
		s.Choices = append(s.Choices, choice{e.ID, e.ID == s.Environment})
	}
	if s.Environment != "" && !slices.ContainsFunc(s.Choices, func(c choice) bool { return c.Chosen }) {
		s.Choices = append(s.Choices, choice{s.Environment, true}) // a destroyed environment still has leases and costs
	}
	s.Any = s.All || s.Environment != ""
	return s, nil
}

// liveAddress returns the URL of live updates after an event.
func (p *page) liveAddress(environment, lease string) (string, error) {
	info, err := p.service.Ledger(p.ctx)
	if err != nil {
		return "", err
	}
	return link.To(link.Root+"live", "environment", environment, "lease", lease,
		"after", strconv.FormatInt(info.LastEventID, 10)), nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
