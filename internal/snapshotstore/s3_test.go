package snapshotstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestMain gives every test credentials for a service that accepts any, and hides the machine's own.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// service is an S3 server in this process that can misbehave.
type service struct {
	url   string // of its bucket
	s3    http.Handler
	fault atomic.Pointer[fault]
}

// fault answers a request in place of the service, or reports false.
type fault func(w http.ResponseWriter, r *http.Request) bool

func newService(t *testing.T) *service {
	t.Helper()
	backend := s3mem.New()
	must(t, backend.CreateBucket("kept"))
	s := &service{s3: gofakes3.New(backend, gofakes3.WithAutoBucket(false)).Server()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := s.fault.Load(); f == nil || !(*f)(w, r) {
			s.s3.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	s.url = "s3://kept?region=auto&use_path_style=true&endpoint=" + url.QueryEscape(server.URL)
	return s
}

func (s *service) misbehave(f fault) { s.fault.Store(&f) }

func refuse(status int, code string) fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>no</Message></Error>`, code)
		return true
	}
}

// each calls methods of a store, and passes their errors to check.
func each(ctx context.Context, t *testing.T, s *snapshotstore.Store, a snapshotstore.Archive,
	check func(what string, err error)) {
	t.Helper()
	_, err := s.Save(ctx, "x/new", strings.NewReader(string(pack(t, content("f", 0o644, "x")))), megabyte)
	check("save", err)
	_, err = s.Load(ctx, a)
	check("load", err)
	check("delete", s.Delete(ctx, a.Object))
}

func TestABucketThatDoesNotAnswerIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{
		"no rights":      refuse(http.StatusForbidden, "AccessDenied"),
		"no such bucket": refuse(http.StatusNotFound, "NoSuchBucket"),
		"overloaded":     refuse(http.StatusServiceUnavailable, "SlowDown"),
		"defect":         refuse(http.StatusInternalServerError, "InternalError"),
		"cut off":        func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := newService(t)
			s := open(t, service.url)
			a := save(t, s, "x/1", content("f", 0o644, "precious"))
			service.misbehave(f)
			each(t.Context(), t, s, a, func(what string, err error) {
				wantError(t, err, sandbox.Unavailable, "")
				if text := fmt.Sprint(err); !strings.Contains(text, what+" x/") || !strings.Contains(text, "s3://kept") ||
					strings.Contains(text, "test-secret") {
					t.Errorf("%s: the error is %s", what, text)
				}
			})
			service.fault.Store(nil)
			if got := load(t, s, a); got != "0 f 644 precious 1970\n" {
				t.Errorf("afterwards the archive holds %q", got)
			}
			_, err := s.Load(t.Context(), snapshotstore.Archive{Object: "x/new"})
			wantError(t, err, sandbox.NotFound, "")
		})
	}
}

func TestABucketThatHangsHoldsNoCallerPastItsDeadline(t *testing.T) {
	t.Parallel()
	service := newService(t)
	s := open(t, service.url)
	a := save(t, s, "x/1", content("f", 0o644, "x"))
	service.misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	each(ctx, t, s, a, func(_ string, err error) { wantError(t, err, sandbox.Unavailable, "") })
}

func TestAnUploadThatBreaksInTheMiddleLeavesNothing(t *testing.T) {
	t.Parallel()
	service := newService(t)
	s := open(t, service.url)
	noise := make([]byte, 20*megabyte) // several parts, because it does not compress
	_, err := rand.Read(noise)
	must(t, err)
	stream := pack(t, content("noise", 0o644, string(noise)))
	var parts, aborted atomic.Int64
	service.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPut && r.URL.Query().Get("partNumber") == "2":
			parts.Add(1)
			return refuse(http.StatusInternalServerError, "InternalError")(w, r)
		case r.Method == http.MethodDelete && r.URL.Query().Has("uploadId"):
			aborted.Add(1)
		}
		return false
	})
	_, err = s.Save(t.Context(), "x/1", strings.NewReader(string(stream)), 64*megabyte)
	wantError(t, err, sandbox.Unavailable, "")
	if parts.Load() == 0 || aborted.Load() != 1 {
		t.Errorf("the second part was sent %d times, and the upload given up %d times", parts.Load(), aborted.Load())
	}
	_, err = s.Load(t.Context(), snapshotstore.Archive{Object: "x/1"})
	wantError(t, err, sandbox.NotFound, "")
	service.fault.Store(nil)
	a, err := s.Save(t.Context(), "x/1", strings.NewReader(string(stream)), 64*megabyte)
	must(t, err)
	r, err := s.Load(t.Context(), a)
	must(t, err)
	n, err := io.Copy(io.Discard, r)
	must(t, errors.Join(err, r.Close()))
	if n != a.Size || a.Bytes < 20*megabyte {
		t.Errorf("%d bytes came back of %+v", n, a)
	}
}

func TestADownloadThatBreaksOrWasChangedIsNotHandedOut(t *testing.T) {
	t.Parallel()
	service := newService(t)
	s := open(t, service.url)
	a := save(t, s, "x/1", content("f", 0o644, strings.Repeat("precious", 1000)))
	answer := func(length, sent int) {
		service.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
			whole := httptest.NewRecorder()
			service.s3.ServeHTTP(whole, r)
			w.Header().Set("Content-Length", fmt.Sprint(length))
			_, _ = w.Write(whole.Body.Bytes()[:sent])
			return true
		})
	}
	answer(int(a.Bytes), int(a.Bytes)/2)
	_, err := s.Load(t.Context(), a)
	wantError(t, err, sandbox.Unavailable, "")
	answer(int(a.Bytes)/2, int(a.Bytes)/2)
	_, err = s.Load(t.Context(), a)
	wantError(t, err, sandbox.Failed, sandbox.ReasonCopyFailed)
}

func TestABucketWithoutARegionIsRefused(t *testing.T) {
	t.Parallel()
	_, err := snapshotstore.Open(t.Context(), "s3://kept")
	wantError(t, err, sandbox.Invalid, "")
	if !strings.Contains(fmt.Sprint(err), "AWS_REGION") {
		t.Errorf("the error does not say what to do: %v", err)
	}
}
