package devcontainer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// features returns all features of a configuration and those that they depend on, in the order of their installation.
// Errors: Invalid; those of fetch.
func (c *config) features(ctx context.Context, dir string, fetch Fetch) ([]*feature, error) {
	found := make(map[string]*feature) // by reference and options
	var visit func(wanted map[string]any) error
	visit = func(wanted map[string]any) error {
		for _, ref := range slices.Sorted(maps.Keys(wanted)) {
			key := keyOf(ref, wanted[ref])
			if found[key] != nil {
				continue
			}
			if len(found) == maxFeatures {
				return sandbox.Errorf(sandbox.Invalid, "devcontainer: has more than %d features", maxFeatures)
			}
			f, err := load(ctx, dir, ref, wanted[ref], fetch)
			if err != nil {
				return err
			}
			found[key] = f
			if err := visit(f.DependsOn); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(c.Features); err != nil {
		return nil, err
	}
	return c.sorted(found)
}

// keyOf identifies an installation of a feature. The same feature with other options is another installation.
func keyOf(ref string, options any) string {
	text, _ := json.Marshal(options) // it came from JSON
	return ref + " " + string(text)
}

// sorted orders features in rounds. Each round takes the features whose predecessors are installed, but only those of
// the highest rank in overrideFeatureInstallOrder.
func (c *config) sorted(found map[string]*feature) (ordered []*feature, err error) {
	rank := make(map[string]int) // the earlier in the list, the higher
	for i, ref := range c.Order {
		rank[unversioned(ref)] = len(c.Order) - i
	}
	waiting := slices.SortedFunc(maps.Values(found), func(a, b *feature) int {
		return cmp.Or(cmp.Compare(a.ref, b.ref), cmp.Compare(keyOf("", a.options), keyOf("", b.options)))
	})
	for len(waiting) > 0 {
		var ready []*feature
		highest := 0
		for _, f := range waiting {
			if !waitsFor(f, waiting) {
				ready, highest = append(ready, f), max(highest, rank[f.name()])
			}
		}
		if len(ready) == 0 {
			return nil, sandbox.Errorf(sandbox.Invalid, "devcontainer: the features %s wait for each other", names(waiting))
		}
		ready = slices.DeleteFunc(ready, func(f *feature) bool { return rank[f.name()] < highest })
		ordered = append(ordered, ready...)
		waiting = slices.DeleteFunc(waiting, func(f *feature) bool { return slices.Contains(ready, f) })
	}
	return ordered, nil
}

// waitsFor reports whether one of the waiting features must be installed before f.
func waitsFor(f *feature, waiting []*feature) bool {
	return slices.ContainsFunc(waiting, func(other *feature) bool {
		if other == f {
			return false
		}
		for ref, options := range f.DependsOn {
			if keyOf(ref, options) == keyOf(other.ref, other.options) {
				return true
			}
		}
		return slices.ContainsFunc(f.InstallsAfter, func(ref string) bool { return unversioned(ref) == other.name() })
	})
}

func names(features []*feature) string {
	var all []string
	for _, f := range features {
		all = append(all, f.ref)
	}
	return fmt.Sprint(all)
}
