// Package nearest finds the known word that a misspelled one was probably meant to be.
package nearest

import "github.com/agext/levenshtein"

// To returns the known word with the fewest edits (letters to insert, delete or replace) from a word, the first of equals.
// It returns "" where the word is known itself, and where the nearest one needs more than two edits, or more than one for
// each four letters of a longer word.
func To(word string, known []string) string {
	nearest, fewest := "", max(2, len(word)/4)+1
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
