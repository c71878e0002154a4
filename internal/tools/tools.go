// Package tools checks that the image of a sandbox has the tools that its environment names, before the lease is ready.
package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/lookup"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// timeout limits the command of a check.
	timeout = sandbox.Duration(30 * time.Second)
	// overdue is how long after that the backend may take to report its end, because a backend may hang.
	overdue = 15 * time.Second
)

// Checker is a hook. Its zero value is ready for use.
type Checker struct{}

var _ lifecycle.Preparer = Checker{}

// Prepare implements lifecycle.Preparer. The fill only reads, as the sandbox's user.
func (Checker) Prepare(_ *ledger.Tx, _ *ledger.Sandbox, b lifecycle.Beginning) (lifecycle.Fill, error) {
	names := b.Spec.BuiltinTools
	if b.Action != lifecycle.Spawn && b.Action != lifecycle.Assign || len(names) == 0 || b.InUse {
		return nil, nil
	}
	return func(ctx context.Context, t *lifecycle.Step) (lifecycle.Settle, error) {
		return nil, check(ctx, t, names)
	}, nil
}

// check looks for all tools in one command. Errors: Failed with ReasonToolMissing, which names the image and each
// missing tool; as Runner.Exec.
func check(ctx context.Context, t *lifecycle.Step, names []string) error {
	var needs []string
	for _, name := range names {
		needs = append(needs, needsOf(name)...)
	}
	slices.Sort(needs)
	r, err := sandbox.ExecRequest{
		Command: append([]string{guest.Path, lookup.Command}, slices.Compact(needs)...), Timeout: timeout,
	}.Normalize()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, timeout.D()+overdue)
	defer cancel()
	res, err := t.On.Exec(bounded, t.Handle, r)
	if err != nil {
		return err
	}
	if res.ExitCode != 0 {
		return sandbox.Errorf(sandbox.Failed, "sandbox %s: looking for its builtin_tools ended with exit code %d: %s",
			t.Row.ID, res.ExitCode, strings.TrimSpace(string(res.Stderr)))
	}
	missing := strings.Fields(string(res.Stdout))
	if len(missing) == 0 {
		return nil
	}
	return sandbox.Errorf(sandbox.Failed,
		"image %s lacks %s; add it to the image, or remove the tool from builtin_tools, and lease again",
		t.Row.Image, describe(names, missing)).WithReason(sandbox.ReasonToolMissing)
}

// needsOf returns what a tool needs, in the syntax of package lookup.
func needsOf(name string) []string {
	tool := sandbox.BuiltinTool(name)
	needs := slices.Clone(tool.Programs)
	if len(tool.Files) > 0 {
		needs = append(needs, strings.Join(tool.Files, lookup.Separator))
	}
	return needs
}

// describe returns a text with the missing programs and the tools that need them.
func describe(names, missing []string) string {
	var all []string
	for _, need := range missing {
		what := fmt.Sprintf("the program %s", need)
		if strings.HasPrefix(need, "/") {
			what = "every one of the files " + strings.ReplaceAll(need, lookup.Separator, ", ")
		}
		var of []string
		for _, name := range names {
			if slices.Contains(needsOf(name), need) {
				of = append(of, name)
			}
		}
		all = append(all, fmt.Sprintf("%s of %s", what, strings.Join(of, ", ")))
	}
	return strings.Join(all, "; ")
}
