package dockerapi

import "strings"

// The engine answers with a status and a text. Where one status covers different causes and the cause decides, only the
// text tells them apart. These are all the texts that this program reads.
const (
	// cannotFreeze: the answer 500 to a pause, as to every failure of the runtime. runc 1.1 on cgroup v1, which Engine
	// 20.10 to 29 pass on.
	cannotFreeze = "unable to freeze"
	// imageRemoved starts the last message of a build, whose messages have no codes. Another image was removed while the
	// classic builder looked for cached layers. Engine 20.10 to 29.
	imageRemoved = `unable to find image "sha256:`
)

// IsFreezeRefused reports whether the runtime could not freeze a container in time.
func IsFreezeRefused(err error) bool {
	return err != nil && strings.Contains(err.Error(), cannotFreeze)
}

// IsLookupDisturbed reports whether a build failed because an image was removed during its cache lookup.
func IsLookupDisturbed(message string) bool { return strings.HasPrefix(message, imageRemoved) }
