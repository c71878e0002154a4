// Package flags has flags that reject an empty value. A script passes one when a variable is not set. The command must
// not treat it as a missing flag, which may mean more, such as a token for all environments.
package flags

import (
	"encoding/csv"
	"errors"
	"strings"

	"github.com/spf13/pflag"
)

var (
	errEmpty   = errors.New("must not be empty; leave it out for the default")
	errElement = errors.New("must not have an empty element")
)

// List adds a flag that takes a list and may be repeated. Commas separate its elements, and none may be empty.
func List(f *pflag.FlagSet, to *[]string, name string, value []string, usage string) {
	*to = value
	f.Var(&list{to: to}, name, usage)
}

// Filter adds a flag that selects a part of the objects of a command.
func Filter(f *pflag.FlagSet, to *string, name, usage string) {
	f.Var((*filter)(to), name, usage)
}

// list implements pflag.SliceValue.
type list struct {
	to    *[]string
	given bool // the default is replaced
}

// Type returns pflag's name of a list, which makes shells offer the flag again.
func (*list) Type() string { return "stringSlice" }

// String returns the elements as Set reads them, in brackets, and "" for an empty list.
func (l *list) String() string {
	if l.to == nil || len(*l.to) == 0 {
		return ""
	}
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write(*l.to) // a strings.Builder never fails
	w.Flush()
	return "[" + strings.TrimSuffix(b.String(), "\n") + "]"
}

// Set adds elements. The first call replaces the default.
func (l *list) Set(text string) error {
	if strings.TrimSpace(text) == "" {
		return errEmpty
	}
	elements, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return err
	}
	if err := check(elements); err != nil {
		return err
	}
	if l.given {
		elements = append(*l.to, elements...)
	}
	*l.to, l.given = elements, true
	return nil
}

// Append implements pflag.SliceValue.
func (l *list) Append(element string) error {
	if err := check([]string{element}); err != nil {
		return err
	}
	*l.to = append(*l.to, element)
	return nil
}

// Replace implements pflag.SliceValue. The list may be empty: a file of settings has no unset variables.
func (l *list) Replace(elements []string) error {
	if err := check(elements); err != nil {
		return err
	}
	*l.to, l.given = elements, true
	return nil
}

// GetSlice implements pflag.SliceValue.
func (l *list) GetSlice() []string { return *l.to }

func check(elements []string) error {
	for _, e := range elements {
		if strings.TrimSpace(e) == "" {
			return errElement
		}
	}
	return nil
}

type filter string

func (*filter) Type() string     { return "string" }
func (f *filter) String() string { return string(*f) }

func (f *filter) Set(text string) error {
	if strings.TrimSpace(text) == "" {
		return errEmpty
	}
	*f = filter(text)
	return nil
}
