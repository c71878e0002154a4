package ledger

import "github.com/sandbox-lease/terraform-provider-sandbox/sandbox"

// Unmade reports whether the environment is being created for the first time.
func (e *Environment) Unmade() bool {
	return e.UnmadeSince != 0 && (e.Status == sandbox.EnvironmentOpen || e.Status == sandbox.EnvironmentClosed)
}

// KnownEnvironment returns an environment. Errors: NotFound.
func (tx *Tx) KnownEnvironment(id string) (*Environment, error) {
	row, err := tx.Environment(id)
	if err == nil && row == nil {
		err = sandbox.Errorf(sandbox.NotFound, "there is no environment %q on this ledger: create it first", id)
	}
	return row, err
}
