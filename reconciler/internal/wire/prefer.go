package wire

import "strings"

// RespondAsync is the RFC 7240 preference for a response that does not wait for the work.
const RespondAsync = "respond-async"

// Prefers reports whether Prefer headers name a preference, with any parameters.
func Prefers(headers []string, preference string) bool {
	for _, one := range strings.Split(strings.Join(headers, ","), ",") {
		name, _, _ := strings.Cut(one, ";")
		name, _, _ = strings.Cut(name, "=")
		if strings.EqualFold(strings.TrimSpace(name), preference) {
			return true
		}
	}
	return false
}
