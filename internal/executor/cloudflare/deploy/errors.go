package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Permission is a permission group of an API token, by its name in Cloudflare's API.
type Permission string

// Permissions are the permissions that the token needs, all at the level of the account.
var Permissions = []Permission{permScripts, permContainers, permD1, permR2}

const (
	permScripts    Permission = "Workers Scripts Write"
	permContainers Permission = "Workers Containers Write"
	permD1         Permission = "D1 Write"
	permR2         Permission = "Workers R2 Storage Write"
)

// PermAnalytics is an optional permission of the token, to compare usage with Cloudflare's figures.
const PermAnalytics Permission = "Account Analytics Read"

// refusal is an answer that reports a failure.
type refusal struct {
	status int
	// codes are Cloudflare's own.
	codes []int
	text  string // of the answer, for readers
	raw   string
}

func newRefusal(status int, body []byte) *refusal {
	var envelope struct {
		Errors []struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	}
	r := &refusal{status: status, raw: string(body)}
	if err := json.Unmarshal(body, &envelope); err == nil {
		for _, e := range envelope.Errors {
			r.codes = append(r.codes, e.Code)
			r.text += fmt.Sprintf("; %s (code %d)", e.Message, e.Code)
		}
	}
	r.text = strings.TrimPrefix(r.text, "; ")
	if r.text == "" {
		r.text = strings.TrimSpace(r.raw)
	}
	if len(r.text) > maxShown {
		r.text = strings.ToValidUTF8(r.text[:maxShown], "") + "…"
	}
	return r
}

func (r *refusal) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("Cloudflare answers %d %s: %s", r.status, http.StatusText(r.status), r.text),
		": ")
}

func (r *refusal) has(codes ...int) bool {
	return slices.ContainsFunc(r.codes, func(c int) bool { return slices.Contains(codes, c) })
}

func (r *refusal) says(words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(r.raw, w) })
}

// Cloudflare's error codes and words (from its API reference, and those that wrangler handles; read 2026-11). The API
// of containers has one code, 1000, for many refusals. A word tells them apart.
const (
	codeTokenInvalid  = 1000
	codeTokenUnknown  = 1001
	codeHeaders       = 6003
	codeAccessToken   = 9109
	codeD1Exists      = 7502
	codeBucketExists  = 10004
	codeManyWorkers   = 10037
	codeVersionAbsent = 100146

	wordBaseLimits  = "SURPASSED_BASE_LIMITS"
	wordTotalLimits = "SURPASSED_TOTAL_LIMITS"
	wordNoImage     = "IMAGE_REGISTRY_DOESNT_CONTAIN_IMAGE"
	wordNoRegistry  = "IMAGE_REGISTRY_NOT_CONFIGURED"
)

// step is one request to Cloudflare.
type step struct {
	// what describes the request and its object, for errors.
	what string
	// changes reports that the request changes something: if its answer is lost, its outcome is unknown.
	changes bool
	needs   Permission
}

// fail gives the error of a step its code, and adds what was tried, where, and what to do.
func (d *Deployer) fail(s step, err error) error {
	if err == nil {
		return nil
	}
	was := fmt.Sprintf("cloudflare: account %s: %s", d.account, s.what)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return refused.coded(was, s)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sandbox.Errorf(sandbox.Timeout, "%s: no answer in time: %w", was, err)
	case s.changes && !neverSent(err):
		return sandbox.Errorf(sandbox.UnknownOutcome, "%s: the answer was lost: %w; retry: it continues where it stopped",
			was, err)
	default:
		return sandbox.Errorf(sandbox.Unavailable, "%s: %w", was, err)
	}
}

// coded returns the error of a step that Cloudflare refused.
func (r *refusal) coded(was string, s step) error {
	code, advice := sandbox.Failed, ""
	denied := r.status == http.StatusUnauthorized || r.status == http.StatusForbidden
	switch {
	case r.has(codeManyWorkers):
		code, advice = sandbox.CapacityExceeded, ": each environment of the scheduling policy default has one: "+
			"remove some, ask Cloudflare to raise the limit, or configure durable_object, whose environments share one"
	case r.has(codeHeaders), denied && r.has(codeTokenInvalid, codeTokenUnknown, codeAccessToken):
		code, advice = sandbox.Unauthenticated, ": is CLOUDFLARE_API_TOKEN a token that has not expired?"
	case denied:
		return (&forbidden{was: was, missing: []Permission{s.needs}, err: r}).coded()
	case r.status == http.StatusTooManyRequests:
		code, advice = sandbox.Unavailable, ": wait for five minutes; one token may make 1,200 calls in five minutes"
	case r.says(wordBaseLimits, wordTotalLimits):
		code, advice = sandbox.CapacityExceeded, ": the account's limits do not allow it: ask for fewer or smaller "+
			"instances, or ask Cloudflare to raise the limits"
	case r.says(wordNoImage, wordNoRegistry):
		return sandbox.Errorf(sandbox.NotFound, "%s: %w", was, r).WithReason(sandbox.ReasonImageNotFound)
	case r.status >= http.StatusInternalServerError && s.changes:
		code, advice = sandbox.UnknownOutcome, "; retry: it continues where it stopped"
	case r.status >= http.StatusInternalServerError, r.has(codeVersionAbsent, codeD1Exists):
		code = sandbox.Unavailable // it exists, but not everywhere yet
	case r.status == http.StatusNotFound:
		code = sandbox.NotFound
	}
	return sandbox.Errorf(code, "%s: %w%s", was, r, advice)
}

// forbidden is the error of steps that the token does not allow.
type forbidden struct {
	was     string
	missing []Permission
	err     error
}

func (f *forbidden) Error() string {
	var names []string
	for _, p := range f.missing {
		names = append(names, fmt.Sprintf("%q", p))
	}
	return fmt.Sprintf("%s: the API token lacks the permission %s of this account: add it in the dashboard, "+
		"under API tokens: %s", f.was, strings.Join(names, ", "), f.err)
}

func (f *forbidden) Unwrap() error { return f.err }

func (f *forbidden) coded() error { return sandbox.Errorf(sandbox.Forbidden, "%w", f) }

// join combines the errors of concurrent steps into one, which names all missing permissions.
func join(all ...error) error {
	var missing *forbidden
	var first error
	for _, err := range all {
		var f *forbidden
		switch {
		case err == nil:
		case errors.As(err, &f) && missing == nil:
			missing = &forbidden{f.was, slices.Clone(f.missing), f.err}
		case errors.As(err, &f):
			missing.missing = append(missing.missing, f.missing...)
		case first == nil:
			first = err
		}
	}
	if missing != nil {
		return missing.coded()
	}
	return first
}

// neverSent reports whether the request failed before a connection was open.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
