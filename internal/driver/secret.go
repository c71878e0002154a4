package driver

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// SecretBearer brings secrets into sandboxes.
type SecretBearer interface {
	// PutSecrets makes the secrets given the only ones in SecretsDir of a sandbox that is awake. Each
	// appears whole, in place of an older one; putting the same again does no harm.
	// They lie in memory: a sandbox that was stopped has none. Errors: NotFound, Conflict with
	// ReasonInvalidState (asleep), Failed.
	PutSecrets(ctx context.Context, h Handle, secrets map[string]sandbox.Secret) error
}
