package diagnose_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestFieldsBecomeErrorsOnTheirAttributes(t *testing.T) {
	t.Parallel()
	err := sandbox.InvalidFields("lease",
		[]sandbox.Field{{Name: "settings.ttl", Problem: "must be at least 1s"}, {Name: "other", Problem: "is wrong"}})
	diags := diagnose.Failed("Invalid Lease", err, func(field string) (path.Path, string, bool) {
		return path.Root("ttl"), "ttl", field == "settings.ttl"
	})
	want := diag.Diagnostics{
		diag.NewAttributeErrorDiagnostic(path.Root("ttl"), "Invalid Lease", "ttl must be at least 1s."),
		diag.NewErrorDiagnostic("Invalid Lease", "other is wrong."),
	}
	if !diags.Equal(want) {
		t.Errorf("got %v", diags)
	}
}

// A limit of the token is an error of the attribute that exceeds it, and says whom to ask.
func TestLimitsOfATokenAreErrorsOnTheirAttributes(t *testing.T) {
	t.Parallel()
	tenant := &sandbox.Tenant{Name: "team", Environments: []string{"team-*"}}
	spec := sandbox.EnvironmentSpec{Network: sandbox.NetworkFull}.WithDefaults()
	d := diagnose.Failed("Checking Environment Failed", tenant.Check(spec), func(field string) (path.Path, string, bool) {
		return path.Root(field), field, true
	})[0]
	at, ok := d.(diag.DiagnosticWithPath)
	if !ok || !at.Path().Equal(path.Root("network")) {
		t.Fatalf("it is not on the attribute: %v", d)
	}
	for _, says := range []string{"network must be at most restricted, not full (ceiling network).\n\nToken team is limited to",
		"ask the operator to raise the ceiling"} {
		if !strings.Contains(d.Detail(), says) {
			t.Errorf("it does not say %q: %s", says, d.Detail())
		}
	}
}

// What was done replaces the claim that nothing was. The next step stays.
func TestWhatWasDoneIsSaid(t *testing.T) {
	t.Parallel()
	const done = "The image was made."
	for code, want := range map[sandbox.Code]string{
		sandbox.Unavailable:      done + " Run Terraform again once the engine and the service are reachable.",
		sandbox.Timeout:          done + " Run Terraform again.",
		sandbox.CapacityExceeded: done + " Run Terraform again once the backend has room.",
		sandbox.Failed:           done,
	} {
		d := diagnose.Partly("X", sandbox.Errorf(code, "do it: no"), nil, done)[0]
		if d.Detail() != "do it: no.\n\n"+want {
			t.Errorf("%s: %s", code, d.Detail())
		}
	}
}

// An operation that was refused has changed nothing. Any other may have changed something.
func TestWhatMayHaveBeenDoneIsSaidUnlessTheOperationWasRefused(t *testing.T) {
	t.Parallel()
	const done = "The lease may have ended."
	for code, says := range map[sandbox.Code]bool{
		sandbox.Unavailable: true, sandbox.UnknownOutcome: true, sandbox.Timeout: true, sandbox.Failed: true, sandbox.Internal: true,
		sandbox.Forbidden: false, sandbox.Conflict: false, sandbox.Unauthenticated: false,
	} {
		d := diagnose.Begun("X", sandbox.Errorf(code, "do it: no"), nil, done)[0]
		if strings.Contains(d.Detail(), done) != says {
			t.Errorf("%s: %s", code, d.Detail())
		}
	}
}

// Every error that the user did not cause says what to do next.
func TestWhatToDoNext(t *testing.T) {
	t.Parallel()
	for code, says := range map[sandbox.Code]string{
		sandbox.Unavailable:      "state is unchanged",
		sandbox.UnknownOutcome:   "it finds what was created",
		sandbox.Timeout:          "it finds what was created",
		sandbox.CapacityExceeded: "room",
		sandbox.EnvironmentEnded: "epoch",
		sandbox.Internal:         "defect",
	} {
		d := diagnose.Failed("Doing It Failed", sandbox.Errorf(code, "do it: no"), nil)[0]
		if d.Summary() != "Doing It Failed" || !strings.HasPrefix(d.Detail(), "do it: no.\n\n") ||
			!strings.Contains(d.Detail(), says) {
			t.Errorf("%s: %s", code, d.Detail())
		}
	}
	if d := diagnose.Failed("X", errors.New("no code"), nil)[0]; !strings.Contains(d.Detail(), "defect") {
		t.Errorf("an error without a code: %s", d.Detail())
	}
	if d := diagnose.Failed("X", sandbox.Errorf(sandbox.Failed, "build:\n\nStep 1 : COPY . /"),
		nil)[0]; d.Detail() != "build:\n\nStep 1 : COPY . /" {
		t.Errorf("a log was changed: %q", d.Detail())
	}
}
