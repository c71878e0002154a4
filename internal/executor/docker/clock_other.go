//go:build !linux

package docker

import "time"

// bootOfHost knows nothing: engines run on Linux, so that theirs is another machine.
func bootOfHost(time.Duration) (id string, sinceBoot time.Duration) { return "", 0 }
