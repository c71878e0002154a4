package helper

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// PutSecrets implements driver.SecretWriter. The guest reads the secrets from its standard input, so that no argument,
// variable, label or layer contains them.
func (g Guests) PutSecrets(ctx context.Context, h driver.Handle, secrets map[string]sandbox.Secret) error {
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	var err error
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		value := []byte(secrets[name])
		err = errors.Join(err,
			tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o400, Size: int64(len(value))}))
		_, writeErr := tw.Write(value)
		err = errors.Join(err, writeErr)
	}
	if err = errors.Join(err, tw.Close()); err != nil {
		return sandbox.Errorf(sandbox.Failed, "%s: sandbox %s: pack its secrets: %w", g.backend, h.SandboxID, err)
	}
	return g.transfer(ctx, h, "write files under "+sandbox.SecretsDir, sandbox.ReasonWriteFailed,
		Call{Request: channel.Request{Op: channel.OpSecrets}, Stdin: &archive})
}
