// Package deploy deploys environments to Cloudflare: it implements cloudflare.Deployer with Cloudflare's API.
//
// Every call first reads all parts concurrently, and then changes those that differ:
//
//	D1 database -> R2 bucket -> Worker with its Durable Objects -> container application -> workers.dev route
//
// Each part is found by the deployment's name, and the application also by the namespace of the Durable Objects: an
// application keeps its namespace forever, and a namespace has one application at most. So the next call continues
// where one broke off, and Delete finds all remaining parts. Delete works in the other direction: an application that
// outlives its Worker would block the application of the next Worker with that name.
//
// Changing an application takes two requests: one for the new settings, and one for their rollout to running
// containers. If a changed application has no rollout to its settings, the second request is missing.
//
// Requests use cloudflare-go where it has types. Those for containers and for uploads of Workers are raw (api.go).
package deploy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/cloudflare/cloudflare-go/v7/d1"
	"github.com/cloudflare/cloudflare-go/v7/option"
	"github.com/cloudflare/cloudflare-go/v7/r2"
	"github.com/cloudflare/cloudflare-go/v7/workers"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// BaseURL is Cloudflare's API.
const BaseURL = "https://api.cloudflare.com/client/v4"

var accountID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// Config configures a Deployer.
type Config struct {
	// AccountID is the account's id: 32 hexadecimal digits.
	AccountID string
	// Token is an API token with the permissions of Permissions.
	Token sandbox.Secret
	// BaseURL is the API's; "" means Cloudflare's.
	BaseURL string
	// Registry is the address of the account's registry; "" means Cloudflare's.
	Registry string
	// Engine has images that no registry has; nil means no engine.
	Engine func() (image.Engine, error) `json:"-"`
	// Guest is the program to add to images; nil means the one of this build.
	Guest []byte `json:"-"`
	// HTTP carries the requests; nil means a client of its own.
	HTTP   *http.Client `json:"-"`
	Logger *slog.Logger `json:"-"` // nil means none; it never sees the token
	// Grace is added to the idle limits of leases for the Worker's own timers; zero means cloudflare.DefaultGrace.
	Grace time.Duration
	// SchedulingPolicy applies to new environments; "" means cloudflare.PolicyDefault.
	SchedulingPolicy cloudflare.SchedulingPolicy
	// MaxInstances bounds the running containers of one environment of policy default; zero means
	// cloudflare.DefaultMaxInstances.
	MaxInstances int
	// Attempts bounds how often a request that may be retried is sent. Zero means 5.
	Attempts int
	// Calls bounds the calls of this process in five minutes; further calls wait. Zero means DefaultCalls.
	Calls int
	// Now is the clock for the expiry of registry credentials and cached answers; nil means time.Now.
	Now func() time.Time `json:"-"`
	// WaitMin and WaitMax bound the wait between attempts if Cloudflare names none. Zero means 500 ms and 10 s.
	WaitMin, WaitMax time.Duration
}

// FillIn fills empty fields from the environment variables of Cloudflare's own tools.
func (c *Config) FillIn(getenv func(string) string) {
	c.AccountID = cmp.Or(c.AccountID, getenv(EnvAccount))
	c.Token = cmp.Or(c.Token, sandbox.Secret(getenv(EnvToken)))
	c.BaseURL = cmp.Or(c.BaseURL, getenv(EnvURL))
	c.Registry = cmp.Or(c.Registry, getenv(EnvRegistry))
}

// AccountIDProblem returns what is wrong with an account's id, "" if it is valid.
func AccountIDProblem(id string) string {
	if accountID.MatchString(id) {
		return ""
	}
	return "must be 32 hexadecimal digits, as the dashboard shows them"
}

// BaseURLProblem returns what is wrong with the address of the API, "" if it is valid.
func BaseURLProblem(raw string) string {
	if u, err := url.Parse(raw); err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return "must be an https or http URL"
	}
	return ""
}

func (c Config) check() error {
	var f []sandbox.Field
	if problem := AccountIDProblem(c.AccountID); problem != "" {
		f = append(f, sandbox.Field{Name: "account_id", Problem: problem})
	}
	if c.Token == "" {
		f = append(f, sandbox.Field{Name: "api_token", Problem: "must be set"})
	}
	if problem := BaseURLProblem(c.BaseURL); c.BaseURL != "" && problem != "" {
		f = append(f, sandbox.Field{Name: "base_url", Problem: problem})
	}
	return sandbox.InvalidFields("cloudflare: the account's configuration", f)
}

// Deployer deploys to one account.
type Deployer struct {
	account   string
	api       *api
	workers   *workers.WorkerService
	databases *d1.DatabaseService
	buckets   *r2.BucketService
	registry  *Registry
	memory    memory
	asking    chan struct{} // holds one value while a call asks for the subdomain
	now       func() time.Time
	// wait is the wait before the first retry at the registry; 0 means the default of registry.Client.
	wait   time.Duration
	engine func() (image.Engine, error)
	guest  []byte
}

var _ cloudflare.Deployer = (*Deployer)(nil)

// New returns a deployer. It does not connect. Errors: Invalid.
func New(cfg Config) (*Deployer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = BaseURL
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.BaseURL = strings.TrimSuffix(cfg.BaseURL, "/")
	transport := newTransport(cfg)
	options := []option.RequestOption{
		option.WithBaseURL(cfg.BaseURL), option.WithAPIToken(string(cfg.Token)),
		option.WithHTTPClient(transport), option.WithMaxRetries(0), // transport retries
	}
	d := &Deployer{
		account: cfg.AccountID,
		api: &api{
			root:      cfg.BaseURL,
			base:      cfg.BaseURL + "/accounts/" + cfg.AccountID,
			token:     cfg.Token,
			transport: transport,
		},
		workers:   workers.NewWorkerService(options...),
		databases: d1.NewDatabaseService(options...),
		buckets:   r2.NewBucketService(options...),
		wait:      cfg.WaitMin,
		engine:    cfg.Engine,
		guest:     cfg.Guest,
		now:       cfg.Now,
		asking:    make(chan struct{}, 1),
	}
	d.registry = newRegistry(d, cfg)
	return d, nil
}

// Registry returns the account's registry.
func (d *Deployer) Registry() *Registry { return d.registry }

// Close closes idle connections.
func (d *Deployer) Close() error {
	d.api.transport.close()
	return nil
}

// Account implements cloudflare.Deployer.
func (d *Deployer) Account(ctx context.Context) (string, error) {
	subdomain, err := d.keptSubdomain(ctx)
	if err == nil && subdomain == "" {
		err = d.noSubdomain()
	}
	return d.account, err
}

func (d *Deployer) noSubdomain() error {
	return sandbox.Errorf(sandbox.NotFound,
		"cloudflare: account %s has no workers.dev subdomain: open Workers & Pages in the dashboard once, where it is chosen",
		d.account)
}

// Deploy implements cloudflare.Deployer.
func (d *Deployer) Deploy(ctx context.Context, want cloudflare.Deployment) (cloudflare.Site, error) {
	if err := want.Check(); err != nil {
		return cloudflare.Site{}, err
	}
	s, err := d.inspect(ctx, want.Name)
	if err == nil && s.subdomain == "" {
		err = d.noSubdomain()
	}
	for _, ensure := range []func(context.Context, cloudflare.Deployment, *inventory) error{
		d.ensureDatabase, d.ensureBucket, d.prepareStarts, d.ensureWorker, d.ensureApplication, d.ensureRoute,
	} {
		if err != nil {
			return cloudflare.Site{}, err
		}
		err = ensure(ctx, want, s)
	}
	if err != nil {
		return cloudflare.Site{}, err
	}
	return s.site(), nil
}

// Find implements cloudflare.Deployer.
func (d *Deployer) Find(ctx context.Context, name string) (cloudflare.Site, error) {
	s, err := d.find(ctx, name)
	if err != nil {
		return cloudflare.Site{}, err
	}
	return s.site(), nil
}

// Route implements cloudflare.Deployer.
func (d *Deployer) Route(ctx context.Context, name string) (cloudflare.Site, error) {
	s, err := d.find(ctx, name)
	if err == nil && s.worker == nil {
		err = sandbox.Errorf(sandbox.NotFound, "cloudflare: account %s: there is no Worker %s", d.account, name)
	}
	if err == nil {
		err = d.ensureRoute(ctx, cloudflare.Deployment{Name: name}, s)
	}
	if err != nil {
		return cloudflare.Site{}, err
	}
	return s.site(), nil
}

// find returns the parts of a deployment. Errors: NotFound, when it has none.
func (d *Deployer) find(ctx context.Context, name string) (*inventory, error) {
	if err := cloudflare.CheckDeploymentName(name); err != nil {
		return nil, err
	}
	s, err := d.inspect(ctx, name)
	if err == nil && s.empty() {
		err = sandbox.Errorf(sandbox.NotFound, "cloudflare: account %s: nothing is deployed as %s", d.account, name)
	}
	return s, err
}

// Delete implements cloudflare.Deployer.
func (d *Deployer) Delete(ctx context.Context, name string) error {
	if err := cloudflare.CheckDeploymentName(name); err != nil {
		return err
	}
	s, err := d.inspect(ctx, name)
	if err != nil {
		return err
	}
	for _, remove := range []func(context.Context, *inventory) error{
		d.removeApplications, d.removeWorker, d.removeDatabase, d.removeBucket,
	} {
		if err := remove(ctx, s); err != nil && !isAbsent(err) {
			return err
		}
	}
	return d.RemoveImages(ctx, name)
}

// isAbsent reports whether Cloudflare answered that an object does not exist.
func isAbsent(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused.status == http.StatusNotFound
}
