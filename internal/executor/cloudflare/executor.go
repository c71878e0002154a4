package cloudflare

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/helper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Defaults of a Config.
const (
	DefaultMaxInstances = 20
	DefaultPoll         = 10 * time.Second
	DefaultGrace        = time.Minute
)

// RolloutGrace is how long an application of PolicyDefault does not replace a container after its environment gets
// another image or size. It is the maximum of Cloudflare (rollout_active_grace_period, at most 604800 s, in
// github.com/cloudflare/api-schemas; read 2026-11). Containers that start later have the new image and size.
const RolloutGrace = 7 * 24 * time.Hour

// MaxMaxInstances is how many containers of the smallest size an account has room for
// (developers.cloudflare.com/containers/platform/limits, read 2026-11).
const MaxMaxInstances = 15_000

// Config says which account to use, and how.
type Config struct {
	// Deployer deploys to the account.
	Deployer Deployer
	// MasterKey derives the keys of Workers, which are not stored. After it changes, no Worker answers until its
	// environment is provisioned again.
	MasterKey sandbox.Secret
	// MasterKeys replaces MasterKey for key rotation: it returns the current master keys, newest first. Workers are
	// deployed with the first two. Requests use the newest key that the Worker accepts.
	MasterKeys func() ([]sandbox.Secret, error)
	// SchedulingPolicy applies to new environments; "" means PolicyDefault. Existing ones keep theirs.
	SchedulingPolicy SchedulingPolicy
	// MaxInstances is how many containers of one environment may run at the same time; 0 means DefaultMaxInstances.
	MaxInstances int
	// Poll is the interval of Watch; 0 means DefaultPoll. Each poll is one request to every Worker. An environment that
	// waits until another process has deleted its shared Worker polls five times as often.
	Poll time.Duration
	// Grace is added to the idle limits of a lease for the Worker's own timers, so that a running reconciler acts first; 0
	// means DefaultGrace. Without a reconciler, this time is billed.
	Grace time.Duration
	// HTTP carries the requests to Workers; nil means a client of its own. It must have no timeout.
	HTTP *http.Client
	// Now returns the time for signatures and caches; nil means time.Now.
	Now func() time.Time
}

// Executor drives the sandboxes of one Cloudflare account.
type Executor struct {
	helper.Guests
	deployer Deployer
	cfg      Config
	listing  chan struct{} // holds one value while deployments are listed

	mu      sync.Mutex           // guards what follows
	account string               // "" until Cloudflare has confirmed it
	workers map[string]*deployed // by DeploymentName
	rings   map[string]*keyring  // by deployment
	sites   map[string]*sites    // by ledger
	// lines are the clients of shared Workers, queues the environments that are being added to them, and shared their
	// cached sites; all by name.
	lines  map[string]*Worker
	queues map[string]*queue
	shared map[string]seenSite
	// networks are the restricted environments, by deployment.
	networks map[string]networks
	// journals has the digests of LLM routes that Workers returned with their journals, by DeploymentName. Only the next
	// ServeLLM uses a digest, because another process may change the routes.
	journals map[string]string
	// deployed counts the changes that make sites stale.
	deployed int
	former   []*deployed // forgotten, with sessions that may be open
}

// deployed is an environment's deployment as it was last seen.
type deployed struct {
	*Worker
	image string // the environment's name for it
	// prepared is the image that starts choose under PolicyDurableObject; "" under PolicyDefault.
	prepared string
	// shared reports that Worker is one of Executor.lines.
	shared bool
}

var (
	_ driver.Executor = (*Executor)(nil)
	_ driver.Meter    = (*Executor)(nil)

	_ driver.LLMBroker        = (*Executor)(nil)
	_ driver.CredentialBroker = (*Executor)(nil)
)

// New returns an executor for the account of a Deployer. It does not connect. Errors: Invalid.
func New(cfg Config) (*Executor, error) {
	if cfg.MasterKeys == nil && cfg.MasterKey != "" {
		cfg.MasterKeys = func() ([]sandbox.Secret, error) { return []sandbox.Secret{cfg.MasterKey}, nil }
	}
	if cfg.Deployer == nil || cfg.MasterKeys == nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "cloudflare: there must be a deployer and a master key")
	}
	policy, err := ParseSchedulingPolicy(string(cfg.SchedulingPolicy))
	if err != nil {
		return nil, err
	}
	cfg.SchedulingPolicy = policy
	cfg.MaxInstances = cmp.Or(cfg.MaxInstances, DefaultMaxInstances)
	cfg.Poll = cmp.Or(cfg.Poll, DefaultPoll)
	cfg.Grace = cmp.Or(cfg.Grace, DefaultGrace)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.HTTP == nil {
		cfg.HTTP = newClient()
	}
	e := &Executor{
		deployer: cfg.Deployer, cfg: cfg, listing: make(chan struct{}, 1),
		workers: make(map[string]*deployed), rings: make(map[string]*keyring),
		sites: make(map[string]*sites), networks: make(map[string]networks),
		journals: make(map[string]string),
		lines:    make(map[string]*Worker), queues: make(map[string]*queue), shared: make(map[string]seenSite),
	}
	e.Guests = helper.New(sandbox.Cloudflare, e.help)
	return e, nil
}

// Close ends the operations in progress in sandboxes, and closes idle connections.
func (e *Executor) Close() error {
	e.mu.Lock()
	lines := slices.Collect(maps.Values(e.lines))
	for _, d := range slices.AppendSeq(e.former, maps.Values(e.workers)) {
		if !d.shared {
			lines = append(lines, d.Worker)
		}
	}
	e.workers, e.former, e.lines = map[string]*deployed{}, nil, map[string]*Worker{}
	e.mu.Unlock()
	var errs []error
	for _, w := range lines {
		errs = append(errs, w.Close())
	}
	e.cfg.HTTP.CloseIdleConnections()
	return errors.Join(errs...)
}

// Backend implements driver.Executor.
func (e *Executor) Backend() sandbox.Backend { return sandbox.Cloudflare }

// Capabilities implements driver.Executor. Each container is a machine of its own, which Cloudflare confines and
// limits; this program adds only the protections of the guest.
func (e *Executor) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		CPUTime:     true,
		Exec:        true,
		Channel:     true,
		FullNetwork: true,
		TakesImages: true,
		Records:     true,
		KeepsTime:   true,
		Metered:     true,
		Readings:    true,
		KeepsDisk:   true,
	}
}

// Instance implements driver.Executor: it is the account's id.
func (e *Executor) Instance(ctx context.Context) (string, error) {
	account, err := e.deployer.Account(ctx)
	if err != nil {
		return "", unavailable(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.account = account
	return account, nil
}

// unavailable returns the error of an account that did not answer properly: the state of its sandboxes is unknown.
func unavailable(err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "cloudflare: %w", err).WithReason(sandbox.ReasonOf(err))
}

// confirm checks that the executor's account is instance.
func (e *Executor) confirm(ctx context.Context, instance string) error {
	e.mu.Lock()
	account := e.account
	e.mu.Unlock()
	if account == "" {
		var err error
		if account, err = e.Instance(ctx); err != nil {
			return err
		}
	}
	if instance != account {
		return sandbox.Errorf(sandbox.Unavailable, "cloudflare: this is account %s, not %s", account, instance).
			WithReason(sandbox.ReasonOtherInstance)
	}
	return nil
}

// keysOf returns the signing keys of a deployment, newest first.
func (e *Executor) keysOf(name string) ([]sandbox.Secret, error) {
	masters, err := e.cfg.MasterKeys()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeOf(err), "cloudflare: the keys of Workers are derived from the key for "+
			"secrets: %w", err)
	}
	all := make([]sandbox.Secret, len(masters))
	for i, master := range masters {
		h := hmac.New(sha256.New, []byte(master))
		_, _ = h.Write([]byte("signing key of " + name)) // a hash does not fail
		all[i] = sandbox.Secret(hex.EncodeToString(h.Sum(nil)))
	}
	return all, nil
}

// help calls the guest of a sandbox. It is a helper.Run.
func (e *Executor) help(ctx context.Context, h driver.Handle, c helper.Call) (wire.Result, error) {
	w, err := e.worker(ctx, h)
	if err != nil {
		return wire.Result{}, err
	}
	return w.help(ctx, h, c)
}

// errNotAssigned is why Assign fails: no sandbox of this backend waits for a lease.
var errNotAssigned = errors.New("this backend has no warm pools: a container that sleeps is stopped, and starts no " +
	"faster than a new one")
