package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Root is the path below which the dashboard is served.
const Root = "/ui/"

const (
	// pageTimeout bounds how long the service may take for what a page shows.
	pageTimeout = 30 * time.Second
	// maxForm bounds a form, in bytes; the longest field is a token.
	maxForm = 16 << 10
	// DefaultMaxStreams is how many pages may follow the ledger at once; others are read without.
	DefaultMaxStreams = 2000
)

//go:embed templates static
var files embed.FS

// Config says what a dashboard shows, and to whom.
type Config struct {
	// Gate lets browsers in.
	Gate api.Gate
	// Events are followed for all pages together; which page may know of which, the Gate says.
	Events Events
	// Now is the clock; nil means time.Now.
	Now    func() time.Time
	Logger *slog.Logger // nil means none
	// MaxStreams is how many pages may follow the ledger at once. Zero means DefaultMaxStreams.
	MaxStreams int
	// KeepAlive is how long a page that follows may hear nothing; as often it is asked whether it still may.
	// Zero means 15 s.
	KeepAlive time.Duration
	// StreamTimeout is how long a page may leave what it was told unread before it is cut off. Zero means 30 s.
	StreamTimeout time.Duration
}

// Dashboard serves the pages. Who makes it runs it, so that pages follow the ledger.
type Dashboard struct {
	gate          api.Gate
	feed          *feed
	now           func() time.Time
	log           *slog.Logger
	mux           *http.ServeMux
	origins       *http.CrossOriginProtection
	templates     map[string]*template.Template
	assets        map[string]asset
	month         monthCost
	keepAlive     time.Duration
	streamTimeout time.Duration
}

var _ http.Handler = (*Dashboard)(nil)

// New makes a dashboard.
func New(c Config) (*Dashboard, error) {
	d := &Dashboard{
		gate: c.Gate, now: c.Now, log: c.Logger, mux: http.NewServeMux(), origins: http.NewCrossOriginProtection(),
		keepAlive: c.KeepAlive, streamTimeout: c.StreamTimeout,
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
	d.feed = newFeed(c.Events, c.MaxStreams, d.log)
	var err error
	if d.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if d.templates, err = d.parse(); err != nil {
		return nil, err
	}
	d.route()
	return d, nil
}

// Mount has a handler serve the dashboard below Root, and lead there from its root.
func (d *Dashboard) Mount(h api.Handler) {
	h.Mount(Root, d)
	h.Mount("GET /{$}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secureHeaders(w.Header())
		http.Redirect(w, r, Root, http.StatusSeeOther)
	}))
}

// Run tells pages of what happens, until ctx ends.
func (d *Dashboard) Run(ctx context.Context) { d.feed.run(ctx) }

// route adds every page, each with the operation of the API that a token must be permitted to see it.
func (d *Dashboard) route() {
	d.mux.HandleFunc("GET /ui/static/{file}", d.static)
	d.mux.HandleFunc("GET /ui/login", d.showLogin)
	d.mux.HandleFunc("POST /ui/login", d.logIn)
	d.mux.HandleFunc("POST /ui/logout", d.logOut)

	d.page("GET /ui/{$}", "list-environments", environments)
	d.page("GET /ui/environments/{id}", "get-environment", environment)
	d.page("GET /ui/leases", "list-leases", leases)
	d.page("GET /ui/leases/{id}", "get-lease", lease)
	d.page("GET /ui/leases/{id}/usage", "lease-usage", usage)
	d.page("GET /ui/leases/{id}/execs/{exec}", "get-exec", command)
	for _, a := range actions {
		d.page("GET /ui/leases/{id}/"+a.Name, a.operation, a.ask)
		d.page("POST /ui/leases/{id}/"+a.Name, a.operation, a.carryOut)
	}
	d.page("GET /ui/costs", "get-costs", costs)
	d.page("GET /ui/drift", "list-drift", drift)
	d.page("GET /ui/egress", "list-events", egress)
	d.page("GET /ui/webhook", "list-deliveries", deliveries)
	d.page("GET /ui/webhook/message", "list-deliveries", delivery)
	d.page("GET /ui/live", "list-events", live)
	d.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, sandbox.Errorf(sandbox.NotFound, "there is no page %s", r.URL.Path))
	})
}

// ServeHTTP implements http.Handler. What other sites have a browser send is refused before all else.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secureHeaders(w.Header())
	if err := d.origins.Check(r); err != nil {
		d.fail(w, r, sandbox.Errorf(sandbox.Forbidden, "this request came from another site, and was refused: open the page here and try again"))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	d.mux.ServeHTTP(w, r)
}

// secureHeaders sets what every answer carries. Nothing inline is allowed, neither styles nor scripts, and
// nothing from elsewhere; no site may show a page in a frame.
func secureHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // a form that tells no origin at all could not be told from another site's
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()")
	h.Set("Cache-Control", "no-store") // pages are for one person; static files say otherwise
}

// asset is a static file.
type asset struct {
	body    []byte
	version string // of its content
}

func loadAssets() (map[string]asset, error) {
	all := map[string]asset{}
	return all, fs.WalkDir(files, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := files.ReadFile(name)
		sum := sha256.Sum256(body)
		all[path.Base(name)] = asset{body, hex.EncodeToString(sum[:6])}
		return err
	})
}

// assetURL returns where a static file is; it changes with its content, so that browsers may keep it.
func (d *Dashboard) assetURL(name string) string {
	return Root + "static/" + name + "?v=" + d.assets[name].version
}

func (d *Dashboard) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	a, ok := d.assets[name]
	if !ok {
		d.fail(w, r, sandbox.Errorf(sandbox.NotFound, "there is no file %s", r.URL.Path))
		return
	}
	if r.URL.Query().Get("v") == a.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.body))
}

// parse reads the templates: one for each page, with the layout around it.
func (d *Dashboard) parse() (map[string]*template.Template, error) {
	layout, err := template.New("layout").Funcs(d.functions()).ParseFS(files, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "templates/*.html")
	all := map[string]*template.Template{}
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".html")
		if page == "layout" || page == "parts" {
			continue
		}
		clone, cloneErr := layout.Clone()
		if cloneErr != nil {
			return nil, cloneErr
		}
		if all[page], err = clone.ParseFS(files, name); err != nil {
			return nil, err
		}
	}
	return all, err
}

// render sends a page made of a template. It is made whole before a byte is sent: what fails is an error page.
func (d *Dashboard) render(w http.ResponseWriter, status int, name string, f *frame) error {
	f.now, f.dashboard = d.now(), d
	var b bytes.Buffer
	if err := d.templates[name].ExecuteTemplate(&b, "layout", f); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, printable(b.String())) // a browser that has gone needs no answer
	return nil
}

// fail answers with an error's page.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, err error) {
	d.failFor(w, r, api.Caller{}, "", err)
}

func (d *Dashboard) failFor(w http.ResponseWriter, r *http.Request, caller api.Caller, csrf string, err error) {
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		err = sandbox.Errorf(sandbox.Invalid, "the form is larger than %d bytes", tooLarge.Limit)
	}
	status, header, title, detail := d.gate.Fail(r, err)
	for name, values := range header {
		if name != "Www-Authenticate" { // a browser would ask for a password
			w.Header()[name] = values
		}
	}
	f := &frame{Title: title, Caller: caller.Name(), CSRF: csrf, Page: detail}
	if err := d.render(w, status, "error", f); err != nil {
		d.log.Error("dashboard: making an error page", "error", err)
		http.Error(w, title, status)
	}
}
