package dashboard_test

import (
	"encoding/json"
	"html"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard"
)

// described is the part of an OpenAPI document that the reference must show.
type described struct {
	Paths map[string]map[string]struct {
		OperationID          string
		Summary, Description string
		Parameters           []struct{ Name, Description string }
		RequestBody          struct{ Content map[string]any }
		Responses            map[string]struct{ Description string }
	}
	Components struct {
		Schemas map[string]struct {
			Properties map[string]struct {
				Description string
				Enum        []string
				Pattern     string
			}
		}
	}
}

var (
	referenceID   = regexp.MustCompile(` id="([^"]+)"`)
	referenceLink = regexp.MustCompile(` href="#([^"]+)"`)
	refInDocument = regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]+)"`)
	tagOfMarkup   = regexp.MustCompile(`<[^>]*>`)
)

// readable returns the text of HTML, without markup and backquotes.
func readable(markup string) string {
	return strings.ReplaceAll(html.UnescapeString(tagOfMarkup.ReplaceAllString(markup, "")), "`", "")
}

// partOf returns the article with an id.
func partOf(t *testing.T, page, id string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, `<article class="card" id="`+id+`"`)
	part, _, ended := strings.Cut(rest, "</article>")
	if !found || !ended {
		t.Errorf("the page has no part %s", id)
	}
	return part
}

func TestTheReferenceShowsEveryOperationAndSchema(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	document, page := w.browser().get("/openapi.json").body, w.browser().get("/docs").body
	var d described
	if err := json.Unmarshal([]byte(document), &d); err != nil {
		t.Fatal(err)
	}
	operations := 0
	for path, methods := range d.Paths {
		for method, op := range methods {
			operations++
			part := readable(partOf(t, page, op.OperationID))
			wanted := []string{op.Summary, op.Description, strings.ToUpper(method), path, "curl "}
			for _, p := range op.Parameters {
				wanted = append(wanted, p.Name, p.Description)
			}
			wanted = slices.AppendSeq(wanted, maps.Keys(op.RequestBody.Content))
			for status, r := range op.Responses {
				wanted = append(wanted, strings.Replace(status, "default", "error", 1), r.Description)
			}
			for _, text := range wanted {
				if !strings.Contains(part, strings.ReplaceAll(text, "`", "")) {
					t.Errorf("%s does not show %q:\n%s", op.OperationID, text, part)
				}
			}
		}
	}
	for name, schema := range d.Components.Schemas {
		part := readable(partOf(t, page, "schema-"+name))
		for field, s := range schema.Properties {
			for _, text := range append([]string{field, s.Description, s.Pattern}, s.Enum...) {
				if !strings.Contains(part, strings.ReplaceAll(text, "`", "")) {
					t.Errorf("schema %s does not show %q of %s", name, text, field)
				}
			}
		}
	}
	if operations < 60 || len(d.Components.Schemas) < 100 {
		t.Errorf("the document has only %d operations and %d schemas", operations, len(d.Components.Schemas))
	}
	if n := strings.Count(page, "<article"); n != operations+len(d.Components.Schemas) {
		t.Errorf("the page has %d parts for %d operations and %d schemas", n, operations, len(d.Components.Schemas))
	}

	ids := map[string]int{}
	for _, found := range referenceID.FindAllStringSubmatch(page, -1) {
		if ids[found[1]]++; ids[found[1]] > 1 {
			t.Errorf("the id %s stands twice", found[1])
		}
	}
	links := map[string]bool{}
	for _, found := range referenceLink.FindAllStringSubmatch(page, -1) {
		if links[found[1]] = true; ids[found[1]] == 0 {
			t.Errorf("a link leads to #%s, which the page does not have", found[1])
		}
	}
	for _, found := range refInDocument.FindAllStringSubmatch(document, -1) {
		if !links["schema-"+found[1]] {
			t.Errorf("no link leads to the schema %s", found[1])
		}
	}
}

func TestTheReferenceNeedsNoLogInAndIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.browser().get("/docs")
	tag := a.Header.Get("ETag")
	if a.StatusCode != http.StatusOK || a.Header.Get("Cache-Control") != "no-cache" || tag == "" ||
		!strings.Contains(a.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self'") {
		t.Errorf("it is answered with %d %v", a.StatusCode, a.Header)
	}
	for _, forbidden := range []string{"<style", " style=", "<script", " onclick", "unsafe"} {
		if strings.Contains(a.body, forbidden) {
			t.Errorf("the page has %s in it", forbidden)
		}
	}
	if a := w.browser().get("/docs", "If-None-Match", tag); a.StatusCode != http.StatusNotModified || a.body != "" {
		t.Errorf("a kept page is answered with %d", a.StatusCode)
	}
	later := newWorld(t, func(_ *api.Config, d *dashboard.Config) {
		now := d.Now
		d.Now = func() time.Time { return now().Add(time.Hour) }
	})
	if other := later.browser().get("/docs").Header.Get("ETag"); other != tag {
		t.Errorf("another reconciler of the version has %s, not %s", other, tag)
	}
}

func TestInChromiumTheReferenceIsAccessibleAndLooksRight(t *testing.T) {
	t.Parallel()
	needsBrowser(t)
	axe := axeSource(t)
	c := newWorld(t).startChromium()
	for _, look := range []struct {
		name, scheme string
		width        int64
	}{{"light", "light", 1280}, {"dark", "dark", 1280}, {"phone", "light", 390}} {
		c.theme(look.scheme, look.width)
		c.open("/docs")
		c.shootScreen("reference-start-" + look.name)
		c.open("/docs#acquire-lease")
		c.wantNoSidewaysScroll("reference-" + look.name)
		c.shootScreen("reference-" + look.name)
		// axe takes 14 s for the page, so it gets one part of each kind.
		c.run(chromedp.Evaluate(`for (const part of document.querySelectorAll("article"))
			if (!["acquire-lease", "write-files", "put-environment", "delete-environment", "livez", "schema-Problem"].includes(part.id))
				part.remove()`, nil))
		c.run(chromedp.Evaluate(axe, nil))
		c.wantAccessible("{}", "reference-"+look.name)
	}
	c.theme("light", 1280)
	c.open("/docs")
	var at string
	c.run(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab),
		chromedp.KeyEvent(kb.Enter), chromedp.Evaluate("location.hash", &at))
	if !strings.HasPrefix(at, "#tag-") && at != "#start" {
		t.Errorf("by keys alone the contents lead to %q", at)
	}
	if got := c.text("#acquire-lease .route"); got != "POST /v1/leases" {
		t.Errorf("the route is shown as %q", got)
	}
}

// shootScreen saves a picture of the screen.
func (c *chromium) shootScreen(name string) {
	c.Helper()
	var png []byte
	c.run(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(c.shots, name+".png"), png, 0o644); err != nil {
		c.Fatal(err)
	}
}
