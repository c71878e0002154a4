package dashboard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// frame is the data of the layout.
type frame struct {
	Title   string
	Section string // of the navigation
	Caller  string // "" without a login
	CSRF    string
	// Tokens means that the caller may see the page of tokens.
	Tokens bool
	// Live is the URL of live updates, "" for none.
	Live string
	// Refresh is the reload interval in seconds, 0 for none.
	Refresh int
	Page    any

	now       time.Time
	dashboard *Dashboard
}

// At returns a moment, for templates.
func (f *frame) At(t time.Time) format.Moment { return format.Moment{At: t.UTC(), Now: f.now} }

// Now is the server's time in milliseconds. Browsers use it instead of their own clock.
func (f *frame) Now() int64 { return f.now.UnixMilli() }

// NavIs reports whether the page belongs to a section of the navigation.
func (f *frame) NavIs(section string) bool { return f.Section == section }

// functions are the functions of templates.
func (d *Dashboard) functions() template.FuncMap {
	return template.FuncMap{
		"asset":          d.assetURL,
		"leasePath":      link.Lease,
		"environmentURL": link.Environment,
		"in":             link.To,
		"pieces":         format.Pieces,
		"usd":            format.USD,
		"bytes":          format.Bytes,
		"span":           func(d sandbox.Duration) string { return format.Span(d.D()) },
		"words":          func(v any) string { return format.Words(fmt.Sprint(v)) },
		"command":        format.CommandLine,
		"data":           format.Data,
		"tone":           format.Tone,
		"sleeps":         format.Sleeps,
		"cores":          format.Cores,
		"asleep":         func(c sandbox.LeaseCounts) int64 { return c.Asleep + c.Stopped },
		"count":          func(n any) string { return format.Count(reflect.ValueOf(n).Int()) },
		"outcome":        format.Outcome,
		"eventTone":      format.EventTone,
		"add":            func(a, b int64) int64 { return a + b },
		"ports":          format.Ports,
		"join":           strings.Join,
		"mib":            func(n int64) string { return format.Bytes(n << 20) },
		"seconds":        format.Seconds,
	}
}

// asset is a static file.
type asset struct {
	body    []byte
	version string // hash of the content
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

// assetURL returns the URL of a static file. The URL changes with the content, so browsers may cache the file.
func (d *Dashboard) assetURL(name string) string {
	return link.Root + "static/" + name + "?v=" + d.assets[name].version
}

func (d *Dashboard) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	a, ok := d.assets[name]
	if !ok {
		d.fail(w, r, sandbox.Errorf(sandbox.NotFound, "file %s does not exist", r.URL.Path))
		return
	}
	if r.URL.Query().Get("v") == a.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.body))
}

// parse parses the templates: one per page, with the layout.
func (d *Dashboard) parse() (map[string]*template.Template, error) {
	layout, err := template.New("layout").Funcs(d.functions()).
		ParseFS(files, "templates/layout.html", "templates/parts.html")
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

// render sends a page. It executes the whole template first, so that a failure gives an error page.
func (d *Dashboard) render(w http.ResponseWriter, status int, name string, f *frame) error {
	f.now = d.now()
	page, err := d.execute(name, f)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page) // the browser may have disconnected
	return nil
}

// execute returns the HTML of a page.
func (d *Dashboard) execute(name string, f *frame) ([]byte, error) {
	f.dashboard = d
	var b bytes.Buffer
	if err := d.templates[name].ExecuteTemplate(&b, "layout", f); err != nil {
		return nil, fmt.Errorf("page %s: %w", name, err)
	}
	return []byte(format.Printable(b.String())), nil
}

// fail sends the page of an error.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, err error) {
	d.failFor(w, r, api.Caller{}, "", err)
}

func (d *Dashboard) failFor(w http.ResponseWriter, r *http.Request, caller api.Caller, csrf string, err error) {
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		err = sandbox.Errorf(sandbox.Invalid, "the form is larger than %d bytes", tooLarge.Limit)
	}
	status, header, title, detail := d.gate.Fail(r, err)
	for name, values := range header {
		if name != "Www-Authenticate" { // the browser would ask for a password
			w.Header()[name] = values
		}
	}
	f := &frame{Title: title, Caller: caller.Name(), CSRF: csrf, Page: detail}
	if err := d.render(w, status, "error", f); err != nil {
		d.log.Error("dashboard: rendering an error page", "error", err)
		http.Error(w, title, status)
	}
}
