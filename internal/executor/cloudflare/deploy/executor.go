package deploy

import (
	"errors"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// EnvAccount, EnvToken and EnvURL are the environment variables of Cloudflare's own tools for the account's id, the
// token and the API's address.
const (
	EnvAccount = "CLOUDFLARE_ACCOUNT_ID"
	EnvToken   = "CLOUDFLARE_API_TOKEN" //nolint:gosec // the name of a variable
	EnvURL     = "CLOUDFLARE_API_BASE_URL"
)

// keyPurpose is the purpose in the derivation of the Workers' keys.
const keyPurpose = "signing keys of Cloudflare Workers"

// Executor is the executor of one account, with the resources that it owns.
type Executor struct {
	*cloudflare.Executor
	owned []io.Closer
}

// NewExecutor returns the executor of an account. It does not connect. The keys of Workers are derived from keys, so
// all processes with the same key file agree on them. Close also closes owned. Errors: Invalid; as seal.Keys.
func NewExecutor(cfg Config, keys *seal.Keys, owned ...io.Closer) (*Executor, error) {
	d, err := New(cfg)
	if err != nil {
		return nil, err
	}
	masters := func() ([]sandbox.Secret, error) { return keys.DeriveAll(keyPurpose) }
	if _, err := masters(); err != nil {
		return nil, sandbox.Errorf(sandbox.CodeOf(err), "cloudflare: the keys of Workers are derived from the key for "+
			"secrets: %w", err)
	}
	x, err := cloudflare.New(cloudflare.Config{
		Deployer: d, MasterKeys: masters, Grace: cfg.Grace, SchedulingPolicy: cfg.SchedulingPolicy,
		MaxInstances: cfg.MaxInstances,
	})
	if err != nil {
		return nil, err
	}
	return &Executor{x, append([]io.Closer{d}, owned...)}, nil
}

// Close releases all connections.
func (x *Executor) Close() error {
	err := x.Executor.Close()
	for _, o := range x.owned {
		err = errors.Join(err, o.Close())
	}
	return err
}
