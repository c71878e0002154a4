package dashboard

import (
	"context"
	"embed"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/feed"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/login"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/oidc"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// pageTimeout limits the service calls of a page.
	pageTimeout = 30 * time.Second
	// maxForm limits the size of a form, in bytes; the longest field is a token.
	maxForm = 16 << 10
	// DefaultMaxStreams is how many pages may follow the ledger at the same time. Further pages get no live updates.
	DefaultMaxStreams = 2000
)

//go:embed templates static
var files embed.FS

// Config configures a dashboard.
type Config struct {
	// Gate authenticates browsers.
	Gate api.Gate
	// Provider logs users in, in addition to tokens; nil means none. The Gate's handler must have it as its Users.
	Provider *oidc.Provider
	// Events is followed once for all pages. The Gate decides which page may see an event.
	Events feed.Events
	// Now is the clock; nil means time.Now.
	Now    func() time.Time
	Logger *slog.Logger // nil means none
	// MaxStreams is how many pages may follow the ledger at the same time. Zero means DefaultMaxStreams.
	MaxStreams int
	// KeepAlive is the interval of keep-alive messages to pages, and of checking their logins. Zero means 15 s.
	KeepAlive time.Duration
	// StreamTimeout is how long a page may leave a message unread before it is disconnected. Zero means 30 s.
	StreamTimeout time.Duration
}

// Dashboard serves the pages. The caller must call Run for live updates.
type Dashboard struct {
	gate          api.Gate
	logins        login.Logins
	feed          *feed.Feed
	now           func() time.Time
	log           *slog.Logger
	mux           *http.ServeMux
	origins       *http.CrossOriginProtection
	templates     map[string]*template.Template
	assets        map[string]asset
	reference     func() (asset, error) // the page of the API reference
	month         monthCost
	keepAlive     time.Duration
	streamTimeout time.Duration
	undeclared    []string // patterns of pages without an operation or a target
}

var _ http.Handler = (*Dashboard)(nil)

// New returns a dashboard. It fails if a page or an action lacks an operation of the API or a target.
func New(c Config) (*Dashboard, error) {
	d := &Dashboard{
		gate: c.Gate, now: c.Now, log: c.Logger, mux: http.NewServeMux(),
		origins: http.NewCrossOriginProtection(), keepAlive: c.KeepAlive, streamTimeout: c.StreamTimeout,
	}
	if d.now == nil {
		d.now = time.Now
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.keepAlive == 0 {
		d.keepAlive = 15 * time.Second
	}
	if d.streamTimeout == 0 {
		d.streamTimeout = 30 * time.Second
	}
	if c.MaxStreams == 0 {
		c.MaxStreams = DefaultMaxStreams
	}
	d.logins = login.Logins{
		Gate: c.Gate, Provider: c.Provider, Now: d.now, Logger: d.log, Fail: d.fail,
		Show: func(w http.ResponseWriter, status int, template, title string, data any) error {
			return d.render(w, status, template, &frame{Title: title, Page: data})
		},
	}
	d.feed = feed.New(c.Events, c.MaxStreams, d.log)
	var err error
	if d.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if d.templates, err = d.parse(); err != nil {
		return nil, err
	}
	d.reference = sync.OnceValues(func() (asset, error) {
		document, err := c.Gate.Document()
		if err != nil {
			return asset{}, err
		}
		return d.renderReference(document)
	})
	d.route()
	if len(d.undeclared) > 0 {
		return nil, fmt.Errorf("pages without an operation of the API or a target: %s",
			strings.Join(d.undeclared, ", "))
	}
	return d, nil
}

// Mount adds the dashboard below link.Root to a handler, the API reference, and a redirect from / to Root.
func (d *Dashboard) Mount(h api.Handler) {
	h.Mount(link.Root, d)
	h.Mount("GET "+referencePath, http.HandlerFunc(d.showReference))
	h.Mount("GET /{$}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secureHeaders(w.Header())
		http.Redirect(w, r, link.Root, http.StatusSeeOther)
	}))
}

// Run sends live updates to pages until ctx ends.
func (d *Dashboard) Run(ctx context.Context) { d.feed.Run(ctx) }

// route adds every page with its operation of the API, which a token must permit, and its target.
func (d *Dashboard) route() {
	d.mux.HandleFunc("GET /ui/static/{file}", d.static)
	d.logins.Mount(d.mux)

	d.page("GET /ui/{$}", "list-environments", nothing, environments)
	d.page("GET /ui/environments/{id}", "get-environment", itsEnvironment, environment)
	for _, c := range changes {
		d.page("GET /ui/environments/{id}/"+c.Name, c.operation, itsEnvironment, c.ask)
		d.page("POST /ui/environments/{id}/"+c.Name, c.operation, itsEnvironment, c.carryOut)
	}
	d.page("GET /ui/environments/{id}/allow", "put-environment", itsEnvironment, askAllow)
	d.page("POST /ui/environments/{id}/allow", "put-environment", itsEnvironment, allow)
	d.page("GET /ui/leases", "list-leases", narrowed, leases)
	d.page("GET /ui/leases/{id}", "get-lease", itsLease, lease)
	d.page("GET /ui/leases/{id}/usage", "lease-usage", itsLease, usage)
	d.page("GET /ui/leases/{id}/commands", "list-execs", itsLease, commands)
	d.page("GET /ui/leases/{id}/execs/{exec}", "get-exec", itsLease, command)
	d.page("GET /ui/leases/{id}/processes", "list-processes", itsLease, processes)
	d.page("GET /ui/leases/{id}/processes/{process}", "read-process", itsLease, process)
	d.page("GET /ui/leases/{id}/sessions", "list-sessions", itsLease, sessions)
	d.page("GET /ui/leases/{id}/sessions/{session}", "list-session-events", itsLease, session)
	d.page("GET /ui/leases/{id}/files", "list-files", itsLease, showFiles)
	d.page("GET /ui/leases/{id}/calls", "list-llm-calls", itsLease, callsOfLease)
	for _, a := range actions {
		d.page("GET /ui/leases/{id}/"+a.Name, a.operation, itsLease, a.ask)
		d.page("POST /ui/leases/{id}/"+a.Name, a.operation, itsLease, a.carryOut)
	}
	d.page("GET /ui/costs", "get-costs", narrowed, costs)
	d.page("GET /ui/drift", "list-drift", narrowed, drift)
	d.page("GET /ui/egress", "list-events", narrowed, egress)
	d.page("GET /ui/agents", "list-agents", narrowed, agents)
	d.page("GET /ui/llm-calls", "list-llm-calls", narrowed, llmCalls)
	d.page("GET /ui/webhook", "list-deliveries", narrowed, deliveries)
	d.page("GET /ui/webhook/message", "list-deliveries", namedEnvironment, delivery)
	d.page("GET /ui/audit", "list-events", narrowed, audit)
	d.page("GET /ui/audit/confinement", "audit", narrowed, confinement)
	d.page("GET /ui/tokens", "list-tokens", allTokens, showTokens)
	d.page("GET /ui/tokens/{id}/revoke", "revoke-token", allTokens, askRevoke)
	d.page("POST /ui/tokens/{id}/revoke", "revoke-token", allTokens, revoke)
	d.page("GET /ui/live", "list-events", followed, live)
	d.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, sandbox.Errorf(sandbox.NotFound, "page %s does not exist", r.URL.Path))
	})
}

// ServeHTTP implements http.Handler. It rejects cross-site requests first.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secureHeaders(w.Header())
	if err := d.origins.Check(r); err != nil {
		d.fail(w, r, sandbox.Errorf(sandbox.Forbidden,
			"the request came from another site and was rejected: open the page here and try again"))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	d.mux.ServeHTTP(w, r)
}

// secureHeaders sets the headers of every response. They forbid inline styles and scripts, resources of other sites,
// and frames.
func secureHeaders(h http.Header) {
	h.Set("Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "+
			"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // without an origin, a form would look like one of another site
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()")
	h.Set("Cache-Control", "no-store") // pages are personal; static files override this
}
