// Package tune makes the process of a provider spend less CPU time on what its plans do not need.
package tune

import (
	"os"
	"runtime/debug"
)

// gcPercent is how much the heap grows before it is collected, unless GOGC says otherwise (runtime/debug.SetGCPercent).
// A provider's heap is a few megabytes. With Go's default of 100, its collection was 44 % of the CPU time of a plan of
// 500 leases. Above 400 the plan gets no faster.
const gcPercent = 400

// Process tunes this process. It is called before the provider is served.
func Process() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	return quiet(os.Environ(), os.Setenv)
}
