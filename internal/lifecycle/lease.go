package lifecycle

import (
	"errors"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CurrentOf returns a lease's current sandbox and the end of its last hold. Errors: NotFound, Invalid.
func CurrentOf(tx *ledger.Tx, leaseID string) (*ledger.Sandbox, micro.Time, error) {
	if _, _, err := sandbox.ParseLeaseID(leaseID); err != nil {
		return nil, 0, err
	}
	s, err := tx.Current(leaseID)
	if err != nil {
		return nil, 0, err
	}
	if s == nil {
		return nil, 0, sandbox.Errorf(sandbox.NotFound,
			"there is no lease %s on this ledger: check the id and the ledger", leaseID).
			WithReason(sandbox.ReasonSandboxNotFound)
	}
	held, err := tx.Holds().Until(s.ID)
	return s, held, err
}

// CheckRef refuses a request that names another generation or owner than the lease's.
func CheckRef(s *ledger.Sandbox, r sandbox.LeaseRef) error {
	if r.Generation != 0 && r.Generation != s.Generation {
		return sandbox.Errorf(sandbox.Conflict, "lease %s is in generation %d, and the request is for generation %d: "+
			"nothing was changed", r.ID, s.Generation, r.Generation).WithReason(sandbox.ReasonOtherGeneration)
	}
	if r.Owner != "" && r.Owner != s.Owner {
		return sandbox.Errorf(sandbox.Conflict, "lease %s belongs to %s, and the request is by %s: nothing was changed",
			r.ID, s.Owner, r.Owner).WithReason(sandbox.ReasonOtherOwner)
	}
	return nil
}

// ErrEnded says that a lease has ended and why.
func ErrEnded(s *ledger.Sandbox, held, now micro.Time) error {
	end := Ending{By: s.Ending.By, Reason: s.Ending.Reason, At: s.Ending.At}
	if up := TimeUp(s, held, now); up != nil && s.Desired == ledger.Present {
		end = *up
	}
	return sandbox.Errorf(sandbox.LeaseEnded,
		"lease %s generation %d ended at %s by %s (%s): acquire it again to get its next generation; in "+
			"Terraform, plan again",
		s.Lease(), s.Generation, end.At.Time().Format(time.RFC3339), end.By, end.Reason)
}

// MustSandbox is ledger.Tx.KnownSandbox.
func MustSandbox(tx *ledger.Tx, id string) (*ledger.Sandbox, error) { return tx.KnownSandbox(id) }

func sandboxAndHold(tx *ledger.Tx, id string) (*ledger.Sandbox, micro.Time, error) {
	s, err := MustSandbox(tx, id)
	if err != nil {
		return nil, 0, err
	}
	held, err := tx.Holds().Until(id)
	return s, held, err
}

// AsError gives an error of a step its own code, even if it is wrapped.
func AsError(err error) error {
	var e *sandbox.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	return &sandbox.Error{Code: e.Code, Reason: e.Reason, Fields: e.Fields, Message: err.Error(), Err: err}
}
