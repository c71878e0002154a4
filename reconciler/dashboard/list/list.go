// Package list sorts and searches the lists of pages.
package list

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Sorting is the order of a list: a key, or a key with a - before it for the reverse.
type Sorting struct {
	By   string
	here func(by string) string // the URL of the page in another order
}

// NewSorting returns the order of a page whose URL in another order is here.
func NewSorting(by string, here func(by string) string) Sorting { return Sorting{by, here} }

// Column is the head of a column. A list is sorted by it with a link, which keeps the filters of the page.
type Column struct {
	Name, Class string
	Address     string
	// Order is the value of aria-sort, "" for a column by which the list is not sorted now.
	Order string
}

// Column returns the head of a column. first is its order on the first click; the second click reverses it.
func (s Sorting) Column(first, name, class string) Column {
	c := Column{Name: name, Class: class, Address: s.here(first)}
	key := strings.TrimPrefix(first, "-")
	if strings.TrimPrefix(s.By, "-") != key {
		return c
	}
	if c.Order = "ascending"; strings.HasPrefix(s.By, "-") {
		c.Order = "descending"
	}
	if s.By == first {
		c.Address = s.here(reverse(first))
	}
	return c
}

func reverse(by string) string {
	if key, reversed := strings.CutPrefix(by, "-"); reversed {
		return key
	}
	return "-" + by
}

// Orders are the keys by which a list can be sorted in memory.
type Orders[T any] map[string]func(a, b T) int

// Sort sorts a list in place. Errors: Invalid for an unknown key.
func (o Orders[T]) Sort(list []T, by string) error {
	key, reversed := strings.CutPrefix(by, "-")
	compare, known := o[key]
	if !known {
		return sandbox.InvalidFields("the page's URL", []sandbox.Field{{Name: "sort",
			Problem: fmt.Sprintf("must be one of %v, with or without a - before it", slices.Sorted(maps.Keys(o)))}})
	}
	slices.SortStableFunc(list, func(a, b T) int {
		if reversed {
			return compare(b, a)
		}
		return compare(a, b)
	})
	return nil
}

// By compares by a value.
func By[T any, V cmp.Ordered](value func(T) V) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(value(a), value(b)) }
}

// Contains reports whether one of the texts contains a search, in upper or lower case.
func Contains(search string, texts ...string) bool {
	search = strings.ToLower(strings.TrimSpace(search))
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), search) })
}
