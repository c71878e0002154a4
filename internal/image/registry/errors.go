package registry

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// coded gives an error of a registry its code, and nil to nil. What reached no registry is Unavailable.
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
		next = ". It has removed a part of the image meanwhile: repeat it, and the part is sent again"
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

// forgotten reports that a registry does not know a part which it was given before: an upload that was begun, or a
// layer that it has cleaned away before its image came.
func forgotten(answer *transport.Error) bool {
	return slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool {
		return d.Code == transport.ManifestBlobUnknownErrorCode || d.Code == transport.BlobUploadUnknownErrorCode || d.Code == transport.BlobUploadInvalidErrorCode
	})
}

// codeOf returns the code of a registry's HTTP status, and what to do about it.
func codeOf(status int) (code sandbox.Code, next string) {
	switch {
	case status == http.StatusNotFound:
		return sandbox.NotFound, ""
	case status == http.StatusUnauthorized:
		return sandbox.Unauthenticated, ". Check the name and password of registry_auth or, without one, log in with docker login; to Cloudflare's registry its API token leads"
	case status == http.StatusForbidden:
		return sandbox.Forbidden, ". These credentials do not allow it"
	case status == http.StatusRequestEntityTooLarge:
		return sandbox.Invalid, ". The registry takes no layer of that size: make smaller ones, with more steps of the Dockerfile"
	case status == http.StatusPaymentRequired, status == http.StatusInsufficientStorage:
		return sandbox.CapacityExceeded, ". The registry has no room left: remove images that nothing uses"
	case status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		return sandbox.Forbidden, ". The registry does not offer this"
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return sandbox.Unavailable, ""
	default:
		return sandbox.Invalid, ""
	}
}
