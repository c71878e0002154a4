package api_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestAcquireIsAnsweredAtOnceWhereThatIsPreferred(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do(http.MethodPut, "/v1/environments/catan-7",
		`{"type":"catan","backend":"docker","image":"player","network":"none"}`)
	body := `{"agent_did":"did:plc:ann","environment_id":"catan-7"}`
	w.HoldSpawns(true)
	got := w.do(http.MethodPost, "/v1/leases", body, "Prefer", "wait=1, respond-async")
	if got.StatusCode != http.StatusAccepted || got.Header.Get("Preference-Applied") != "respond-async" ||
		!strings.Contains(got.body, `"status":"pending"`) || !strings.Contains(got.body, `"is_new":true`) {
		t.Fatalf("answered %d, %v: %s", got.StatusCode, got.Header, got.body)
	}
	if lease := w.do(http.MethodGet, got.Header.Get("Location"), ""); lease.StatusCode != http.StatusOK ||
		!strings.Contains(lease.body, `"sandbox_state":"pending"`) {
		t.Errorf("its Location answers %d: %s", lease.StatusCode, lease.body)
	}
	w.HoldSpawns(false)
	if waited := w.do(http.MethodPost, "/v1/leases", body); waited.StatusCode != http.StatusOK ||
		!strings.Contains(waited.body, `"status":"active"`) {
		t.Errorf("a waiting caller gets %d: %s", waited.StatusCode, waited.body)
	}
	ready := w.do(http.MethodPost, "/v1/leases", body, "Prefer", "respond-async")
	if ready.StatusCode != http.StatusOK || ready.Header.Get("Preference-Applied") != "" {
		t.Errorf("for a ready lease the answer is %d, %v", ready.StatusCode, ready.Header)
	}
}

func TestReleaseIsAnsweredAtOnceWhereThatIsPreferred(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	w.FailKills(true)
	for _, release := range [][2]string{{"POST", annIn + "/release"}, {"DELETE", annIn}} {
		a := w.do(release[0], release[1], "", "Prefer", "respond-async")
		if a.StatusCode != http.StatusAccepted || a.Header.Get("Preference-Applied") != "respond-async" ||
			!strings.Contains(a.body, `"status":"expired"`) {
			t.Errorf("%v is answered %d, %v: %s", release, a.StatusCode, a.Header, a.body)
		}
	}
	w.FailKills(false)
	if a := w.do("POST", annIn+"/release", ""); a.StatusCode != http.StatusOK ||
		!strings.Contains(a.body, `"status":"destroyed"`) {
		t.Errorf("a waiting caller gets %d: %s", a.StatusCode, a.body)
	}
	a := w.do("DELETE", annIn, "", "Prefer", "respond-async")
	if a.StatusCode != http.StatusOK || a.Header.Get("Preference-Applied") != "" {
		t.Errorf("for a lease that is gone the answer is %d, %v", a.StatusCode, a.Header)
	}
}
