package leasing

import (
	"context"
	"maps"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
)

// equip is spec with what the sandbox gets of the host, which the ledger only names: it is read, and
// must be allowed, when the sandbox is made.
func (e *Engine) equip(s *ledger.Sandbox) (driver.SandboxSpec, error) {
	spec := e.spec(s)
	env, err := e.host.Env(s.Host)
	if err != nil {
		return spec, err
	}
	maps.Copy(env, spec.Env) // what is set wins
	spec.Env = env
	spec.Mounts, err = e.host.Mounts(s.Host)
	return spec, err
}

// copyIn copies what its environment gives each sandbox into one that was just made. Copying again,
// after a crash, does no harm: it is still unused.
func (e *Engine) copyIn(ctx context.Context, x *backend, s *ledger.Sandbox) error {
	for _, c := range s.Host.Copies {
		dir, stream, err := e.host.Open(c)
		if err != nil {
			return err
		}
		err = x.CopyTo(ctx, e.handle(s), dir, stream)
		_ = stream.Close() // only read
		if err != nil {
			return err
		}
	}
	return nil
}
