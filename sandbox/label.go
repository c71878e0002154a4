package sandbox

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Bounds of labels.
const (
	MaxLabels          = 32  // of one environment or of one lease
	MaxLabelKeyLength  = 63  // bytes
	MaxLabelValueBytes = 256 // bytes; a value may be empty
)

// labelKey is the form of a label's key. It excludes = and the comma, which separate keys in a LabelSelector.
var labelKey = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$`)

// labelFields checks the labels of an environment or a lease.
func labelFields(name string, labels map[string]string) (f []Field) {
	bad := func(key, problem string, args ...any) {
		f = append(f, Field{name + "." + key, fmt.Sprintf(problem, args...)})
	}
	if len(labels) > MaxLabels {
		f = append(f, Field{name, fmt.Sprintf("must be at most %d labels, not %d", MaxLabels, len(labels))})
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if len(key) > MaxLabelKeyLength || !labelKey.MatchString(key) {
			bad(key, "is not a valid key: use 1 to %d letters, digits, and . _ / - between them", MaxLabelKeyLength)
		}
		if value := labels[key]; len(value) > MaxLabelValueBytes || strings.ContainsFunc(value, notInLabel) {
			bad(key, "must be at most %d bytes, without commas and control characters", MaxLabelValueBytes)
		}
	}
	return f
}

func notInLabel(r rune) bool { return r == ',' || unicode.IsControl(r) || r == unicode.ReplacementChar }

// EffectiveLabels returns the labels of a lease: its own and those of its environment. The environment wins if both
// have a key, so that no lease can charge its cost to others.
func EffectiveLabels(environment, own map[string]string) map[string]string {
	labels := make(map[string]string, len(environment)+len(own))
	maps.Copy(labels, own)
	maps.Copy(labels, environment)
	return labels
}

// CheckLabels refuses labels of a lease to which its environment gives another value. Errors: Invalid.
func (s LeaseSettings) CheckLabels(environment map[string]string) error {
	var f []Field
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		if value, has := environment[key]; has && value != s.Labels[key] {
			f = append(f, Field{"settings.labels." + key, fmt.Sprintf("is %q on the environment: leave it out", value)})
		}
	}
	return InvalidFields("lease", f)
}

// LabelSelector selects by labels: key=value for a label with this value, key for any value; several, separated by
// commas, must all match. "" selects all.
type LabelSelector string

// LabelMatch is one condition of a selector. Value is nil if any value matches.
type LabelMatch struct {
	Key   string
	Value *string
}

// Matches returns the conditions of the selector.
func (s LabelSelector) Matches() (all []LabelMatch) {
	if s == "" {
		return nil
	}
	for condition := range strings.SplitSeq(string(s), ",") {
		key, value, exact := strings.Cut(condition, "=")
		m := LabelMatch{Key: strings.TrimSpace(key)}
		if exact {
			m.Value = &value
		}
		all = append(all, m)
	}
	return all
}

// Selects reports whether labels match.
func (s LabelSelector) Selects(labels map[string]string) bool {
	for _, m := range s.Matches() {
		value, has := labels[m.Key]
		if !has || m.Value != nil && *m.Value != value {
			return false
		}
	}
	return true
}

// Validate checks the selector. Errors: Invalid, naming the field labels.
func (s LabelSelector) Validate() error { return InvalidFields("the filter", s.fields()) }

func (s LabelSelector) fields() (f []Field) {
	for _, m := range s.Matches() {
		if len(m.Key) > MaxLabelKeyLength || !labelKey.MatchString(m.Key) {
			f = append(f, Field{"labels", fmt.Sprintf("must be keys or key=value, separated by commas: %q is not a key", m.Key)})
		}
	}
	return f
}
