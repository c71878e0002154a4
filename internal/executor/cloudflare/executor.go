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
	DefaultRolloutGrace = 15 * time.Minute
	DefaultPoll         = 10 * time.Second
	DefaultGrace        = time.Minute
)

// Config says which account to use, and how.
type Config struct {
	// Deployer works on one account.
	Deployer Deployer
	// MasterKey is what the keys of the Workers are made of, which are kept nowhere: with another one no
	// Worker that was deployed before answers, until its environment is provisioned again.
	MasterKey sandbox.Secret
	// MasterKeys takes the place of MasterKey where keys are rotated: it returns those that hold now, the newest first.
	// Workers are deployed with the first two, and asked with the newest that they accept.
	MasterKeys func() ([]sandbox.Secret, error)
	// SchedulingPolicy is that of environments that are made from now on; "" means PolicyDefault. Others keep theirs.
	SchedulingPolicy SchedulingPolicy
	// MaxInstances is how many containers of one environment may run at once; 0 means DefaultMaxInstances.
	MaxInstances int
	// RolloutGrace is how long a sandbox that runs is left alone when its environment gets another image or
	// size; 0 means DefaultRolloutGrace.
	RolloutGrace time.Duration
	// Poll is how often Watch looks; 0 means DefaultPoll. Each look is one request to every environment's Worker.
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

	mu      sync.Mutex // guards what follows
	account string     // "" until Cloudflare has answered for it
	workers map[string]*deployed
	rings   map[string]*keyring // by deployment
	sites   map[string]*sites   // by ledger
	// networks has which environments are restricted, by deployment.
	networks map[string]networks
	// journals has the digest of an environment's LLM routes that its Worker told with the journal, by deployment. It is
	// for the next ServeLLM only: another process may change the routes.
	journals map[string]string
	// deployed counts what makes sites stale.
	deployed int
	former   []*deployed // forgotten, with sessions that may be open
}

// deployed is a deployment as it was last seen.
type deployed struct {
	*Worker
	image string // as its environment names it
	// prepared is what starts choose under PolicyDurableObject; "" elsewhere.
	prepared string
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
	cfg.RolloutGrace = cmp.Or(cfg.RolloutGrace, DefaultRolloutGrace)
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
	}
	e.Guests = helper.New(sandbox.Cloudflare, e.help)
	return e, nil
}

// Close ends what is under way in sandboxes, and releases the connections that nothing uses.
func (e *Executor) Close() error {
	e.mu.Lock()
	all := append(slices.Collect(maps.Values(e.workers)), e.former...)
	e.workers, e.former = map[string]*deployed{}, nil
	e.mu.Unlock()
	var errs []error
	for _, d := range all {
		errs = append(errs, d.Close())
	}
	e.cfg.HTTP.CloseIdleConnections()
	return errors.Join(errs...)
}

// Backend implements driver.Executor.
func (e *Executor) Backend() sandbox.Backend { return sandbox.Cloudflare }

// Capabilities implements driver.Executor. Each container is a machine of its own, which Cloudflare shuts in and
// limits; this program adds what the guest does.
func (e *Executor) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		CPUTime:     true,
		Exec:        true,
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

// confirm sees to it that the account is the one that is named.
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

// line returns a line to the Worker of a site. All lines to one share their keyring, which has the keys that hold now.
func (e *Executor) line(s Site) (*Worker, error) {
	keys, err := e.keysOf(s.Name)
	e.mu.Lock()
	ring := e.rings[s.Name]
	switch {
	case ring == nil && err != nil:
		e.mu.Unlock()
		return nil, err
	case ring == nil:
		ring = newKeyring(keys)
		e.rings[s.Name] = ring
	case err == nil: // else those that held before
		ring.set(keys)
	}
	e.mu.Unlock()
	ring.prefer(s.SigningKeyDigest)
	return NewWorker(WorkerConfig{URL: s.URL, keys: ring, HTTP: e.cfg.HTTP, Now: e.cfg.Now})
}

// learn notes a site that the lists of now may lack. One without a Worker that answers gives NotFound.
func (e *Executor) learn(s Site) (*deployed, error) {
	d, err := e.deployedAs(s)
	if err == nil {
		e.replace(s.Name, d)
	}
	return d, err
}

// deployedAs is a site as it is noted.
func (e *Executor) deployedAs(s Site) (*deployed, error) {
	if s.URL == "" {
		return nil, sandbox.Errorf(sandbox.NotFound, "cloudflare: deployment %s is half made: it lacks %v", s.Name, s.Missing)
	}
	w, err := e.line(s)
	if err != nil {
		return nil, err
	}
	d := &deployed{Worker: w, image: imageOf(s)}
	if s.Policy == PolicyDurableObject {
		d.prepared = s.Variables[variablePrepared]
	}
	return d, nil
}

// forget asks for a deployment anew the next time. What is under way in its sandboxes goes on until Close.
func (e *Executor) forget(name string) { e.replace(name, nil) }

// replace takes a deployment for another, or for none. Lists of deployments are asked for anew.
func (e *Executor) replace(name string, by *deployed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note(name, by)
	delete(e.networks, name)
	delete(e.journals, name)
	clear(e.sites)
	e.deployed++
}

// note notes a deployment, or none. The caller holds mu.
func (e *Executor) note(name string, by *deployed) {
	e.former = slices.DeleteFunc(e.former, func(d *deployed) bool { return d.sessions.none() })
	if d := e.workers[name]; d != nil {
		e.former = append(e.former, d)
	}
	delete(e.workers, name)
	if by != nil {
		e.workers[name] = by
	}
}

// find returns the deployment of an environment. Errors: NotFound where there is none.
func (e *Executor) find(ctx context.Context, ledgerID, environmentID, instance string) (*deployed, error) {
	if err := e.confirm(ctx, instance); err != nil {
		return nil, err
	}
	name := DeploymentName(ledgerID, environmentID)
	e.mu.Lock()
	d := e.workers[name]
	e.mu.Unlock()
	if d != nil {
		return d, nil
	}
	if s, told := e.ask(ctx, ledgerID, name); told {
		d, err := e.deployedAs(s)
		if err == nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.note(name, d)
		}
		return d, err
	}
	s, err := e.deployer.Find(ctx, name)
	switch sandbox.CodeOf(err) {
	case "":
		return e.learn(s)
	case sandbox.NotFound:
		return nil, err
	default:
		return nil, unavailable(err)
	}
}

// ask asks a Worker of the ledger's list what it was deployed with: a request to it is no call of Cloudflare's API, of
// which Find makes ten. One that does not tell is to be found.
func (e *Executor) ask(ctx context.Context, ledgerID, name string) (s Site, told bool) {
	sites, err := e.sitesOf(ctx, ledgerID)
	if err != nil {
		return s, false // Find says why
	}
	i := slices.IndexFunc(sites, func(s Site) bool { return s.Name == name && s.URL != "" })
	if i < 0 {
		return s, false // another process may have made it
	}
	w, err := e.line(sites[i])
	if err != nil {
		return s, false
	}
	answer, err := w.introduce(ctx)
	s = sites[i]
	s.Variables = map[string]string{variableImage: answer.Image, variablePrepared: answer.Prepared}
	if answer.Policy == PolicyDurableObject {
		s.Policy, s.Image = answer.Policy, ""
	}
	return s, err == nil && answer.Prepared != ""
}

// worker returns the Worker of a sandbox. Errors: NotFound where its environment has none: then it has no
// sandboxes either.
func (e *Executor) worker(ctx context.Context, h driver.Handle) (*Worker, error) {
	d, err := e.find(ctx, h.LedgerID, h.EnvironmentID, h.Instance)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, sandbox.Errorf(sandbox.NotFound, "cloudflare: sandbox %s does not exist: %w", h.SandboxID, err).
			WithReason(sandbox.ReasonSandboxNotFound)
	}
	if err != nil {
		return nil, err
	}
	return d.Worker, nil
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
