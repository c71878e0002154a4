package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// page is a request for a page by a user who has logged in and may see it.
type page struct {
	*Dashboard
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context // of what the page asks the service
	caller  api.Caller
	service service.Service // limited to the caller's environments
	login   string          // the log-in's id
}

// frame is what the layout shows around a page.
type frame struct {
	Title   string
	Section string // of the navigation
	Caller  string // "" without a log-in
	CSRF    string
	// Live is where the page hears that it has changed, "" for nowhere.
	Live string
	// Refresh is how often the page is read again, in seconds, 0 for never.
	Refresh int
	Page    any

	now       time.Time
	dashboard *Dashboard
}

// page adds a page that is shown to who may do the operation of the API. A POST must carry the log-in's CSRF token.
func (d *Dashboard) page(pattern, operation string, show func(p *page) error) {
	d.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		id, r, caller, ok := d.enter(w, r)
		if !ok {
			return
		}
		csrf := csrfOf(id)
		err := caller.Permit(operation)
		if err == nil && r.Method == http.MethodPost {
			err = checkCSRF(r, csrf)
		}
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
			defer cancel()
			err = show(&page{Dashboard: d, w: w, r: r, ctx: ctx, caller: caller, service: caller.Service(), login: id})
		}
		if err != nil {
			d.failFor(w, r, caller, csrf, err)
		}
	})
}

// show sends the page.
func (p *page) show(name, title, section, live string, data any) error {
	f := &frame{Title: title, Section: section, Live: live, Page: data}
	return p.frame(name, f)
}

func (p *page) frame(name string, f *frame) error {
	f.Caller, f.CSRF = p.caller.Name(), csrfOf(p.login)
	return p.render(p.w, http.StatusOK, name, f)
}

// may reports whether the caller may do an operation of the API.
func (p *page) may(operation string) bool { return p.caller.Permit(operation) == nil }

// query returns a parameter of the page's address.
func (p *page) query(name string) string { return p.r.URL.Query().Get(name) }

// number is query for a whole number, 0 where there is none. Errors: Invalid.
func (p *page) number(name string) (int64, error) {
	text := p.query(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, sandbox.InvalidFields("the page's address", []sandbox.Field{{Name: name, Problem: "must be a whole number"}})
	}
	return n, nil
}

// choice is an environment that a page may be narrowed to.
type choice struct {
	ID     string
	Chosen bool
}

// scope is which environments a page is about: one, or all of those there are where the caller may see all.
type scope struct {
	Environment string
	Choices     []choice
	// All: the caller may see all environments together.
	All bool
}

// scope returns what a page is about. A caller who is limited to environments and has named none gets the first
// that there is; where there is none at all, ok is false and the page is to say so.
func (p *page) scope() (s scope, ok bool, err error) {
	s.Environment, s.All = p.query("environment"), p.caller.Allows("")
	list, err := p.service.ListEnvironments(p.ctx)
	if err != nil {
		return s, false, err
	}
	if s.Environment == "" && !s.All && len(list) > 0 {
		s.Environment = list[0].ID
	}
	for _, e := range list {
		s.Choices = append(s.Choices, choice{e.ID, e.ID == s.Environment})
	}
	if s.Environment != "" && !slices.ContainsFunc(s.Choices, func(c choice) bool { return c.Chosen }) {
		s.Choices = append(s.Choices, choice{s.Environment, true}) // one that was destroyed still has leases and costs
	}
	return s, s.All || s.Environment != "", nil
}

// address returns the path of a page with parameters, those that are "" left out.
func address(path string, parameters ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			q.Set(parameters[i], parameters[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// liveAddress is where a page that was read as of an event hears of what changes after it.
func (p *page) liveAddress(environment, lease string) (string, error) {
	info, err := p.service.Ledger(p.ctx)
	if err != nil {
		return "", err
	}
	return address(Root+"live", "environment", environment, "lease", lease, "after", strconv.FormatInt(info.LastEventID, 10)), nil
}
