package news

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
)

// Saved says how long plans repeat a warning.
const Saved = "Plans repeat this until an apply saves it, for example terraform apply -refresh-only."

// seenKey is the key, beside the state, of the time when the state last saw the object.
const seenKey = "seen_at"

// Private is the data that Terraform keeps beside the state of one object.
type Private interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// SeenAt returns when the state last saw the object, or otherwise if that is unknown. Earlier events are no news. If
// the object has ended since, the result is before its end, even if Terraform's clock was ahead.
func SeenAt(ctx context.Context, private Private, otherwise, end time.Time) (time.Time, diag.Diagnostics) {
	text, diags := private.GetKey(ctx, seenKey)
	var at time.Time
	if len(text) == 0 || json.Unmarshal(text, &at) != nil {
		at = otherwise
	}
	if !end.IsZero() && !at.Before(end) {
		at = end.Add(-time.Nanosecond)
	}
	return at, diags
}

// See records that the state sees the object now.
func See(ctx context.Context, private Private, now time.Time) diag.Diagnostics {
	text, err := json.Marshal(now.UTC())
	if err != nil {
		panic(err) // a time of this century always encodes
	}
	return private.SetKey(ctx, seenKey, text)
}
