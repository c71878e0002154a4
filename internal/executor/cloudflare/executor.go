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

// RolloutGrace is how long an application of PolicyDefault leaves a container alone when its environment gets another
// image or size: as long as Cloudflare allows (rollout_active_grace_period, at most 604800 s, in
// github.com/cloudflare/api-schemas; read 2026-11). A container that starts later has the new ones.
const RolloutGrace = 7 * 24 * time.Hour

// MaxMaxInstances is how many containers of the smallest size an account has room for
// (developers.cloudflare.com/containers/platform/limits, read 2026-11).
const MaxMaxInstances = 15_000

// Config says which account to use, and how.
type Config struct {
	// Deployer works on one account.
	Deployer Deployer
	// MasterKey is what the keys of the Workers are derived from. They are not stored: with another MasterKey no
	// Worker that was deployed before answers until its environment is provisioned again.
	MasterKey sandbox.Secret
	// MasterKeys takes the place of MasterKey where keys are rotated: it returns those that hold now, the newest first.
	// Workers are deployed with the first two, and asked with the newest that they accept.
	MasterKeys func() ([]sandbox.Secret, error)
	// SchedulingPolicy is for environments that are created from now on; "" means PolicyDefault. Others keep theirs.
	SchedulingPolicy SchedulingPolicy
	// MaxInstances is how many containers of one environment may run at once; 0 means DefaultMaxInstances.
	MaxInstances int
	// Poll is how often Watch looks; 0 means DefaultPoll. Each look is one request to every Worker. While another process
	// deletes a shared Worker that an environment is to come to, it is looked at five times as often.
	Poll time.Duration
	// Grace is how much longer a sandbox goes unused by its own clock than its lease allows, so that a reconciler that
	// works on it comes first; 0 means DefaultGrace. It is paid for when none does.
	Grace time.Duration
	// HTTP carries the requests to Workers; nil means a client of its own. It must have no timeout.
	HTTP *http.Client
	// Now is what signatures hold from; nil means time.Now.
	Now func() time.Time
}

// Executor drives the sandboxes of one Cloudflare account.
type Executor struct {
	helper.Guests
	deployer Deployer
	cfg      Config
	listing  chan struct{} // holds one value while deployments are listed

	mu      sync.Mutex           // guards what follows
	account string               // "" until Cloudflare has answered for it
	workers map[string]*deployed // by DeploymentName
	rings   map[string]*keyring  // by deployment
	sites   map[string]*sites    // by ledger
	// lines are those to shared Workers, queues the environments on their way there, and shared what was found of them,
	// by name.
	lines  map[string]*Worker
	queues map[string]*queue
	shared map[string]seenSite
	// networks has which environments are restricted, by deployment.
	networks map[string]networks
	// journals has the digest of an environment's LLM routes that its Worker told with the journal, by DeploymentName. It
	// is for the next ServeLLM only: another process may change the routes.
	journals map[string]string
	// deployed counts what makes sites stale.
	deployed int
	former   []*deployed // forgotten, with sessions that may be open
}

// deployed is an environment's deployment as it was last seen.
type deployed struct {
	*Worker
	image string // as its environment names it
	// prepared is what starts choose under PolicyDurableObject; "" elsewhere.
	prepared string
	// shared: the line is that of Executor.lines.
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

// Close ends what is under way in sandboxes, and releases the connections that nothing uses.
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
// limits; this program adds what the guest does.
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

// unavailable is the error of an account that did not answer as it should: nothing is known of its sandboxes.
func unavailable(err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "cloudflare: %w", err).WithReason(sandbox.ReasonOf(err))
}

// confirm checks that the account is the one that is named.
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

// keysOf returns the signing keys of a deployment, the newest first.
func (e *Executor) keysOf(name string) ([]sandbox.Secret, error) {
	masters, err := e.cfg.MasterKeys()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeOf(err), "cloudflare: the keys of Workers are made of the key for secrets: %w",
			err)
	}
	all := make([]sandbox.Secret, len(masters))
	for i, master := range masters {
		h := hmac.New(sha256.New, []byte(master))
		_, _ = h.Write([]byte("signing key of " + name)) // a hash does not fail
		all[i] = sandbox.Secret(hex.EncodeToString(h.Sum(nil)))
	}
	return all, nil
}

// help makes a call of the guest, as helper.Run has it.
func (e *Executor) help(ctx context.Context, h driver.Handle, c helper.Call) (wire.Result, error) {
	w, err := e.worker(ctx, h)
	if err != nil {
		return wire.Result{}, err
	}
	return w.help(ctx, h, c)
}

// errNotAssigned: no sandbox of this backend waits for its lease.
var errNotAssigned = errors.New("this backend has no warm pools: a container that sleeps is stopped, and starts no " +
	"faster than a new one")
