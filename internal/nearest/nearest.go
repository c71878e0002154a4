// Package nearest finds the known word that a misspelled one was probably meant to be.
package nearest

import "github.com/agext/levenshtein"

// To returns the known word that is fewest edits away: insertions, deletions or replacements of a letter. Among equals
// it returns the first. It returns "" if the word itself is known. It also returns "" if the nearest word needs more
// than two edits and more than one for each four letters, or if less than half of a short word would stay.
func To(word string, known []string) string {
	nearest, fewest := "", min(max(2, len(word)/4), len(word)/2)+1
	for _, k := range known {
		edits := levenshtein.Distance(word, k, nil)
		if edits == 0 {
			return ""
		}
		if edits < fewest {
			nearest, fewest = k, edits
		}
	}
	return nearest
}
