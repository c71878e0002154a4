package dashboard_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (w *world) write(l sandbox.Lease, path, content string) {
	w.Helper()
	err := w.Service.WriteFile(w.Context(), sandbox.LeaseRef{ID: l.ID}, sandbox.FileWrite{Path: path}, strings.NewReader(content))
	if err != nil {
		w.Fatal(err)
	}
}

// TestFilesAreShownAndNotChanged: directories come first, sizes are bounded, and names of files are escaped.
func TestFilesAreShownAndNotChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.environment("catan-7")
	l := w.acquire("did:plc:ann", "catan-7")
	const hostile = "\"><script>alert(1)<\\script>\xff\u202e.txt"
	w.write(l, "/workspace/a.txt", "roads 4\n<b>bold</b>")
	w.write(l, "/workspace/maps/board.json", "{}")
	w.write(l, "/workspace/"+hostile, "hostile")
	w.write(l, "/workspace/picture", "\x89PNG\x00")
	w.write(l, "/workspace/large", strings.Repeat("x", 300<<10))
	w.write(l, "/workspace/empty", "")
	b := w.loggedIn(w.token("ops", sandbox.ScopeLease))
	files := w.pathOf("{lease}/files", l, "")
	page := b.get(files)
	rows := rowNames(page.body)
	if len(rows) != 7 || rows[0] != "maps/" || !slices.Contains(rows, "a.txt") || strings.Contains(page.body, "<script>") ||
		strings.Contains(page.body, "\u202e") {
		t.Errorf("the directory lists %q", rows)
	}
	for path, want := range map[string]string{
		"/workspace/a.txt":      "roads 4\n&lt;b&gt;bold&lt;/b&gt;",
		"/workspace/" + hostile: "hostile</pre>",
		"/workspace/picture":    "The file is not text.",
		"/workspace/large":      "too large to show",
		"/workspace/empty":      "The file is empty.",
		"/workspace/maps":       "board.json",
		"/workspace/nothing":    "nothing",
		"/data":                 "The directory is empty.",
		"maps":                  "board.json",
	} {
		a := b.get(files + "?path=" + url.QueryEscape(path))
		if a.StatusCode != 200 || !strings.Contains(a.body, want) || strings.Contains(a.body, "<script>") {
			t.Errorf("%q is answered with %d, without %q: %s", path, a.StatusCode, want, a.body)
		}
	}
	for _, path := range []string{"/etc/passwd", "/workspace/../etc", "/workspace/\x00"} {
		if a := b.get(files + "?path=" + url.QueryEscape(path)); a.StatusCode != 422 {
			t.Errorf("%q is answered with %d", path, a.StatusCode)
		}
	}
	reader := w.loggedIn(w.token("reads", sandbox.ScopeRead))
	if a := reader.get(files); a.StatusCode != 403 || strings.Contains(reader.get(w.pathOf("{lease}", l, "")).body, "/files") {
		t.Errorf("a reader, who may not use sandboxes, is answered with %d", a.StatusCode)
	}
}

// TestLookingAtFilesWakesNothing: only the user wakes a sandbox.
func TestLookingAtFilesWakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.environment("catan-7")
	l := w.acquire("did:plc:ann", "catan-7")
	if _, err := w.Service.Sleep(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	b := w.loggedIn(w.token("ops", sandbox.ScopeLease))
	files := w.pathOf("{lease}/files", l, "")
	page := b.get(files)
	if now, err := w.Service.GetLease(t.Context(), l.ID); err != nil || now.Phase != sandbox.PhaseAsleep {
		t.Errorf("the sandbox is %s, %v", now.Phase, err)
	}
	if a := b.confirm(page.linkTo(t, "Wake it")); a.StatusCode != 303 {
		t.Errorf("waking it is answered with %d", a.StatusCode)
	}
	if a := b.get(files); !slices.Contains(rowNames(a.body), "config.json") {
		t.Errorf("awake it shows %s", textOf(a.body))
	}
	if _, err := w.Service.Release(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	if a := b.get(files); a.StatusCode != 200 || !strings.Contains(a.body, "its files are gone") {
		t.Errorf("once it has ended the page is %d %s", a.StatusCode, textOf(a.body))
	}
}

// TestTheLogOfAProcessIsShown: the page shows only the end, and wakes no sandbox.
func TestTheLogOfAProcessIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.environment("catan-7")
	l := w.acquire("did:plc:ann", "catan-7")
	for name, says := range map[string]string{"short": "<b>roads</b>", "long": strings.Repeat("x", 300<<10) + "the end"} {
		ref := sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: l.ID}, Name: name}
		_, err := w.Service.StartProcess(t.Context(), ref.LeaseRef,
			sandbox.ProcessSpec{Name: name, Command: []string{"echo", says}})
		if err == nil {
			_, err = w.Service.WaitProcess(t.Context(), sandbox.ProcessWait{ProcessRef: ref, Exit: true})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	list := w.pathOf("{lease}/processes", l, "")
	b := w.loggedIn(w.token("ops", sandbox.ScopeLease))
	page := b.get(list)
	short, long := b.get(page.linkTo(t, "short")), b.get(page.linkTo(t, "long"))
	if short.StatusCode != 200 || !strings.Contains(short.body, "&lt;b&gt;roads&lt;/b&gt;") ||
		strings.Contains(short.body, "Only the end") || !strings.Contains(textOf(short.body), "--follow") {
		t.Errorf("the short log is %d %s", short.StatusCode, short.body)
	}
	_, log, _ := strings.Cut(long.body, `aria-label="Log">`)
	if log, _, _ = strings.Cut(log, "</pre>"); !strings.HasSuffix(log, "xthe end\n") || len(log) != 256<<10 ||
		!strings.Contains(long.body, "Only the end is shown") {
		t.Errorf("the long log has %d bytes", len(log))
	}
	if a := b.get(list + "/nothing"); a.StatusCode != 404 {
		t.Errorf("an unknown process is answered with %d", a.StatusCode)
	}
	reader := w.loggedIn(w.token("reads", sandbox.ScopeRead))
	if a := reader.get(list + "/short"); a.StatusCode != 403 || strings.Contains(reader.get(list).body, "/processes/short") {
		t.Errorf("a reader, who may not use sandboxes, is answered with %d", a.StatusCode)
	}
	if _, err := w.Service.Sleep(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	asleep := b.get(list + "/short")
	if now, err := w.Service.GetLease(t.Context(), l.ID); err != nil || now.Phase != sandbox.PhaseAsleep {
		t.Errorf("the sandbox is %s, %v", now.Phase, err)
	}
	if a := asleep.linkTo(t, "Wake it"); !strings.HasSuffix(a, "/wake") {
		t.Errorf("it offers %s", a)
	}
}

// TestSessionsAreShownWithTheirRecordings, of a bounded size.
func TestSessionsAreShownWithTheirRecordings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.environment("catan-7")
	l := w.acquire("did:plc:ann", "catan-7")
	ref := sandbox.LeaseRef{ID: l.ID}
	if _, err := w.Service.CreateSession(t.Context(), ref, sandbox.CreateSession{ID: "turn-1"}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Service.Exec(t.Context(), ref, sandbox.ExecRequest{Session: "turn-1", Command: []string{"echo", "<b>roads</b>"}})
	if err != nil {
		t.Fatal(err)
	}
	b := w.loggedIn(w.token("ops", sandbox.ScopeRead))
	page := b.get(w.pathOf("{lease}/sessions", l, ""))
	text := ""
	w.eventually("the recording is there", func() bool {
		text = b.get(page.linkTo(t, "turn-1")).body
		return strings.Contains(text, "&lt;b&gt;roads&lt;/b&gt;")
	})
	if !strings.Contains(textOf(text), "Input by the agent, now echo") || !strings.Contains(textOf(text), "Output, now") {
		t.Errorf("the recording is %s", textOf(text))
	}
}
