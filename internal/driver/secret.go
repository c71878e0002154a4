package driver

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// SecretWriter writes secrets into sandboxes.
type SecretWriter interface {
	// PutSecrets replaces the content of SecretsDir in an awake sandbox. Each secret is written atomically.
	// It is idempotent. Secrets are in memory: stopping a sandbox removes them. Errors: NotFound, Conflict
	// with ReasonInvalidState (asleep), Failed.
	PutSecrets(ctx context.Context, h Handle, secrets map[string]sandbox.Secret) error
}
