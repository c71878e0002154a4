package registry

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// coded gives an error of a registry a code; nil stays nil. An error without a registry's answer is
// Unavailable.
func coded(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	var own *sandbox.Error
	if errors.As(err, &own) {
		return own
	}
	code, next := sandbox.Unavailable, ""
	var answer *transport.Error
	switch {
	case errors.As(err, &answer) && forgotten(answer):
		next = ". The registry removed a part of the image meanwhile: retry, and the part is sent again"
	case errors.As(err, &answer):
		code, next = codeOf(answer.StatusCode)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		code = sandbox.Timeout
	}
	e := sandbox.Errorf(code, "registry: "+format+": %w%s", append(args, err, next)...)
	if code == sandbox.Unauthenticated {
		e = e.WithReason(sandbox.ReasonRegistryCredentials)
	}
	return e
}

// forgotten reports whether a registry no longer has a part that it received: a started upload, or a layer that it
// cleaned up before the image arrived.
func forgotten(answer *transport.Error) bool {
	return slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool {
		return d.Code == transport.ManifestBlobUnknownErrorCode || d.Code == transport.BlobUploadUnknownErrorCode ||
			d.Code == transport.BlobUploadInvalidErrorCode
	})
}

// codeOf returns the code for a registry's HTTP status, and advice.
func codeOf(status int) (code sandbox.Code, next string) {
	switch {
	case status == http.StatusNotFound:
		return sandbox.NotFound, ""
	case status == http.StatusUnauthorized:
		return sandbox.Unauthenticated, ". Check the name and password of registry_auth or, without one, log in with " +
			"docker login; for Cloudflare's registry check the API token"
	case status == http.StatusForbidden:
		return sandbox.Forbidden, ". These credentials have no permission for it"
	case status == http.StatusRequestEntityTooLarge:
		return sandbox.Invalid, ". A layer is too large for the registry: make smaller layers with more " +
			"steps in the Dockerfile"
	case status == http.StatusPaymentRequired, status == http.StatusInsufficientStorage:
		return sandbox.CapacityExceeded, ". The registry is full: remove unused images"
	case status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		return sandbox.Forbidden, ". The registry does not support this"
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return sandbox.Unavailable, ""
	default:
		return sandbox.Invalid, ""
	}
}
