package sandbox

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

// TestNamesHaveTheFormsThatTheDocumentationGives compares the loops with the documented regular expressions,
// on valid names and on near misses.
func TestNamesHaveTheFormsThatTheDocumentationGives(t *testing.T) {
	t.Parallel()
	for expression, is := range map[string]func(string) bool{
		`^[a-z0-9][a-z0-9._-]{0,62}$`:             isEnvironmentID,
		`^did:[a-z0-9]+:[A-Za-z0-9._:%-]{1,200}$`: isAgentDID,
		`^[a-zA-Z0-9_]+(\.[a-zA-Z0-9_]+)+$`:       isConditionName,
	} {
		form := regexp.MustCompile(expression)
		rapid.Check(t, func(t *rapid.T) {
			name := rapid.OneOf(rapid.StringMatching(expression), rapid.StringMatching(`(did:|did)?[a-zA-Z0-9._:% -]{0,70}`),
				rapid.StringMatching(`did:[a-z]*:[a-z]{190,210}`), rapid.String()).Draw(t, "name")
			if got := is(name); got != form.MatchString(name) {
				t.Fatalf("%q against %s: %t", name, expression, got)
			}
		})
	}
}
