package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
)

// TestReadinessIsCheckedOnceForAllWhoAskAndNotWaitedForForEver: a hanging database also ignores the end of its context.
func TestReadinessIsCheckedOnceForAllWhoAskAndNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		token, err := access.MakeToken("a", access.NewToken())
		if err != nil {
			t.Fatal(err)
		}
		var checks atomic.Int64
		hang := make(chan struct{})
		handler, err := api.New(api.Config{
			Service: failing{},
			Tokens:  []access.Token{token},
			Ready: func(context.Context) error {
				checks.Add(1)
				<-hang
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ask := func() int {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
			return w.Code
		}
		began := time.Now()
		codes := make(chan int, 10)
		for range cap(codes) {
			go func() { codes <- ask() }()
		}
		for range cap(codes) {
			if code := <-codes; code != http.StatusServiceUnavailable {
				t.Errorf("while the ledger hangs it is answered with %d", code)
			}
		}
		if took := time.Since(began); took > time.Second || checks.Load() != 1 {
			t.Errorf("after %s, and %d checks", took, checks.Load())
		}
		close(hang)
		synctest.Wait()
		if code := ask(); code != http.StatusOK || checks.Load() != 1 {
			t.Errorf("once it is done it is answered with %d, after %d checks", code, checks.Load())
		}
		time.Sleep(time.Second)
		if code := ask(); code != http.StatusOK || checks.Load() != 2 {
			t.Errorf("a second later it is answered with %d, after %d checks", code, checks.Load())
		}
	})
}

// TestARequestKeepsTheIDThatItBrings, unless the id is unsafe.
func TestARequestKeepsTheIDThatItBrings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for id, kept := range map[string]bool{
		"0af7651916cd43dd8448eb211c80319c": true, "c0ffee00-1234-4321-8765-0123456789ab": true, "Root_1.a": true,
		"a b": false, `a"b`: false, "a=b": false, strings.Repeat("x", 65): false, "<b>": false, "é": false,
	} {
		a := w.do("GET", "/v1/leases/did:plc:nobody::none", "", "X-Request-Id", id)
		given := a.Header.Get("X-Request-Id")
		if (given == id) != kept || given == "" {
			t.Errorf("%q becomes %q", id, given)
		}
		if !strings.Contains(a.body, `"request_id":"`+given+`"`) ||
			!strings.Contains(w.log.String(), `"request_id":"`+given+`"`) {
			t.Errorf("%q is not in the problem %s, or not in the log", given, a.body)
		}
	}
}
