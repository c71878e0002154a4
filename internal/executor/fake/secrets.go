package fake

import (
	"context"
	"maps"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// PutSecrets implements driver.SecretWriter.
func (x *Executor) PutSecrets(ctx context.Context, h driver.Handle, secrets map[string]sandbox.Secret) error {
	b, err := x.running(ctx, OpPutSecrets, h)
	if err != nil {
		return err
	}
	defer x.mu.Unlock()
	b.secrets = maps.Clone(secrets)
	return nil
}

// Secrets returns the secrets of a sandbox.
func (x *Executor) Secrets(sandboxID string) map[string]sandbox.Secret {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b, ok := x.containers[sandboxID]; ok {
		return maps.Clone(b.secrets)
	}
	return nil
}
