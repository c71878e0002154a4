package cli

import (
	"slices"
	"strings"
)

// oldForms maps the commands of versions before 0.1.0, which all began with `reconciler`, to their present forms.
// Commands that are not listed here have kept their names.
var oldForms = map[string]string{
	"leases":               "lease list",
	"leases acquire":       "lease create",
	"leases acquire-batch": "lease create-batch",
	"leases release":       "lease release",
	"leases usage":         "lease usage",
	"leases health":        "lease health",
	"environments":         "env list",
	"environments reopen":  "env reopen",
	"execs":                "command list",
	"execs cancel":         "command cancel",
	"execs logs":           "command logs",
	"sessions":             "session",
	"processes":            "process",
	"agents":               "agent list",
	"files":                "file",
	"costs":                "cost",
	"llm-calls":            "llm-call list",
	"states":               "state list",
	"states delete":        "state delete",
}

// oldValueFlags are the flags with a value that old commands accepted between their words.
var oldValueFlags = []string{"--url", "--token-file", "--output", "-o", "--generation", "--ledger"}

// modern returns the present form of arguments, and the words of the old form, "" if the arguments are not in it.
func modern(args []string) (now []string, old string) {
	words := wordsAt(args, 3)
	if len(words) == 0 {
		return args, ""
	}
	drop := words[:0:0]
	if args[words[0]] == "reconciler" {
		drop, words = words[:1], words[1:]
	}
	into := ""
	for n := min(2, len(words)); n > 0 && into == ""; n-- {
		if into = oldForms[textAt(args, words[:n])]; into != "" {
			drop = append(drop, words[:n]...)
		}
	}
	if len(drop) == 0 {
		return args, ""
	}
	old = textAt(args, drop)
	if into == "" && len(words) > 0 {
		old += " " + args[words[0]]
	}
	now = strings.Fields(into)
	for i, arg := range args {
		if !slices.Contains(drop, i) {
			now = append(now, arg)
		}
	}
	return now, old
}

// wordsAt returns the places of the first n arguments that are neither flags nor values of oldValueFlags.
func wordsAt(args []string, n int) (at []int) {
	for i := 0; i < len(args) && len(at) < n && args[i] != "--"; i++ {
		switch {
		case slices.Contains(oldValueFlags, args[i]):
			i++
		case !strings.HasPrefix(args[i], "-"):
			at = append(at, i)
		}
	}
	return at
}

func textAt(args []string, at []int) string {
	words := make([]string, len(at))
	for i, n := range at {
		words[i] = args[n]
	}
	return strings.Join(words, " ")
}

// leading returns the words that begin the present form of arguments.
func leading(args []string) []string {
	n := 1
	for _, form := range oldForms {
		if words := strings.Fields(form); len(words) > n && len(args) >= len(words) &&
			slices.Equal(words, args[:len(words)]) {
			n = len(words)
		}
	}
	return args[:min(n, len(args))]
}
