package cloudflaretest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localaccount"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
)

// Account is a Cloudflare account on this machine. Its deployments run.
type Account struct {
	*localaccount.Account
	ID string
}

// StartAccount runs an account until the test ends. It skips and fails as Start does.
func StartAccount(t testing.TB) *Account { return StartAccountWith(t, "") }

// StartAccountWith is StartAccount with a server that stands in for the Internet, as Config.Outside is.
func StartAccountWith(t testing.TB, outside string) *Account {
	t.Helper()
	Need(t)
	a, err := localaccount.Start(t.Context(), localaccount.Config{
		Worker: workerDir(t), State: t.TempDir(), Outside: outside,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Account{Account: a, ID: localaccount.ID}
}

// ImageID returns the name for environments of an image that only the engine has.
func ImageID(t testing.TB, image string) string {
	t.Helper()
	found, err := dockertest.Engine(t).ImageInspect(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	return found.ID
}

// Query queries the account's only database through the API.
func (a *Account) Query(t testing.TB, statement string, params ...any) []map[string]any {
	t.Helper()
	var all []struct{ UUID string }
	a.call(t, http.MethodGet, "/d1/database", "", &all)
	if len(all) != 1 {
		t.Fatalf("the account has the databases %v, not one", all)
	}
	body, err := json.Marshal(map[string]any{"sql": statement, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	var answers []struct{ Results []map[string]any }
	a.call(t, http.MethodPost, "/d1/database/"+all[0].UUID+"/query", string(body), &answers)
	return answers[0].Results
}

// call sends a request to the account's API and decodes the result.
func (a *Account) call(t testing.TB, method, path, body string, result any) {
	t.Helper()
	answer := a.send(t, method, path, "application/json", strings.NewReader(body))
	defer func() { _ = answer.Body.Close() }() // it is read
	envelope := struct {
		Success bool
		Result  any
	}{Result: result}
	if err := json.NewDecoder(answer.Body).Decode(&envelope); err != nil || !envelope.Success {
		t.Fatalf("%s %s: %s %+v: %v", method, path, answer.Status, envelope, err)
	}
}

// send sends a request to the account's API. The caller closes the answer.
func (a *Account) send(t testing.TB, method, path, contentType string, body io.Reader) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, a.URL+"/accounts/"+a.ID+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+string(a.Token))
	r.Header.Set("Content-Type", contentType)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
