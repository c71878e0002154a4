package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// mark is added to every part of a request. No page may contain it as markup, or as the end of an attribute.
const mark = `<mark-"'>`

var marked = regexp.MustCompile(`<mark-|mark-"|mark-&#34;'`)

// FuzzPages requests pages and sends forms that no browser would, logged in and not.
func FuzzPages(f *testing.F) {
	w := newWorld(f)
	l, exec := w.game()
	b := w.loggedIn(w.token("ops", sandbox.ScopeAdmin))
	for page := range pages {
		path, query, _ := strings.Cut(w.pathOf(page, l, exec), "?")
		f.Add(true, true, path, query, "", "")
	}
	for page := range doings {
		path := w.pathOf(page, l, exec)
		f.Add(true, true, path, "", "", "")
		f.Add(true, false, path, "", "generation=1", "")
		f.Add(true, false, path, "", "generation=-9223372036854775809&x=%zz", "")
	}
	files := w.pathOf("{lease}/files", l, exec)
	for _, path := range []string{"/workspace/..", "/workspace/%00", "/data/%ff%3Cb%3E", "x"} {
		f.Add(true, true, files, "path="+path+"&after="+path, "", "")
	}
	for _, query := range []string{
		"status=all&environment=catan-7&agent=x&after=y", "before=-1&month=9999-99", "month=2026-08&environment=%00",
		"next=//evil.example&next=/ui/", "after=%ff&kind=orphan", "a;b&=&%",
		"q=%25&sort=-id&type=all&state=running", "q=_&sort=-last&type=hosts&host=a.example&port=0&run=1",
	} {
		for _, path := range []string{
			"/ui/leases", "/ui/agents", "/ui/costs", "/ui/drift", "/ui/egress", "/ui/llm-calls", "/ui/webhook", "/ui/webhook/message", "/ui/login",
			"/ui/", "/ui/audit", "/ui/audit/confinement", "/ui/tokens", "/ui/environments/catan-7/allow",
			"/ui/environments/catan-7/end",
		} {
			f.Add(true, true, path, query, "", "")
		}
	}
	f.Add(false, false, "/ui/login", "", "token=sbl_x&next=/ui/leases?status=all", "sandbox_login=x")
	f.Add(false, true, "/ui/../ui//leases/%2e%2e/%3Cb%3E",
		"%3Cscript%3E=1", "", "sandbox_login=\"x; __Host-sandbox_login=y")
	f.Add(true, false, "/ui/logout", "", "csrf=x", "")
	f.Fuzz(func(t *testing.T, in, get bool, path, query, form, cookie string) {
		u, err := url.Parse("http://reconciler.example" + path + "?" + query)
		if err != nil || u.Host != "reconciler.example" || u.Path == "/ui/live" { // /ui/live does not end
			return
		}
		values := u.Query()
		for name := range values {
			values[name][0] += mark
		}
		if len(values) > 0 && len(query)%2 == 0 { // the other half is requested unchanged
			u.RawQuery = values.Encode()
		}
		method, body := http.MethodGet, ""
		if !get {
			method, body = http.MethodPost, form
			if in {
				body = "csrf=" + url.QueryEscape(b.csrf) + "&" + form
			}
			body += "&" + url.Values{"mark": {mark}}.Encode()
		}
		r, err := http.NewRequestWithContext(t.Context(), method, u.String(), strings.NewReader(body))
		if err != nil {
			return
		}
		r.RemoteAddr, r.Host = "127.0.0.1:1", "reconciler.example"
		r.Header = http.Header{
			"Content-Type":   {"application/x-www-form-urlencoded"},
			"Sec-Fetch-Site": {"same-origin"},
			"Cookie":         {cookie + mark},
		}
		if in {
			r.Header["Cookie"] = []string{"sandbox_login=" + b.cookies["sandbox_login"] + "; " + cookie}
		}
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r)
		checkAnswer(t, answer, fmt.Sprintf("%s %s with %q", method, u, body))
	})
}

// checkAnswer checks the properties of every answer.
func checkAnswer(t *testing.T, a *httptest.ResponseRecorder, what string) {
	t.Helper()
	h := a.Header()
	if a.Code >= 500 || a.Code < 200 {
		t.Errorf("%s is answered with %d: %s", what, a.Code, a.Body)
	}
	if found := marked.FindString(a.Body.String()); found != "" && strings.HasPrefix(h.Get("Content-Type"), "text/html") {
		t.Errorf("%s: the page holds %q:\n%s", what, found, a.Body)
	}
	if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Request-Id") == "" {
		t.Errorf("%s has the headers %v", what, h)
	}
	// http.ServeMux sends redirects, without the headers of pages.
	isPage := strings.HasPrefix(h.Get("Content-Type"), "text/html") && a.Code != http.StatusTemporaryRedirect
	if isPage && (!strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") ||
		h.Get("X-Frame-Options") != "DENY" || h.Get("Cache-Control") == "") {
		t.Errorf("%s has the headers %v", what, h)
	}
	path, _, _ := strings.Cut(h.Get("Location"), "?")
	to, err := url.Parse(path)
	if err != nil || to.Scheme != "" || to.Host != "" || to.User != nil || strings.HasPrefix(path, "//") ||
		strings.ContainsAny(path, "\\\r\n") {
		t.Errorf("%s leads to %q", what, h.Get("Location"))
	}
}
