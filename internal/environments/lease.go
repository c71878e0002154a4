package environments

import (
	"errors"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ErrUnmade is wrapped by the error of MayLease while the environment is being created. Await waits for the creation.
var ErrUnmade = errors.New("it is being created")

// MayLease refuses leases that an environment does not grant any more. spec is the lease's. Errors: Unavailable with
// ErrUnmade; EnvironmentEnded; NotFound if it is destroyed, or being deleted.
func MayLease(env *ledger.Environment, spec sandbox.EnvironmentSpec) error {
	if env.Unmade() {
		return sandbox.Errorf(sandbox.Unavailable, "environment %s: %w: ask again", env.ID, ErrUnmade)
	}
	switch env.Status {
	case sandbox.EnvironmentOpen:
		return nil
	case sandbox.EnvironmentClosed:
		for _, c := range env.Ended.Conditions {
			if slices.Contains(spec.ExpiryConditions, c) {
				return sandbox.Errorf(sandbox.EnvironmentEnded, "environment %s ended by %s at %s and grants no leases that %s "+
					"would end: reopen it first", env.ID, c, env.Ended.At.Time().Format(time.RFC3339), c)
			}
		}
		return nil
	default:
		return sandbox.Errorf(sandbox.NotFound, "environment %s is %s: create it first", env.ID, env.Status)
	}
}
