//go:build !linux

package engine

import "time"

// bootOfHost returns nothing: engines run on Linux, so the engine is on another machine.
func bootOfHost(time.Duration) (id string, sinceBoot time.Duration) { return "", 0 }
