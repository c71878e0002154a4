package deploy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/guestlayer"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// repository holds all prepared images of an account, so that common layers are pushed and stored once. An image has a
// separate tag for each deployment that uses it: removing one tag does not affect the other deployments.
const repository = "sandbox-environments"

// tagOf returns the tag of a deployment's image. key identifies the image's content.
func tagOf(name, key string) string { return name + "." + key }

// shelf is the repository of prepared images, with a client that has current credentials.
type shelf struct {
	client *registry.Client
	host   string
	name   string // the repository's, with the registry's address
}

func (d *Deployer) shelf(ctx context.Context) (*shelf, error) {
	host, err := d.registry.Host(ctx)
	if err != nil {
		return nil, err
	}
	client := registry.New(nil).With(host, d.registry.Login)
	if d.wait > 0 {
		client = client.Waiting(d.wait)
	}
	return &shelf{client, host, host + "/" + d.account + "/" + repository}, nil
}

// onShelf calls do with the registry, and once more with new credentials if the registry refuses the old ones.
func (d *Deployer) onShelf(ctx context.Context, what string, do func(*shelf) error) error {
	for again := false; ; again = true {
		s, err := d.shelf(ctx)
		if err != nil {
			return err
		}
		err = do(s)
		if elsewhere := (*originError)(nil); errors.As(err, &elsewhere) {
			return sandbox.Errorf(sandbox.CodeOf(err), "cloudflare: account %s: %s: %w", d.account, what, err).
				WithReason(sandbox.ReasonOf(err))
		}
		switch code := sandbox.CodeOf(err); {
		case err == nil:
			return nil
		case code == sandbox.Unauthenticated && !again:
			d.registry.forget()
			continue
		case code == sandbox.Unauthenticated, code == sandbox.Forbidden:
			return sandbox.Errorf(sandbox.Forbidden, "cloudflare: account %s: %s: the registry refuses the credentials that "+
				"the API has just given: has the token the permission %q? %w", d.account, what, permContainers, err)
		default:
			return sandbox.Errorf(code, "cloudflare: account %s: %s: %w%s", d.account, what, err, advice(code)).
				WithReason(sandbox.ReasonOf(err))
		}
	}
}

// advice returns what to do about a failure of the registry itself.
func advice(code sandbox.Code) string {
	switch code {
	case sandbox.Unavailable, sandbox.Timeout:
		return "; repeat it: layers that have arrived are not sent again"
	case sandbox.CapacityExceeded:
		return "; npx wrangler containers images list shows what the registry has"
	}
	return ""
}

// Prepare implements cloudflare.Deployer.
func (d *Deployer) Prepare(
	ctx context.Context, name, ref string, keep func(digest string) bool,
) (p cloudflare.Prepared, err error) {
	if err := cloudflare.CheckDeploymentName(name); err != nil {
		return p, err
	}
	program := d.guest
	if program == nil {
		program, err = guest.Binary("amd64")
	}
	if err != nil {
		return p, sandbox.Errorf(sandbox.Failed, "cloudflare: prepare image %s: %w", ref, err)
	}
	tag := tagOf(name, guestlayer.Key(digestOf(ref), program))
	err = d.onShelf(ctx, "prepare image "+ref, func(s *shelf) error {
		p, err = d.prepareOn(ctx, s, ref, tag, program)
		return err
	})
	if err != nil || !p.Sent {
		return p, err
	}
	return p, d.prune(ctx, name, tag, keep)
}

// digestOf returns the digest of a reference. An engine's id has no name before it and stays as it is.
func digestOf(ref string) string { return ref[strings.LastIndex(ref, "@")+1:] }

func (d *Deployer) prepareOn(ctx context.Context, s *shelf, ref, tag string,
	program []byte) (p cloudflare.Prepared, err error) {
	digest, err := s.client.Digest(ctx, s.name+":"+tag, "")
	if err == nil {
		return cloudflare.Prepared{Reference: s.name + "@" + digest}, nil
	}
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return p, err
	}
	base, err := d.open(ctx, s, ref)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, base.close()) }()
	if err := guestlayer.Check(ref, base.img); err != nil {
		return p, readFailed(ref, err)
	}
	has, err := guestlayer.Has(base.img)
	if err != nil {
		return p, readFailed(ref, err)
	}
	if has && base.own {
		return cloudflare.Prepared{Reference: base.ref}, nil
	}
	img := base.img
	if !has {
		if img, err = guestlayer.Add(base.img, program); err != nil {
			return p, readFailed(ref, err)
		}
	}
	if err := s.client.Push(ctx, s.name+":"+tag, img); err != nil {
		return p, err
	}
	pushed, err := img.Digest()
	return cloudflare.Prepared{Reference: s.name + "@" + pushed.String(), Sent: true}, readFailed(ref, err)
}

func readFailed(ref string, err error) error {
	var own *sandbox.Error
	if err == nil || errors.As(err, &own) {
		return err
	}
	return sandbox.Errorf(sandbox.Unavailable, "read image %s: %w", ref, err)
}

// base is the image that a prepared image is made from.
type base struct {
	img v1.Image
	ref string
	// own reports that it is in the account's registry.
	own   bool
	close func() error
}

// open finds an image: in the account's registry, in another one, or on the engine.
func (d *Deployer) open(ctx context.Context, s *shelf, ref string) (base, error) {
	nothing := func() error { return nil }
	if path := d.registry.within(ref); path != "" {
		ref = s.host + "/" + path
		img, err := s.client.Open(ctx, ref, guestlayer.Platform)
		return base{img, ref, true, nothing}, notFound(err)
	}
	if !strings.Contains(ref, "@") {
		local, err := d.save(ctx, ref)
		if err != nil {
			return base{}, atOrigin(sandbox.CodeOf(err), err)
		}
		return base{local, ref, false, local.Close}, nil
	}
	img, err := s.client.Open(ctx, ref, guestlayer.Platform)
	if err == nil {
		return base{img, ref, false, nothing}, nil
	}
	local, onEngine := d.save(ctx, ref)
	if onEngine == nil {
		return base{local, ref, false, local.Close}, nil
	}
	code := sandbox.CodeOf(err)
	if code == sandbox.NotFound {
		code = sandbox.CodeOf(onEngine)
	}
	return base{}, atOrigin(code, fmt.Errorf("%w; and the Docker engine of this process: %w", err, onEngine))
}

// originError is a failure to read an image from its origin, and not from the account's registry.
type originError struct{ err error }

func (e *originError) Error() string { return e.err.Error() }
func (e *originError) Unwrap() error { return e.err }

func atOrigin(code sandbox.Code, err error) error {
	e := sandbox.Errorf(code, "%w", &originError{err})
	switch code {
	case sandbox.NotFound:
		return e.WithReason(sandbox.ReasonImageNotFound)
	case sandbox.Unauthenticated:
		return e.WithReason(sandbox.ReasonRegistryCredentials)
	}
	return e
}

// notFound adds the reason to a NotFound error.
func notFound(err error) error {
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	return sandbox.Errorf(sandbox.NotFound, "%w", err).WithReason(sandbox.ReasonImageNotFound)
}

// save reads an image from the engine. Errors: NotFound, also when there is no engine; Invalid; Unavailable.
func (d *Deployer) save(ctx context.Context, ref string) (*image.Saved, error) {
	if d.engine == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no Docker engine to take it from")
	}
	return image.NewBuilder(d.engine).Save(ctx, ref)
}
