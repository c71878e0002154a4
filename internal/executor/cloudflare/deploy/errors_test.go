package deploy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestPermissionsThatAreMissingAreNamedAllAtOnceBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.api.Lacks("containers")
	w.api.Lacks("d1")
	_, err := w.deployer.Deploy(t.Context(), wanted())
	w.wantCode(err, sandbox.Forbidden)
	for _, permission := range []deploy.Permission{"Workers Containers Write", "D1 Write"} {
		if !strings.Contains(err.Error(), string(permission)) {
			t.Errorf("the error does not name %q: %v", permission, err)
		}
	}
	for _, permission := range []deploy.Permission{"Workers Scripts Write", "Workers R2 Storage Write"} {
		if strings.Contains(err.Error(), string(permission)) {
			t.Errorf("the error names %q, which the token has: %v", permission, err)
		}
	}
	w.wantNothing()
	if changes := w.changes(); len(changes) > 0 {
		t.Errorf("something was tried: %q", changes)
	}
}

func TestTheAccountAnswersForItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, err := w.deployer.Account(t.Context())
	w.must(err)
	if id != account {
		t.Errorf("the account is %q, want %q", id, account)
	}
	const wrong = "a-wrong-token"
	_, err = w.newDeployer(deploy.Config{Token: wrong}).Account(t.Context())
	w.wantCode(err, sandbox.Unauthenticated)
	if strings.Contains(err.Error(), wrong) {
		t.Errorf("the error shows the token: %v", err)
	}
}

func TestAChangeWhoseAnswerIsLostHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.forget(func(_ int, r *http.Request) localapi.Fault {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/d1/database") {
			return localapi.Lost
		}
		return localapi.None
	})
	_, err := w.deployer.Deploy(t.Context(), wanted())
	w.wantCode(err, sandbox.UnknownOutcome)
	if tried := len(w.changes()); tried != 1 {
		t.Errorf("it was sent %d times, want once for a request that creates something", tried)
	}
}

func TestAnAPIThatCannotBeReachedIsUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const nobody = "http://127.0.0.1:1" // a port that no test listens on
	d, err := deploy.New(deploy.Config{AccountID: account, Token: token, BaseURL: nobody, Attempts: 1})
	w.must(err)
	_, err = d.Deploy(t.Context(), wanted())
	w.wantCode(err, sandbox.Unavailable)
	if strings.Contains(err.Error(), token) {
		t.Errorf("the error shows the token: %v", err)
	}
}

func TestTooManyRequestsAreSentAgainWhenCloudflareSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var refused atomic.Bool
	busy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && refused.CompareAndSwap(false, true) {
			rw.Header().Set("Retry-After", "1")
			rw.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.api.ServeHTTP(rw, r)
	}))
	t.Cleanup(busy.Close)
	d, err := deploy.New(deploy.Config{
		AccountID: account,
		Token:     token,
		BaseURL:   busy.URL + "/client/v4",
		WaitMin:   time.Millisecond,
		WaitMax:   time.Millisecond,
	})
	w.must(err)
	began := time.Now()
	_, err = d.Deploy(t.Context(), wanted())
	w.must(err)
	if took := time.Since(began); !refused.Load() || took < time.Second {
		t.Errorf("refused: %t; it took %s, and Cloudflare asked for a second", refused.Load(), took)
	}
	w.wantDeployed(wanted())
}

func TestNoErrorAndNoLogHasASecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	echo := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(http.StatusBadRequest)
		_, _ = rw.Write([]byte("you sent " + r.Header.Get("Authorization"))) // the test checks the text that arrives
	}))
	t.Cleanup(echo.Close)
	w.url = echo.URL
	_, err := w.newDeployer(deploy.Config{}).Deploy(t.Context(), wanted())
	w.wantCode(err, sandbox.Failed)
	if !strings.Contains(err.Error(), "you sent Bearer (token)") {
		t.Errorf("the error does not show what the API says: %v", err)
	}
	for _, secret := range []string{token, string(key)} {
		if strings.Contains(err.Error()+w.logged.String(), secret) {
			t.Errorf("%q is in an error or a log: %v\n%s", secret, err, w.logged)
		}
	}
}

func TestAMissingCapacityOrImageIsNamed(t *testing.T) {
	t.Parallel()
	for word, code := range map[string]sandbox.Code{
		"SURPASSED_TOTAL_LIMITS":              sandbox.CapacityExceeded,
		"IMAGE_REGISTRY_DOESNT_CONTAIN_IMAGE": sandbox.NotFound,
	} {
		w := newWorld(t)
		refusing := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/containers/applications") {
				rw.WriteHeader(http.StatusBadRequest)
				_, _ = rw.Write([]byte(`{"success":false,"errors":[{"code":1000,"message":"` + word + `"}]}`)) // as above
				return
			}
			w.api.ServeHTTP(rw, r)
		}))
		t.Cleanup(refusing.Close)
		w.url = refusing.URL + "/client/v4"
		_, err := w.newDeployer(deploy.Config{}).Deploy(t.Context(), wanted())
		w.wantCode(err, code)
		if code == sandbox.NotFound && sandbox.ReasonOf(err) != sandbox.ReasonImageNotFound {
			t.Errorf("the reason is %q: %v", sandbox.ReasonOf(err), err)
		}
	}
}

func TestAConfigurationIsRefusedByTheNamesOfItsFields(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]deploy.Config{
		"account_id": {AccountID: "mine", Token: token},
		"api_token":  {AccountID: account},
		"base_url":   {AccountID: account, Token: token, BaseURL: "api.example.com"},
	} {
		if _, err := deploy.New(cfg); sandbox.CodeOf(err) != sandbox.Invalid ||
			!strings.Contains(err.Error(), "; "+field+": ") {
			t.Errorf("%s: error is %v", field, err)
		}
	}
}
