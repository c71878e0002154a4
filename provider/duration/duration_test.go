package duration_test

import (
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func value(s string) duration.Value { return duration.Value{StringValue: types.StringValue(s)} }

func TestTextIsShortAndMeansTheSame(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		24 * time.Hour: "24h", 5 * time.Minute: "5m", 90 * time.Minute: "1h30m", 0: "0s", 30 * time.Second: "30s",
		time.Hour + time.Second: "1h0m1s", 10 * time.Hour: "10h", 10 * time.Minute: "10m", 100 * time.Millisecond: "100ms",
		-time.Hour: "-1h",
	} {
		got := duration.New(sandbox.Duration(d))
		if got.ValueString() != want {
			t.Errorf("%v is written %q, want %q", d, got.ValueString(), want)
		}
		if back, ok := got.Duration(); !ok || back.D() != d {
			t.Errorf("%q is read as %v", got.ValueString(), back)
		}
	}
}

func TestSpellingIsNoDifference(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		same bool
	}{{"24h", "24h0m0s", true}, {"24h", "1440m", true}, {"0s", "0h", true}, {"24h", "23h", false}, {"x", "x", false}} {
		same, diags := value(tt.a).StringSemanticEquals(t.Context(), value(tt.b))
		if diags.HasError() || same != tt.same {
			t.Errorf("%s and %s are the same: %v", tt.a, tt.b, same)
		}
	}
	if same, _ := duration.Null().StringSemanticEquals(t.Context(), value("0s")); same {
		t.Errorf("null is the same as 0s")
	}
}

func TestPointer(t *testing.T) {
	t.Parallel()
	zero := sandbox.Duration(0)
	if p := duration.FromPointer(&zero).Pointer(); p == nil || *p != 0 {
		t.Errorf("0s is lost: %v", p)
	}
	for name, v := range map[string]duration.Value{
		"null": duration.FromPointer(nil), "unknown": {StringValue: types.StringUnknown()}, "no duration": value("soon"),
	} {
		if p := v.Pointer(); p != nil {
			t.Errorf("%s has the duration %v", name, *p)
		}
	}
}
