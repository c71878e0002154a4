package registry

import (
	"context"
	"io"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Artifact returns the content of an artifact with one layer, such as a feature of a devcontainer, of at most limit
// bytes. Its digest is verified. Errors: Invalid, also if it has several layers or is larger; those of Digest.
func (c *Client) Artifact(ctx context.Context, ref string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	parsed, options, err := c.on(ctx, ref)
	if err != nil {
		return nil, err
	}
	artifact, err := remote.Image(parsed, options...)
	if err != nil {
		return nil, coded(err, "find %s", parsed)
	}
	layers, err := artifact.Layers()
	if err != nil {
		return nil, coded(err, "read %s", parsed)
	}
	if len(layers) != 1 {
		return nil, sandbox.Errorf(sandbox.Invalid, "registry: %s has %d layers, and an artifact has one: is it an image?",
			parsed, len(layers))
	}
	content, err := layers[0].Compressed()
	if err != nil {
		return nil, coded(err, "read %s", parsed)
	}
	defer func() { _ = content.Close() }() // read to its end, or not needed
	all, err := io.ReadAll(io.LimitReader(content, limit+1))
	if err != nil {
		return nil, coded(err, "read %s", parsed)
	}
	if int64(len(all)) > limit {
		return nil, sandbox.Errorf(sandbox.Invalid, "registry: %s is larger than %d bytes", parsed, limit)
	}
	return all, nil
}
