package dockerapi

import "strings"

// The engine answers with a status and a text. If one status has several causes that differ in effect, only the text
// distinguishes them. These are all the texts that this program reads.
const (
	// cannotFreeze is in the answer 500 to a pause. Every failure of the runtime has that status. The text is from runc
	// 1.1 on cgroup v1; Engine 20.10 to 29 pass it on.
	cannotFreeze = "unable to freeze"
	// imageRemoved starts the last message of a build, because these messages have no codes. Another program removed an
	// image while the classic builder looked for cached layers. Engine 20.10 to 29.
	imageRemoved = `unable to find image "sha256:`
	// hubID is in the log of a build by BuildKit that was given the id of an image in FROM: BuildKit reads the id as a
	// name on Docker Hub, and fails there with any of its errors. Engine 20.10 to 29.
	hubID = "docker.io/library/sha256:"
)

// IsFreezeRefused reports whether the runtime could not freeze a container in time.
func IsFreezeRefused(err error) bool {
	return err != nil && strings.Contains(err.Error(), cannotFreeze)
}

// IsBaseByID reports whether a line of BuildKit's log is about an image whose id stands in FROM.
func IsBaseByID(line string) bool { return strings.Contains(line, hubID) }

// IsLookupDisturbed reports whether a build failed because an image was removed during its cache lookup.
func IsLookupDisturbed(message string) bool { return strings.HasPrefix(message, imageRemoved) }
