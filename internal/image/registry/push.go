package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// CheckPush checks that the credentials may push to the repository of a reference, before an image is built
// for it. It starts an upload and cancels it. Errors: Invalid, Unauthenticated, Forbidden, Unavailable.
func (c *Client) CheckPush(ctx context.Context, ref string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	parsed, err := parse(ref)
	if err != nil {
		return err
	}
	return coded(c.tryUpload(ctx, parsed.Context()), "push to %s", parsed.Context())
}

func (c *Client) tryUpload(ctx context.Context, repo name.Repository) error {
	rt, err := c.transport(repo.RegistryStr())
	if err != nil {
		return err
	}
	auth, err := c.Resolve(repo)
	if err != nil {
		return err
	}
	rt, err = transport.NewWithContext(ctx, repo.Registry, auth, rt, []string{repo.Scope(transport.PushScope)})
	if err != nil {
		return err
	}
	uploads := fmt.Sprintf("%s://%s/v2/%s/blobs/uploads/", repo.Scheme(), repo.RegistryStr(), repo.RepositoryStr())
	upload, err := send(ctx, rt, http.MethodPost, uploads, http.StatusAccepted)
	if err != nil {
		return err
	}
	// A registry forgets an upload that is not cancelled. Some cannot cancel uploads at all.
	_, err = send(ctx, rt, http.MethodDelete, upload, http.StatusNoContent, http.StatusOK, http.StatusAccepted)
	if answered := (*transport.Error)(nil); errors.As(err, &answered) {
		return nil
	}
	return err
}

// send makes a request without a body, and returns the Location header of the answer.
func send(ctx context.Context, rt http.RoundTripper, method, url string, want ...int) (location string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if err := transport.CheckError(resp, want...); err != nil {
		return "", err
	}
	switch found, err := resp.Location(); {
	case errors.Is(err, http.ErrNoLocation):
		return "", nil
	case err != nil:
		return "", err
	default:
		return found.String(), nil
	}
}

// Push sends an image to a reference. It skips layers that the registry already has, in that repository or in the one
// that a layer was read from. So a retry resumes an interrupted push. Only ctx limits its time. Errors: Invalid,
// Unauthenticated, Forbidden, CapacityExceeded, Unavailable, Timeout.
func (c *Client) Push(ctx context.Context, ref string, img v1.Image) error {
	parsed, options, err := c.on(ctx, ref)
	if err != nil {
		return err
	}
	return coded(remote.Write(parsed, img, options...), "push %s", parsed)
}

// Copy copies an image, with all platforms, from one reference to others, possibly in other registries. It
// skips what exists there. Only ctx limits its time. Errors: NotFound, if the image does not exist; Invalid,
// Unauthenticated, Forbidden, Unavailable.
func (c *Client) Copy(ctx context.Context, from string, to ...string) error {
	source, err := parse(from)
	if err != nil {
		return err
	}
	options, err := c.options(ctx, source)
	if err != nil {
		return err
	}
	found, err := remote.Get(source, options...)
	if err != nil {
		return coded(err, "read %s", source)
	}
	for _, ref := range to {
		target, err := parse(ref)
		if err != nil {
			return err
		}
		if options, err = c.options(ctx, target); err != nil {
			return err
		}
		if err := remote.Push(target, found, options...); err != nil {
			return coded(err, "copy %s to %s", source, target)
		}
	}
	return nil
}
