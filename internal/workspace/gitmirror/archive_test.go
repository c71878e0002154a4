package gitmirror_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// newFileServer starts a server of files, and returns a store that may fetch from it.
func newFileServer(t *testing.T, serve http.HandlerFunc,
	change ...func(c *gitmirror.Config)) (*httptest.Server, *gitmirror.Store) {
	t.Helper()
	s := httptest.NewServer(serve)
	t.Cleanup(s.Close)
	return s, newStore(t, nil, append(change, func(c *gitmirror.Config) { c.Allow = []string{s.URL} })...)
}

// archiveOf names a file of a server as an archive.
func archiveOf(s *httptest.Server, content string) gitmirror.Archive {
	sum := sha256.Sum256([]byte(content))
	return gitmirror.Archive{URL: s.URL + "/a.tar", SHA256: hex.EncodeToString(sum[:])}
}

func readArchive(t *testing.T, store *gitmirror.Store, a gitmirror.Archive) (string, error) {
	t.Helper()
	f, err := store.OpenArchive(t.Context(), a)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(f)
	return string(content), errors.Join(err, f.Close())
}

func TestLeasesThatStartTogetherFetchAnArchiveOnce(t *testing.T) {
	t.Parallel()
	const many = 10
	var asked atomic.Int64
	var reading sync.WaitGroup
	reading.Add(many)
	s, store := newFileServer(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		reading.Wait()
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // no event says that all wait for the first fetch
		_, _ = io.WriteString(w, "content")
	})
	other := newStore(t, nil, func(c *gitmirror.Config) { c.Dir, c.Allow = store.Dir, store.Allow }) // another process
	var all sync.WaitGroup
	for n := range many {
		all.Go(func() {
			reading.Done()
			from := store
			if n%2 == 1 {
				from = other
			}
			if text, err := readArchive(t, from, archiveOf(s, "content")); err != nil || text != "content" {
				t.Errorf("read %q: %v", text, err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
	// The digest alone does not give access to the file: another credential causes another fetch.
	a := archiveOf(s, "content")
	a.Header, a.Secret = "Authorization", "other"
	if _, err := readArchive(t, store, a); err != nil || asked.Load() != 2 {
		t.Errorf("with another credential, the server was asked %d times: %v", asked.Load(), err)
	}
}

func TestAnArchiveWithAnotherDigestIsNotKept(t *testing.T) {
	t.Parallel()
	text := "changed"
	s, store := newFileServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	a := archiveOf(s, "content")
	if _, err := readArchive(t, store, a); sandbox.CodeOf(err) != sandbox.Failed ||
		!strings.Contains(err.Error(), "its SHA-256 is "+archiveOf(s, "changed").SHA256) {
		t.Errorf("the error is %v", err)
	}
	wantNowhere(t, store.Dir, "changed")
	text = "content"
	if got, err := readArchive(t, store, a); err != nil || got != text {
		t.Errorf("after it was repaired, read %q: %v", got, err)
	}
}

func TestServersOfArchivesThatMisbehave(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("x", 2000)
	declare := func(size string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { // net/http does not let a server lie
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: "+size+"\r\n\r\n"+content)
			_ = conn.Close()
		}
	}
	for name, test := range map[string]struct {
		serve http.HandlerFunc
		code  sandbox.Code
		says  string
	}{
		"says that it sends more": {declare("2001"), sandbox.Unavailable, "unexpected EOF"},
		"says that it sends less": {declare("1999"), sandbox.Failed, "its SHA-256 is"},
		"sends a large file": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, content+content)
		}, sandbox.Failed, "more than the limit of 3000 bytes"},
		"never ends": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, content)
			}
		}, sandbox.Failed, "more than the limit of 3000 bytes"},
		"stalls before it answers": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			sandbox.Unavailable, "deadline exceeded"},
		"stalls on the way": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, content[:1000])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, sandbox.Unavailable, "deadline exceeded"},
		"compresses": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, content)
		}, "", ""},
		"is busy": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
			sandbox.Unavailable, "429"},
		"leads elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/a.tar", http.StatusFound)
		}, sandbox.Failed, "redirects to another host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, store := newFileServer(t, test.serve, func(c *gitmirror.Config) {
				c.Limits = gitmirror.Limits{PackBytes: 3000, Time: 2 * time.Second}
			})
			got, err := readArchive(t, store, archiveOf(s, content))
			if sandbox.CodeOf(err) != test.code || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v, want %s with %q", err, test.code, test.says)
			}
			if err == nil && got != content {
				t.Errorf("read %.20q", got)
			}
			if err != nil {
				wantNowhere(t, store.Dir, content[:1000])
			}
		})
	}
}

// A server may repeat the credential. Everyone who may read the lease reads its error.
func TestNoErrorOfAnArchiveHasItsCredential(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"HTTP/1.1 403 %s\r\n\r\n", "HTTP/1.1 %s\r\n\r\n", "%s\r\n\r\n"} {
		s, store := newFileServer(t, func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = fmt.Fprintf(conn, answer, r.Header.Get("Authorization"))
			_ = conn.Close()
		})
		a := archiveOf(s, "x")
		a.Header, a.Secret = "Authorization", "Bearer hunter2"
		if _, err := readArchive(t, store, a); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error of a server that answers %q is %v", answer, err)
		}
	}
}

func TestAFetchThatIsGivenUpLeavesTheNextOneItsTurn(t *testing.T) {
	t.Parallel()
	stalls := atomic.Bool{}
	stalls.Store(true)
	asked := make(chan struct{}, 1)
	s, store := newFileServer(t, func(w http.ResponseWriter, r *http.Request) {
		if stalls.Load() {
			asked <- struct{}{}
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "content")
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := store.OpenArchive(ctx, archiveOf(s, "content"))
		ended <- err
	}()
	<-asked
	stalls.Store(false)
	cancel()
	if got, err := readArchive(t, store, archiveOf(s, "content")); err != nil || got != "content" {
		t.Errorf("read %q: %v", got, err)
	}
	if err := <-ended; err == nil {
		t.Error("a cancelled fetch succeeded")
	}
}

func TestArchivesThatNothingUsesArePruned(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var asked atomic.Int64
	s, store := newFileServer(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, strings.Repeat(r.URL.Path, 1000))
	}, func(c *gitmirror.Config) {
		c.Now, c.Limits.MirrorBytes = func() time.Time { return now }, 10_000
	})
	archive := func(name string) gitmirror.Archive {
		a := archiveOf(s, strings.Repeat(name, 1000))
		a.URL = s.URL + name
		return a
	}
	// read reads an archive, prunes, and returns how often the server was asked up to then.
	read := func(name string) int64 {
		t.Helper()
		f, err := store.OpenArchive(t.Context(), archive(name))
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
		if err := store.Prune(); err != nil {
			t.Error(err)
		}
		content, err := io.ReadAll(f) // even after it was pruned
		if err := errors.Join(err, f.Close()); err != nil || len(content) != 1000*len(name) {
			t.Errorf("%s has %d bytes: %v", name, len(content), err)
		}
		return asked.Load()
	}
	for _, step := range []struct {
		name string
		want int64
		says string
	}{
		{"/one", 1, "it is fetched"}, {"/one", 1, "it is kept"}, {"/two", 2, "both fit"}, {"/one", 2, "both are kept"},
		{"/six", 3, "the one that was not used for the longest time goes"}, {"/one", 3, "the other is kept"},
		{"/two", 4, "that one was removed"},
	} {
		if got := read(step.name); got != step.want {
			t.Errorf("after %s (%s), the server was asked %d times, want %d", step.name, step.says, got, step.want)
		}
	}
	now = now.Add(8 * 24 * time.Hour)
	if err := store.Prune(); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(store.Dir)
	for _, e := range entries {
		if e.IsDir() {
			t.Errorf("%s is left after 8 days", e.Name())
		}
	}
	if err != nil {
		t.Error(err)
	}
}
