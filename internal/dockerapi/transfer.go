package dockerapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// FollowTransfer reads the engine's answer to a push or pull to its end, because the answer contains the error. It
// closes the answer, and returns the digest in it, if any. Errors: Failed, Unavailable, Timeout.
func FollowTransfer(ctx context.Context, answer io.ReadCloser) (digest string, err error) {
	defer func() { _ = answer.Close() }() // the answer was read to its end
	for d := json.NewDecoder(answer); ; {
		var m Message
		switch err := d.Decode(&m); {
		case errors.Is(err, io.EOF):
			return digest, nil
		case ctx.Err() != nil:
			return "", sandbox.Errorf(sandbox.Timeout, "stopped before its end: %w", context.Cause(ctx))
		case err != nil:
			return "", sandbox.Errorf(sandbox.Unavailable, "the engine's answer was cut off: %w", err)
		case m.Error != nil:
			return "", sandbox.Errorf(sandbox.Failed, "%s", m.Error.Message)
		}
		if m.Aux == nil {
			continue
		}
		var result struct{ Digest string }
		if err := json.Unmarshal(*m.Aux, &result); err == nil && result.Digest != "" {
			digest = result.Digest
		}
	}
}
