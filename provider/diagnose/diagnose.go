// Package diagnose turns errors of the lease service into Terraform diagnostics. The summary names the action. The
// detail says what was tried, why it failed and what to do.
package diagnose

import (
	"cmp"
	"errors"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Paths returns the attribute that a field of a request comes from, and the field's name in the configuration. It
// returns false if the field comes from no attribute.
type Paths func(field string) (at path.Path, name string, ok bool)

// Failed returns the diagnostics of a failed operation. Each field of an Invalid or Forbidden error becomes an error of
// its attribute.
func Failed(summary string, err error, paths Paths) diag.Diagnostics {
	return Partly(summary, err, paths, "")
}

// Partly is Failed for an operation that changed something before it failed. done says what it changed, and what of
// this is in Terraform's state.
func Partly(summary string, err error, paths Paths, done string) diag.Diagnostics {
	var e *sandbox.Error
	if errors.As(err, &e) && len(e.Fields) > 0 && paths != nil {
		switch e.Code {
		case sandbox.Invalid:
			return fields(summary, e.Fields, paths, "")
		case sandbox.Forbidden: // the message says who limits it, and how to get more
			return fields(summary, e.Fields, paths, "\n\n"+strings.ToUpper(e.Message[:1])+e.Message[1:]+".")
		}
	}
	return diag.Diagnostics{diag.NewErrorDiagnostic(summary, detail(err, done))}
}

// Begun is Partly for an operation that may have changed something before it failed. An error that refuses the
// operation has changed nothing.
func Begun(summary string, err error, paths Paths, done string) diag.Diagnostics {
	switch sandbox.CodeOf(err) {
	case sandbox.Unavailable, sandbox.UnknownOutcome, sandbox.Timeout, sandbox.Failed, sandbox.Internal:
		return Partly(summary, err, paths, done)
	default:
		return Failed(summary, err, paths)
	}
}

func fields(summary string, list []sandbox.Field, paths Paths, next string) diag.Diagnostics {
	var diags diag.Diagnostics
	for _, f := range list {
		at, name, ok := paths(f.Name)
		if !ok {
			diags.AddError(summary, f.Name+" "+f.Problem+"."+next)
			continue
		}
		diags.AddAttributeError(at, summary, name+" "+f.Problem+"."+next)
	}
	return diags
}

func detail(err error, done string) string {
	text := err.Error()
	if !strings.HasSuffix(text, ".") && !strings.Contains(text, "\n") { // a multi-line text ends in a log
		text += "."
	}
	if next := next(err, done); next != "" {
		text += "\n\n" + next
	}
	return text
}

// next says what has changed and what to do. If done is empty, the error's code decides what has changed.
func next(err error, done string) string {
	switch sandbox.CodeOf(err) {
	case sandbox.Unavailable:
		return cmp.Or(done, "Nothing is known to have changed, and Terraform's state is unchanged.") +
			" Run Terraform again once the engine and the service are reachable."
	case sandbox.UnknownOutcome, sandbox.Timeout:
		if done != "" {
			return done + " Run Terraform again."
		}
		return "It is unknown whether the request took effect. Run Terraform again: it finds what was created."
	default:
		return strings.TrimSpace(done + " " + advice(err))
	}
}

func advice(err error) string {
	switch sandbox.CodeOf(err) {
	case sandbox.CapacityExceeded:
		return "Run Terraform again once the backend has room."
	case sandbox.EnvironmentEnded:
		return "In Terraform, raise the environment's epoch."
	case sandbox.Unauthenticated:
		if sandbox.ReasonOf(err) == sandbox.ReasonRegistryCredentials {
			return ""
		}
		return "Check reconciler.token of the provider, or SANDBOX_RECONCILER_TOKEN."
	case sandbox.Internal:
		return "This is a defect of the provider or of the reconciler; please report it."
	default:
		return ""
	}
}
