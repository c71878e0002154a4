package deploy_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
)

// inProcess lets a server answer without a network, so that time can be simulated.
type inProcess struct{ server http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w, asked := httptest.NewRecorder(), r.Clone(r.Context())
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	p.server.ServeHTTP(w, asked)
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

// TestManyCallsAreSpreadSoThatNoneIsRefused: 3,000 concurrent calls wait their turn, and the token is never blocked.
func TestManyCallsAreSpreadSoThatNoneIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := localapi.New(localapi.Config{})
		d, err := deploy.New(deploy.Config{
			AccountID: account, Token: token, BaseURL: "http://api/client/v4", HTTP: &http.Client{Transport: inProcess{api}},
		})
		must(t, err)
		began := time.Now()
		must(t, parallel.Each(10, make([]struct{}, 3000), func(*struct{}) error {
			_, err := d.List(t.Context(), "ledgerofdeploy22")
			return err
		}))
		load := api.Calls()
		t.Logf("3,000 calls took %s, at most %d in five minutes", time.Since(began).Round(time.Second), load.Most)
		if load.Refused > 0 || load.Most > deploy.DefaultCalls {
			t.Errorf("at most %d calls were made in five minutes, and %d were refused", load.Most, load.Refused)
		}
		if took := time.Since(began); took < 20*time.Minute || took > 30*time.Minute {
			t.Errorf("3,000 calls took %s", took)
		}
		must(t, d.Close())
	})
}
