package companions

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ReadCompanion implements service.Companions.
func (v *Service) ReadCompanion(ctx context.Context, l sandbox.CompanionLogRequest) (sandbox.ProcessLog, error) {
	if err := output.CheckLogOffset("companion log", l.Offset); err != nil {
		return sandbox.ProcessLog{}, err
	}
	if err := v.mustHave(ctx, l); err != nil { // before the sandbox is woken
		return sandbox.ProcessLog{}, err
	}
	u, err := v.Core.BeginUse(ctx, l.LeaseRef, lifecycle.ClaimTTL, nil)
	if err != nil {
		return sandbox.ProcessLog{}, err
	}
	x, h := u.On()
	return output.OpenLog(ctx, u, func(ctx context.Context, to io.Writer, began func(int64)) error {
		return sendLog(ctx, x, h, l, to, began)
	})
}

// mustHave reports NotFound unless the lease has the companion. Its other errors are those of lifecycle.CheckRef.
func (v *Service) mustHave(ctx context.Context, l sandbox.CompanionLogRequest) error {
	return v.Store.Read(ctx, func(tx *ledger.Tx) error {
		s, _, err := lifecycle.CurrentOf(tx, l.ID)
		if err != nil {
			return err
		}
		if err := lifecycle.CheckRef(s, l.LeaseRef); err != nil {
			return err
		}
		if _, ok := s.Companions[l.Name]; !ok {
			return sandbox.Errorf(sandbox.NotFound, "lease %s has no companion %q in generation %d: get the lease to "+
				"see those it has", l.ID, l.Name, s.Generation).WithReason(sandbox.ReasonCompanionNotFound)
		}
		return nil
	})
}

// sendLog sends the log of a companion's program, or the end of it if the program has ended.
func sendLog(ctx context.Context, x driver.Executor, h driver.Handle, l sandbox.CompanionLogRequest, to io.Writer,
	began func(int64)) error {
	log := output.NewLog(l.Offset, to, began)
	of := fmt.Sprintf("lease %s: companion %s", l.ID, l.Name)
	_, err := x.Follow(ctx, h.Of(l.Name), log.Replay(of, driver.CompanionMain, !l.Follow))
	if err == nil || log.HasBegun() {
		return err
	}
	o, lookErr := x.Inspect(ctx, h)
	is, ok := o.Companions[l.Name]
	switch {
	case lookErr != nil:
		return err
	case !ok:
		return sandbox.Errorf(sandbox.NotFound, "lease %s: the log of companion %s is gone: %s", l.ID, l.Name, removed).
			WithReason(sandbox.ReasonExecNotFound)
	case is.State == sandbox.StateStopped:
		began(0)
		_, err = io.Copy(to, strings.NewReader(is.Output))
		return err
	case sandbox.ReasonOf(err) == sandbox.ReasonExecNotFound: // its program is about to start
		began(0)
		return nil
	default:
		return err
	}
}
