package news

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var noon = time.Date(2026, 8, 15, 12, 0, 0, 0, time.UTC)

// kept is the private part of a state.
type kept map[string][]byte

func (k kept) GetKey(_ context.Context, key string) ([]byte, diag.Diagnostics) { return k[key], nil }

func (k kept) SetKey(_ context.Context, key string, value []byte) diag.Diagnostics {
	k[key] = value
	return nil
}

// An end that the state has seen is no news, even a recent one.
func TestWhatTheStateHasSeenIsNoNews(t *testing.T) {
	t.Parallel()
	ended := func(id string, by sandbox.EndedBy, at time.Time) sandbox.Lease {
		return sandbox.Lease{ID: id, Owner: "me", EndedBy: by, EndedAt: at}
	}
	leases := []sandbox.Lease{
		ended("saved", sandbox.EndedByTTL, noon.Add(-2*time.Second)), ended("ended", sandbox.EndedByCondition, noon.Add(time.Second)),
		ended("removed", sandbox.EndedByEnvironment, noon.Add(time.Second)),
		ended("crashed", sandbox.EndedByCrashed, noon.Add(time.Second)),
		ended("released", sandbox.EndedByRelease, noon.Add(time.Second)),
	}
	for kind, want := range map[Kind]string{Ended: "ended", EndedWithEnvironment: "removed", Gone: "crashed"} {
		if found := Of(kind, leases, noon, "me"); len(found) != 1 || found[0].ID != want {
			t.Errorf("of %q it finds %v", kind, found)
		}
	}
}

// If an object has ended since the state last saw it, the last sight counts as before the end, even if Terraform's
// clock is ahead.
func TestAnObjectIsSeenBeforeItsEnd(t *testing.T) {
	t.Parallel()
	private := kept{}
	at := func(otherwise, end time.Time) time.Time {
		since, diags := SeenAt(t.Context(), private, otherwise, end)
		if diags.HasError() {
			t.Fatal(diags)
		}
		return since
	}
	if since := at(noon, time.Time{}); !since.Equal(noon) {
		t.Errorf("without a time it was seen at %s", since)
	}
	if diags := See(t.Context(), private, noon); diags.HasError() {
		t.Fatal(diags)
	}
	if since := at(noon.Add(-time.Hour), noon.Add(time.Second)); !since.Equal(noon) {
		t.Errorf("it was seen at %s", since)
	}
	if since := at(noon.Add(-time.Hour), noon.Add(-time.Second)); !since.Before(noon.Add(-time.Second)) {
		t.Errorf("it was seen at %s, after its end", since)
	}
}
