// Package value converts domain values to Terraform values.
package value

import (
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"
)

// String returns null for an empty string.
func String[T ~string](s T) types.String {
	if s == "" {
		return types.StringNull()
	}
	return types.StringValue(string(s))
}

// Time returns the time in RFC 3339 and UTC, or null for the zero time.
func Time(t time.Time) types.String {
	if t.IsZero() {
		return types.StringNull()
	}
	return types.StringValue(t.UTC().Format(time.RFC3339Nano))
}

// Cores converts thousandths of a core to cores.
func Cores(millis int64) types.Float64 { return types.Float64Value(float64(millis) / 1000) }
